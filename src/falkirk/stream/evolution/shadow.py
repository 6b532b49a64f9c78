"""A shadow: what is to be rebuilt of a flow, made beside the version that runs, as an app of its own.

    running version   source ─▶ filter ─▶ group ─▶ sink         goes on, and says what it says
    shadow            source ─▶ filter'─▶ group'                reads what that has read, says nothing, and keeps its state
                                                                under the numbers that the new version will give its tables

When it has come near, the new version takes its rows over, reads the little that is left, and tells the differences
(`falkirk.stream.evolution.rebuilding`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Literal

from falkirk.errors import ConfigError, StateError
from falkirk.stream.dataflow.circuit import Circuit, Evolution
from falkirk.stream.dataflow.topics import Input, Layout, Output
from falkirk.stream.definition.regime_plan import RegimePlan
from falkirk.stream.evolution.rebuild_plan import RebuildPlan
from falkirk.stream.evolution.shadow_circuit import ShadowCircuit, ShadowEvolution
from falkirk.stream.stages.stage import PhysicalStage, SharedTable


@dataclass(frozen=True, eq=False, slots=True)
class ShadowStage:
    """See `falkirk.stream.stages.plan.Stage`: one of which operators are rebuilt, with the schema that it is to have."""

    stage: PhysicalStage
    rebuilt: frozenset[str]
    """Their ids."""
    inputs: tuple[Input, ...]
    """What is read for them: as they are known now, patterns or not."""

    @property
    def id(self) -> str:
        return self.stage.id

    @property
    def shared(self) -> tuple[SharedTable, ...]:
        return ()

    @property
    def outputs(self) -> tuple[Output, ...]:
        return ()

    @property
    def regime(self) -> RegimePlan:
        return self.stage.regime

    @property
    def stateful(self) -> bool:
        return True

    @property
    def calls_others(self) -> bool:
        return False

    @property
    def most_rows(self) -> int | None:
        return self.stage.most_rows

    @property
    def partitioned_by(self) -> Literal["topic", "shards"]:
        return self.stage.partitioned_by

    @property
    def scales(self) -> bool:
        return False

    @property
    def fingerprint(self) -> str:
        return self.stage.fingerprint

    @property
    def state_schema(self) -> str:
        return self.stage.state_schema

    def with_recorded_schema(self, name: str, state_schema: str, rebuilt: Collection[str] = ()) -> ShadowStage:
        if state_schema != self.state_schema:
            raise StateError(
                f"another version of stage {name!r} was being rebuilt beside the app, and is not done",
                where=f"app {self.stage.app}",
                hint="rebuild that version, or delete what was made of it: falkirk delete",
            )
        return self

    def reading(self, inputs: tuple[Input, ...]) -> ShadowStage:
        return replace(self, inputs=inputs)

    def circuit(self, partition: int, layout: Layout) -> Circuit:
        return ShadowCircuit(self.stage, self.rebuilt, partition, layout)

    def evolution(self, circuit: Any) -> Evolution:
        return ShadowEvolution()


def shadow_of(stage: PhysicalStage, rebuilt: Collection[str], needed: RebuildPlan) -> ShadowStage:
    """What rebuilds these operators of a stage beside it. Raises ConfigError where it can only be done in its own steps."""

    def check(good: bool, why: str) -> None:
        if not good:
            raise ConfigError(
                f"{', '.join(sorted(rebuilt))} cannot be rebuilt beside the app: {why}",
                where=f"stage {stage.id}",
                hint=f"rebuild it in place, while its stage waits: falkirk run APP:FLOW --rebuild {min(rebuilt)}",
            )

    check(stage.regime.recovery.logs_changes, "a lazy stage has no changelog that its state could be taken from")
    check(not any(o.reruns for o in needed.operators), "what it is made of is looked up in the app's tables")
    check(
        not any(o.completes for o in stage.keeping if o.id in rebuilt),
        "which of its windows are final follows from what the app has of them",
    )
    check(
        all(r in stage.sources for r in needed.readers), "it reads what another stage sends, which is trimmed behind it"
    )
    among = [tuple(i.topic for i in stage.inputs if i.id == one.id) for one in stage.inputs]
    inputs = [
        replace(i, among=None if i.among is None else topics)
        for i, topics in zip(stage.inputs, among, strict=True)
        if i.id in needed.inputs
    ]
    return ShadowStage(stage, frozenset(rebuilt), tuple(inputs))
