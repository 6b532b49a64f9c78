"""The physical plan of a flow: stages between exchanges, what each reads and writes, and where its state lives.

`Flow.plan()` makes it from the operators; a worker runs it; `falkirk explain` prints it. It knows no cluster: partition
counts of topics come in with the `Layout`, when a worker has asked the broker.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
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
        """The same stage, called as it has been, with the schema that follows on the one it had; operators `rebuilt` begin
        anew where they keep something else. Raises StateError."""
        ...

    def reading(self, inputs: tuple[Input, ...]) -> Stage:
        """The same stage with these inputs: topics in place of the pattern that they match."""
        ...

    def circuit(self, partition: int, layout: Layout) -> Circuit:
        """The operators, bound to one task."""
        ...


@dataclass(frozen=True, slots=True)
class Layout:
    """How many partitions each topic has: what a circuit must know to place its output."""

    partitions: Mapping[str, int]
    """By topic."""


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
