"""Numbers and names of different kinds are different types."""

from __future__ import annotations

from typing import NamedTuple, NewType

Step = NewType("Step", int)
"""A run of one task's circuit: 0, 1, 2… without gap (seed 002, Input)."""

Epoch = NewType("Epoch", int)
"""A run of a batch part over one recorded division: 0, 1, 2… without gap."""

Offset = NewType("Offset", int)
"""A position in one partition of a topic."""

Millis = NewType("Millis", int)
"""Wall time in milliseconds since 1970, UTC."""

Version = NewType("Version", int)
"""A numbered, openable snapshot of a task's state (seed 002, Database)."""

Nonce = NewType("Nonce", str)
"""A fresh random word: one ownership of one task, from its name to its release or loss."""

OwnerId = NewType("OwnerId", str)
"""A worker's transactional id. Stable across restarts, so that a restart ends what its predecessor left open."""


class TaskId(NamedTuple):
    """One partition of one stage: the unit of ownership, state and recovery.

    >>> str(TaskId("stats", 3))
    'stats/3'
    """

    stage: str
    partition: int

    def __str__(self) -> str:
        return f"{self.stage}/{self.partition}"


class InputPartition(NamedTuple):
    """One partition of one input of a stage, as a division names it.

    `topic_id` is Kafka's UUID of the topic: a topic deleted and made anew has another, and its offsets mean other records.
    """

    cluster: str
    topic: str
    topic_id: str
    partition: int


class TopicPartition(NamedTuple):
    """One partition of one topic of the app's own cluster."""

    topic: str
    partition: int
