"""Files outside Kafka, in a folder or a bucket."""
