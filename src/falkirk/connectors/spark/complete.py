"""The records of a complete epoch: all of them, and none of one still being published.

    epoch n of a sink  =  records with n in their header, between the ends at its opening and those at its completion

Tombstones are left out: the keys they delete are not in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Literal

from confluent_kafka import Message

from falkirk.checkpoint.driver import run
from falkirk.checkpoint.epochs import Complete, Epochs, catch_up
from falkirk.checkpoint.ids import TopicPartition
from falkirk.checkpoint.publishing import HEADER
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.app_topics.epochs import KafkaEpochLog
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.spark.division import Division
from falkirk.connectors.spark.ranges import headers
from falkirk.errors import ConfigError, SourceError


def complete_epoch(
    cluster: Cluster, topics: Topics, epochs_topic: str, wanted: int | Literal["latest"], sink: str
) -> tuple[int, Division]:
    """A complete epoch's number, and its records' ranges in the sink's topic. Raises ConfigError, SourceError."""
    if epochs_topic not in topics.describe([epochs_topic]):
        raise ConfigError(
            f"there is no topic {epochs_topic!r}: no app of that name has run here with such a batch part",
            where=f"brokers {topics.brokers}",
            hint="check the options 'app', 'stage' and 'prefix'",
        )
    epochs = Epochs()
    with closing(KafkaEpochLog(cluster)) as log:
        run(catch_up(log, TopicPartition(epochs_topic, 0), epochs))
    complete: dict[int, Complete] = {c.opened.epoch: c for c in epochs.kept}
    found = complete.get(max(complete, default=-1) if wanted == "latest" else wanted)
    if found is None:
        known = f"complete epochs: {min(complete)} to {max(complete)}; " if complete else ""
        raise SourceError(
            f"epoch {wanted} is not complete, or no longer on record" if complete else "no epoch is complete yet",
            where=f"topic {epochs_topic}",
            hint=f"{known}falkirk status APP shows the newest epoch",
        )
    begin = {o.topic: o for o in found.opened.outputs}
    end = {o.topic: o for o in found.completed.outputs}
    if sink not in begin or sink not in end:
        raise ConfigError(
            f"the batch part does not write topic {sink!r}", hint=f"it writes {', '.join(t for t in begin if t in end)}"
        )
    ranges = dict(enumerate(zip(begin[sink].ends, end[sink].ends, strict=True)))
    return found.opened.epoch, Division(begin[sink].topic_id, ranges)


def of_epoch(number: int, messages: Sequence[Message]) -> list[Message]:
    """The records of this epoch."""
    written = str(number).encode()
    return [m for m in messages if m.value() is not None and written in headers(m, HEADER)]
