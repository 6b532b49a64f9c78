"""The input and output topics of a stage, and their properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from falkirk.stream.definition.outlets import OutletPlan
from falkirk.stream.definition.pattern import Pattern

AHEAD = 50 * 60_000
"""Milliseconds by which a time may be after the step's clock. Brokers reject a record whose timestamp is more than an hour
after their own clocks (message.timestamp.after.max.ms), and its transaction. Their clocks may be some minutes off.

If a record's `time=` is further ahead, the record fails. If the producer's timestamp is further ahead, the record does not
fail: its outputs get a timestamp that is this much ahead."""
OVERHEAD = 512
"""Bytes that a record's headers and its batch add to key and value, at most."""


@dataclass(frozen=True, slots=True)
class Made:
    """How the app makes a topic that it reads, if it does not exist. Other sources must exist."""

    partitions: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Input:
    """A topic that a stage reads. A source of several topics has one input for each, with one id, in the order of topics."""

    id: str
    topic: str
    kind: Literal["source", "edge"]
    start: str | int | Mapping[int, int] = "earliest"
    """"earliest", "latest", milliseconds since 1970, or an offset for each partition. Edges: always earliest."""
    headers: bool = False
    """Whether the stage asks for its records' headers."""
    table: bool = False
    """Whether it is a lookup table. After a take-over, a task first reads it to its end, then the stream that looks it up."""
    among: tuple[str, ...] | Pattern | None = None
    """The topics of its source, if there can be several. More topics can appear while the app runs."""
    loose: bool = False
    """Whether rows of one key need not be in one task. Its partitions then go to the stage's tasks round-robin."""
    grows: bool = False
    """Whether its topic may get more partitions while the app runs, or between two runs."""
    dated: bool = False
    """Whether its rows have the time of a column, and not that of their records."""
    made: Made | None = None
    """How the app makes the topic; None: it must exist."""
    every: bool = False
    """Whether each of its records counts, so that compaction must not remove any."""

    def read_by(self, task: int, tasks: int, partitions: int) -> range:
        """The topic's partitions that one of the stage's tasks reads."""
        return range(task, partitions, tasks) if self.loose else range(task, task + 1)

    @property
    def resolved(self) -> bool:
        """Whether it is a topic. If not, it is a pattern whose topics are not known yet."""
        return not isinstance(self.among, Pattern) or self.topic != str(self.among)


@dataclass(frozen=True, slots=True)
class Output:
    """A topic that a stage writes."""

    id: str
    topic: str
    kind: Literal["sink", "edge", "dead_letters"]
    outlet: OutletPlan | None = None
    """Where its rows go outside Kafka, if they do. Nothing else reads the topic."""
    answers: Mapping[str, str] | None = None
    """For answers to requests over HTTP, which gateways read: the settings of the topic if the app makes it."""


@dataclass(frozen=True, slots=True)
class Accepts:
    """Which records a topic accepts. The broker rejects any other record, and its whole transaction."""

    keyless: bool = True
    """Whether it accepts records without a key. A compacted topic does not."""
    after: int | None = None
    """Milliseconds by which a record's timestamp may be after the broker's clock; None: any."""
    before: int | None = None
    """Milliseconds by which it may be before."""
    largest: int | None = None
    """The topic's max.message.bytes; None: any."""

    def fits(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> bool:
        """Whether records of these keys and values are small enough, all of them.

        >>> Accepts(largest=1000).fits([None, b"7"], [b"x" * 400, None]), Accepts(largest=1000).fits([b"7"], [b"x" * 500])
        (True, False)
        """
        return self.largest is None or all_fit(keys, values, self.largest)

    def dates(self, clock: int) -> tuple[int, int]:
        """The first and the last timestamp to write to the topic at this time (milliseconds). They keep a distance of a sixth
        of each bound, because clocks differ. No timestamp is further ahead than AHEAD.

        >>> Accepts(before=60_000).dates(clock=1_000_000)
        (950000, 4000000)
        """
        first = -(2**63) if self.before is None else clock - self.before * 5 // 6
        return first, clock + (AHEAD if self.after is None else min(AHEAD, self.after * 5 // 6))


def sizes_of(keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> list[int]:
    """The bytes that each record takes, at most."""
    return [len(v or b"") + len(k or b"") + OVERHEAD for k, v in zip(keys, values, strict=True)]


def all_fit(keys: Sequence[bytes | None], values: Sequence[bytes | None], limit: int) -> bool:
    """Whether no record takes more than `limit` bytes."""
    # The largest key and the largest value, together, are found much faster than the largest record.
    most = max(map(len, filter(None, keys)), default=0) + max(map(len, filter(None, values)), default=0)
    return most + OVERHEAD <= limit or max(sizes_of(keys, values)) <= limit


@dataclass(frozen=True, slots=True)
class Layout:
    """The properties of topics that a circuit needs to write to them."""

    partitions: Mapping[str, int]
    """The number of partitions of each topic."""
    accepts: Mapping[str, Accepts] = field(default_factory=dict)
    """Which records each topic accepts, if a broker has answered."""
    tasks: Mapping[str, int] = field(default_factory=dict)
    """The number of tasks of each stage."""
