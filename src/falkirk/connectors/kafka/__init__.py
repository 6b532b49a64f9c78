"""Kafka, through librdkafka: the protocol's log, the reader of inputs, the group that owns tasks."""
