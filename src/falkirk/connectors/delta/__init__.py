"""Tables of Delta Lake, in a folder or a bucket."""
