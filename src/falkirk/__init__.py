"""Falkirk: exactly-once stream processing on Kafka, with batch on Spark."""
