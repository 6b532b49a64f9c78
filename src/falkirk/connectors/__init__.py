"""What Falkirk connects to: Kafka, Spark, HTTP clients, schema registries, and where sinks write.

kafka/              Kafka, through librdkafka
embedded/           a real Kafka for development and tests, on this machine
spark/              topics as DataFrames, and epochs on Spark
http/               the HTTP side of a gateway
files/              sinks of Parquet files, in a folder or a bucket
delta/              sinks of Delta Lake tables
postgres/           sinks of PostgreSQL tables

registry.py         a schema registry (`fk.Registry`), and what its answers mean
once.py             `fk.Once`, for programs that read a sink: tells new records from old ones

java.py             finds a Java for Kafka's broker and for Spark
class_archive.py    an archive of classes, with which a JVM starts in half the time
garbage.py          lets Python look for reference cycles rarely, in processes that read messages
"""
