"""The physical plan of a flow: stages between exchanges, what each reads and writes, and where its state lives.

`Flow.plan()` makes it from the operators; a worker runs it; `falkirk explain` prints it. It knows no cluster: partition
counts of topics come in with the `Layout`, when a worker has asked the broker.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from falkirk.stream.circuit import Circuit
from falkirk.stream.pattern import Pattern

if TYPE_CHECKING:
    from falkirk.stream.batch.stage import BatchStage
    from falkirk.stream.stage import SharedTable


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
class RegimePlan:
    """A regime, resolved."""

    kind: Literal["eager", "lazy"]
    step: timedelta
    """The longest that a step stays open."""
    every: timedelta
    """How often a version is made."""
    max_rows: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The batch regime, resolved."""

    kind: ClassVar[Literal["batch"]] = "batch"
    every: timedelta | int | None
    """An epoch opens after this time, or this number of new records; None: on demand."""
    history: Literal["whole", "new"]
    """What an epoch reads: from the sources' start, or from the last epoch's end."""


class Stage(Protocol):
    """A maximal set of operators fused between exchanges."""

    @property
    def id(self) -> str: ...
    @property
    def inputs(self) -> tuple[Input, ...]: ...
    @property
    def shared(self) -> tuple[SharedTable, ...]:
        """The broadcast tables that it looks up, which are no inputs of its tasks."""
        ...

    @property
    def outputs(self) -> tuple[Output, ...]: ...
    @property
    def regime(self) -> RegimePlan: ...
    @property
    def stateful(self) -> bool: ...
    @property
    def partitioned_by(self) -> Literal["topic", "shards"]:
        """By "topic", partition p of every source is task p's; by "shards", partition p of the edge that it reads is."""
        ...

    @property
    def fingerprint(self) -> str: ...
    @property
    def state_schema(self) -> str:
        """The fingerprint in words (`falkirk.state.schema`)."""
        ...

    def known_as(self, name: str, state_schema: str, rebuilt: Collection[str] = ()) -> Stage:
        """The same stage, called as it has been, with the schema that follows on the one it had; operators `rebuilt` start
        empty where they keep something else. Raises StateError."""
        ...

    def reading(self, inputs: tuple[Input, ...]) -> Stage:
        """The same stage with these inputs: topics in place of the pattern that they match."""
        ...

    def circuit(self, partition: int, layout: Layout) -> Circuit:
        """The operators, bound to one task."""
        ...


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


AHEAD = 50 * 60_000
"""Milliseconds by which a time may be after the step's clock. Brokers refuse a record, and its transaction with it, that is
dated more than an hour after their own clocks (message.timestamp.after.max.ms), which may be some minutes off.

A record whose `time=` is further ahead fails. One whose timestamp is, which its producer chose, does not: what is written for
it is dated this much ahead."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What a circuit must know of topics to write to them."""

    partitions: Mapping[str, int]
    """How many each has."""
    accepts: Mapping[str, Accepts] = field(default_factory=dict)
    """What each accepts, as far as a broker has been asked."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of a flow. It may be all stream or all batch."""

    app: str
    stages: tuple[Stage, ...]
    """Upstream first."""
    batches: tuple[BatchStage, ...] = ()
    """The parts under the batch regime. They read sources alone, and nothing reads from them."""

    @property
    def shared(self) -> tuple[SharedTable, ...]:
        """All broadcast tables."""
        return tuple(dict.fromkeys(table for stage in self.stages for table in stage.shared))
