"""Sends the flights of 2013 to a topic, for app.py.

python examples/travel/fill.py --brokers 127.0.0.1:9092 --flights 50000
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import click
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.append(str(Path(__file__).parents[1] / "flights"))

from data import PARTITIONS, TOPIC, flights, send


@click.command()
@click.option("--brokers", required=True)
@click.option("--flights", "count", default=50_000, show_default=True, help="How many, from the first of January.")
@click.option("--skip", default=0, show_default=True, help="How many to leave out before them.")
@click.option("--seconds", default=5.0, show_default=True, help="How long the sending takes, at least.")
def main(brokers: str, count: int, skip: int, seconds: float) -> None:
    """Make the topic of flights, if it is not there, and send some."""
    # An epoch is over all flights, so Kafka must not delete any.
    admin = AdminClient({"bootstrap.servers": brokers})
    try:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, config={"retention.ms": "-1"})])[TOPIC].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    frame = flights().slice(skip, count)
    send(frame, brokers, seconds, lambda _: None, threading.Event())
    click.echo(f"{frame.height:,} flights are in topic {TOPIC}")


if __name__ == "__main__":
    main()
