"""The physical plan of a flow: stages between exchanges, what each reads and writes, and where its state lives.

`Flow.plan()` makes it from the operators; a worker runs it; `falkirk explain` prints it. It knows no cluster: partition
counts of topics come in with the `Layout`, when a worker has asked the broker.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from falkirk.checkpoint.regimes import Recovery, Stateless
from falkirk.stream.dataflow.circuit import Circuit, Evolution
from falkirk.stream.dataflow.topics import Input, Layout, Output
from falkirk.stream.definition.on_failure import OnFailure
from falkirk.stream.definition.regime_plan import RegimePlan
from falkirk.stream.stages.stage import PhysicalStage, SharedTable

if TYPE_CHECKING:
    from falkirk.stream.batch.stage import BatchStage


USE_IT = "a stream does not change; use the one that its method gives: bids = bids.filter(…)"
"""What to do about a stream that nothing uses."""


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
    def calls_others(self) -> bool:
        """Whether a step may wait for others' answers. Then it has a thread of its own."""
        ...

    @property
    def most_rows(self) -> int | None:
        """How many rows a step takes at most; None: as many as its regime allows."""
        ...

    @property
    def partitioned_by(self) -> Literal["topic", "shards"]:
        """By "topic", partition p of every source is task p's; by "shards", partition p of the edge that it reads is."""
        ...

    @property
    def scales(self) -> bool:
        """Whether it can have any number of tasks: it reads only edges, which place all rows by key."""
        ...

    @property
    def fingerprint(self) -> str: ...
    @property
    def state_schema(self) -> str:
        """The fingerprint in words (`falkirk.state.schema`)."""
        ...

    def with_recorded_schema(self, name: str, state_schema: str, rebuilt: Collection[str] = ()) -> Stage:
        """The same stage, called as it has been, with the schema that follows on the one it had; operators `rebuilt` start
        empty where they keep something else. Raises StateError."""
        ...

    def reading(self, inputs: tuple[Input, ...]) -> Stage:
        """The same stage with these inputs: topics in place of the pattern that they match."""
        ...

    def circuit(self, partition: int, layout: Layout) -> Circuit:
        """The operators, bound to one task."""
        ...

    def evolution(self, circuit: Any) -> Evolution:
        """What that task does beside its steps: it moves, rebuilds and corrects state. `circuit`: one of this stage."""
        ...


def recovery_of(stage: Stage) -> type[Recovery]:
    """How its tasks recover: as its regime says, if they have state."""
    return stage.regime.recovery if stage.stateful else Stateless


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of a flow. It may be all stream or all batch."""

    app: str
    stages: tuple[Stage, ...]
    """Upstream first."""
    batches: tuple[BatchStage, ...] = ()
    """The parts under the batch regime. They read sources alone, and nothing reads from them."""
    on_failure: OnFailure = "app"
    """What stops when a stage or a batch part fails."""
    unused: tuple[str, ...] = ()
    """What to say of streams that are defined, and that nothing uses."""
    tasks: int | None = None
    """Of each stage that scales, if the flow says so."""

    @property
    def planned(self) -> list[PhysicalStage]:
        """The stages as the planner has made them: all, except in a shadow of an app."""
        return [stage for stage in self.stages if isinstance(stage, PhysicalStage)]

    @property
    def planned_parts(self) -> list[PhysicalStage | BatchStage]:
        """Those, and the batch parts."""
        return [*self.planned, *self.batches]

    @property
    def parts(self) -> tuple[Stage | BatchStage, ...]:
        """All parts, streaming or batch."""
        return (*self.stages, *self.batches)

    @property
    def shared(self) -> tuple[SharedTable, ...]:
        """All broadcast tables."""
        return tuple(dict.fromkeys(table for stage in self.stages for table in stage.shared))
