"""The topics of a stage: what it reads and writes, and what must be known of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from falkirk.stream.definition.pattern import Pattern

AHEAD = 50 * 60_000
"""Milliseconds by which a time may be after the step's clock. Brokers refuse a record, and its transaction with it, that is
dated more than an hour after their own clocks (message.timestamp.after.max.ms), which may be some minutes off.

A record whose `time=` is further ahead fails. One whose timestamp is, which its producer chose, does not: what is written for
it is dated this much ahead."""


@dataclass(frozen=True, slots=True)
class Input:
    """A topic that a stage reads. A source of several topics is as many inputs of one id, in the order of topics."""

    id: str
    topic: str
    kind: Literal["source", "edge"]
    start: str | int | Mapping[int, int] = "earliest"
    """"earliest", "latest", milliseconds since 1970, or an offset for each partition. Edges: always earliest."""
    headers: bool = False
    """Whether the stage asks for its records' headers."""
    table: bool = False
    """Whether it is looked up in: a task that is taken over reads it to its end before it reads what looks it up."""
    among: tuple[str, ...] | Pattern | None = None
    """The topics of its source, where those may be several: others may join them when the app has run for long."""
    loose: bool = False
    """Whether no key of it need meet another: its partitions go round the stage's tasks, however many there are."""

    @property
    def resolved(self) -> bool:
        """Whether it is a topic: if not, it stands for those that match a pattern, and no cluster has been asked."""
        return not isinstance(self.among, Pattern) or self.topic != str(self.among)


@dataclass(frozen=True, slots=True)
class Output:
    """A topic that a stage writes."""

    id: str
    topic: str
    kind: Literal["sink", "edge", "dead_letters"]


@dataclass(frozen=True, slots=True)
class Accepts:
    """Which records a topic accepts. Its broker refuses others, and the whole transaction with them."""

    keyless: bool = True
    """Whether records without a key: a compacted topic accepts none."""
    after: int | None = None
    """Milliseconds by which a record's timestamp may be after the broker's clock; None: any."""
    before: int | None = None
    """Milliseconds by which it may be before."""

    def dates(self, clock: int) -> tuple[int, int]:
        """The first and the last timestamp that is written there at this time (milliseconds): a sixth of each bound is left,
        for clocks differ. Whatever the topic accepts, none is further ahead than AHEAD.

        >>> Accepts(before=60_000).dates(clock=1_000_000)
        (950000, 4000000)
        """
        first = -(2**63) if self.before is None else clock - self.before * 5 // 6
        return first, clock + (AHEAD if self.after is None else min(AHEAD, self.after * 5 // 6))


@dataclass(frozen=True, slots=True)
class Layout:
    """What a circuit must know of topics to write to them."""

    partitions: Mapping[str, int]
    """How many each has."""
    accepts: Mapping[str, Accepts] = field(default_factory=dict)
    """What each accepts, as far as a broker has been asked."""
