"""Different kinds of numbers and names are different types."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple, NewType, Self

Step = NewType("Step", int)
"""A run of a task's circuit: 0, 1, 2… without gaps (seed 002, Input)."""

Epoch = NewType("Epoch", int)
"""A batch part's run over one recorded division: 0, 1, 2… without gaps."""

Offset = NewType("Offset", int)
"""A position in one partition of a topic."""


def after(record: int) -> Offset:
    """The position behind a record.

    >>> after(Offset(41))
    42
    """
    return Offset(record + 1)


Millis = NewType("Millis", int)
"""Wall time in milliseconds since 1970, UTC."""

Nonce = NewType("Nonce", str)
"""A fresh random word. It names one ownership of one task, until its release or loss."""

OwnerId = NewType("OwnerId", str)
"""A transactional id: of a worker's commit domain, for example. It stays the same, so that a restart ends what its
predecessor left open."""


def domain_owner(worker: str, stage: str) -> OwnerId:
    """The transactional id with which a worker's tasks of a stage commit.

    >>> domain_owner("app.59aa3bd2cc2b-1", "stats")
    'app.59aa3bd2cc2b-1/stats'
    """
    return OwnerId(f"{worker}/{stage}")


def worker_of(owner: OwnerId) -> str:
    """The worker whose transactional id this is.

    >>> worker_of(OwnerId("app.59aa3bd2cc2b-1/stats")), worker_of(OwnerId("app.59aa3bd2cc2b-1"))
    ('app.59aa3bd2cc2b-1', 'app.59aa3bd2cc2b-1')
    """
    return owner.partition("/")[0]


class TaskId(NamedTuple):
    """One partition of one stage: the unit of ownership, state and recovery.

    >>> str(TaskId("stats", 3))
    'stats/3'
    """

    stage: str
    partition: int

    def __str__(self) -> str:
        return f"{self.stage}/{self.partition}"


CLUSTER = re.compile(r"[a-z0-9][a-z0-9-]{0,49}")
"""Valid names of clusters. In environment variables the name is in capitals, with an underscore for a dash."""


def address(cluster: str, topic: str) -> str:
    """A topic's address in an app: its name. In another cluster, that cluster's name stands before it. No topic name has a
    colon.

    >>> address("", "bids"), address("sales", "bids")
    ('bids', 'sales:bids')
    """
    return f"{cluster}:{topic}" if cluster else topic


def cluster_of(topic: str) -> str:
    """The cluster in a topic's address; "" is the app's own. (A pattern that stands for topics may have colons.)

    >>> cluster_of("sales:bids"), cluster_of("bids"), cluster_of("/(?:bids|asks)/")
    ('sales', '', '')
    """
    return _parts(topic)[0]


def name_of(topic: str) -> str:
    """The name that a topic's address has in its cluster."""
    return _parts(topic)[1]


def _parts(topic: str) -> tuple[str, str]:
    cluster, colon, name = topic.partition(":")
    return (cluster, name) if colon and CLUSTER.fullmatch(cluster) else ("", topic)


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    """Its address: "bids", "sales:bids"."""
    partition: int


class InputPartition(NamedTuple):
    """One partition of one input of a stage, as a division names it.

    `topic_id` is Kafka's UUID of the topic: a topic deleted and made again has another, and its offsets other records.
    """

    cluster: str
    """The name that the flow gives it; "" is the app's own."""
    topic: str
    topic_id: str
    partition: int

    @property
    def place(self) -> TopicPartition:
        """Where it is read.

        >>> InputPartition("sales", "bids", "id", 3).place
        TopicPartition(topic='sales:bids', partition=3)
        """
        return TopicPartition(address(self.cluster, self.topic), self.partition)

    @classmethod
    def at(cls, place: TopicPartition, topic_id: str) -> Self:
        """The partition that is read there."""
        return cls(cluster_of(place.topic), name_of(place.topic), topic_id, place.partition)


def places_in(partitions: Iterable[InputPartition]) -> frozenset[TopicPartition]:
    """Where they are read.

    >>> places_in([InputPartition("", "bids", "id", 3)])
    frozenset({TopicPartition(topic='bids', partition=3)})
    """
    return frozenset(p.place for p in partitions)
