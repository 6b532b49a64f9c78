"""Files outside Kafka, in a folder or a bucket.

places.py     a folder or a bucket in which a file appears as a whole, and each name only once
parquet.py    writes a chunk of rows as a Parquet file; its name and footer say which rows
"""
