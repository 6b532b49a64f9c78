"""Tables of Delta Lake, in a folder or a bucket.

client.py    the library: where a table is, how a bucket is reached, errors in words
tables.py    compares an existing table with the columns of a sink
outlet.py    writes a chunk of rows and its position as one commit of the table
"""
