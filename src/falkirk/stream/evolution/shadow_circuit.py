"""What a shadow runs: of a stage, that alone from which operators are rebuilt."""

from __future__ import annotations

from falkirk.stream.circuit.circuit import StageCircuit
from falkirk.stream.dataflow.circuit import State, StepInput, StepOutput
from falkirk.stream.dataflow.topics import Layout
from falkirk.stream.evolution.rebuilding import Rebuilder
from falkirk.stream.evolution.shadow import ShadowStage


class ShadowCircuit(StageCircuit):
    """See `falkirk.stream.dataflow.circuit.Circuit`. Time is that of the records, and nothing is due but when one comes."""

    def __init__(self, shadow: ShadowStage, partition: int, layout: Layout) -> None:
        super().__init__(shadow.stage, partition, layout)
        self.rebuilder = Rebuilder(self, self._first_shard(), shadow.rebuilt)

    def run(self, step: StepInput, state: State) -> StepOutput:
        """Read on."""
        self.rebuilder.ahead(step, state)
        return StepOutput()

    def tables(self) -> frozenset[str]:
        """Nothing is said."""
        return frozenset()

    def moving(self, state: State) -> bool:
        """It has no state of an earlier version."""
        return False

    def wake_at(self, state: State) -> int | None:
        """Nothing is due."""
        return None
