"""Writes lines to a topic, or shows what is committed in one: enough to try the other examples with.

python examples/topic.py write lines --brokers 127.0.0.1:9092 < FILE      # a record a line; KEY<tab>VALUE with a key
python examples/topic.py read word-counts --brokers 127.0.0.1:9092        # from the beginning, until Ctrl-C
"""

from __future__ import annotations

import sys
import time

import click
from confluent_kafka import Consumer, Producer, TopicPartition


@click.group()
def topic() -> None:
    """Write to a topic, or read it."""


@topic.command()
@click.argument("name")
@click.option("--brokers", required=True)
def write(name: str, brokers: str) -> None:
    """A record for each line of standard input, placed by its key as Java's producers place it."""
    producer = Producer({"bootstrap.servers": brokers, "partitioner": "murmur2_random", "enable.idempotence": True})
    for line in sys.stdin:
        key, tab, value = line.rstrip("\n").rpartition("\t")
        producer.produce(name, value, key if tab else None)
        producer.poll(0)
    if left := producer.flush(30):
        raise click.ClickException(f"{left} records could not be written")


@topic.command()
@click.argument("name")
@click.option("--brokers", required=True)
def read(name: str, brokers: str) -> None:
    """Key and value of every committed record, as it comes."""
    settings = {"bootstrap.servers": brokers, "group.id": "topic.py", "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "auto.offset.reset": "earliest"})
    while not (partitions := consumer.list_topics(name, 10).topics[name].partitions):
        click.echo(f"waiting for topic {name} at {brokers}", err=True)
        time.sleep(1)
    consumer.assign([TopicPartition(name, p, 0) for p in partitions])
    while True:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            key, value = message.key() or b"", message.value()
            click.echo(f"{key.decode()}\t{'(gone)' if value is None else value.decode()}")


if __name__ == "__main__":
    topic()
