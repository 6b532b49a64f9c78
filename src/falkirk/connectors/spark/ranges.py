"""The committed records of one range of offsets, as a task reads them: some at a time, of any size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from confluent_kafka import Message

from falkirk.checkpoint.ids import Offset, TopicPartition, cluster_of
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.client.errors import Words
from falkirk.connectors.kafka.reading.division import DivisionReader
from falkirk.connectors.spark.division import AGAIN, check_same
from falkirk.errors import FalkirkError

FIRST, MOST = 500, 20_000
"""Offsets of the first chunk, before the records' size is known; and of any chunk."""
SIZE = 16 << 20
"""Bytes of keys and values per chunk, about."""

SAMPLE = 8
"""One of so many records is asked for its size."""

_FETCH = {
    "fetch.message.max.bytes": 4_000_000,
    # What is fetched beyond a slice's end is wasted: the neighbour fetches it again.
    "queued.max.messages.kbytes": 16_384,
}


def chunks(
    cluster: Cluster,
    place: TopicPartition,
    topic_id: str,
    start: int,
    end: int,
    *,
    lost: Words,
    patience: float,
    recreated: str = AGAIN,
) -> Iterator[list[Message]]:
    """The records with start ≤ offset < end, in order, in lists that are not empty. The cuts depend only on the
    records.

    Raises `lost` if records are gone, SourceError if the topic has another id (`recreated` is what to do then), and
    UnreachableError after `patience` seconds without any progress.
    """
    reading = cluster.of(cluster_of(place.topic)).also(_FETCH)
    try:
        with closing(DivisionReader(reading, lost, patience)) as reader:
            size = FIRST
            while start < end:
                until = min(start + size, end)
                messages = reader.read({place: (Offset(start), Offset(until))})[place]
                size = _next(until - start, messages)
                start = until
                if messages:
                    yield messages
    except FalkirkError:
        # A topic that was made again has no such offsets, or others.
        check_same(Topics(cluster), place.topic, topic_id, recreated)
        raise
    # Ids never come back: if it is the range's topic now, it was throughout.
    check_same(Topics(cluster), place.topic, topic_id, recreated)


def headers(message: Message, name: str) -> list[bytes]:
    """The values of a record's headers of one name."""
    found: Any = message.headers() or ()  # the client's types allow for a mapping, which it never gives
    return [value for key, value in found if key == name]


def _next(offsets: int, messages: list[Message]) -> int:
    """How many offsets to read next, by the size of these; a sample of them is enough."""
    some = messages[::SAMPLE]
    size = sum(len(m) + len(m.key() or b"") for m in some) * len(messages) // max(len(some), 1)
    return max(1, min(MOST, 8 * offsets, SIZE * offsets // max(size, 1)))
