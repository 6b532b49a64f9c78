"""What a shadow runs: of a stage, only that from which operators are rebuilt."""

from __future__ import annotations

from collections.abc import Mapping

from falkirk.checkpoint.records import SelectiveCheckpoint
from falkirk.state.store import State
from falkirk.stream.circuit.circuit import StageCircuit
from falkirk.stream.dataflow.circuit import Corrected, Moving, OutputRecords, RereadInput, StepInput, StepOutput
from falkirk.stream.dataflow.task_counts import CallCounts, HotKey, SourceWatermark
from falkirk.stream.dataflow.topics import Layout
from falkirk.stream.evolution.rebuilding import Rebuilder
from falkirk.stream.stages.stage import PhysicalStage


class ShadowCircuit:
    """See `falkirk.stream.dataflow.circuit.Circuit`. Time is that of the records, and no timer is due by itself."""

    def __init__(self, stage: PhysicalStage, rebuilt: frozenset[str], partition: int, layout: Layout) -> None:
        self.circuit = StageCircuit(stage, partition, layout)
        self.rebuilder = Rebuilder(self.circuit, self.circuit.first_shard, rebuilt)

    def run(self, step: StepInput, state: State) -> StepOutput:
        """Read on."""
        self.rebuilder.ahead(step, state)
        return StepOutput()

    def wake_at(self, state: State) -> int | None:
        """No timer is due."""
        return None

    def selective(self, state: State) -> SelectiveCheckpoint | None:
        """A shadow is eager."""
        return None

    def rewind(self) -> None:
        """See `Circuit.rewind`."""
        self.circuit.rewind()

    def calls(self) -> Mapping[str, CallCounts]:
        """Operators that call others are behind no state, so that none is rebuilt from them."""
        return {}

    def hot_keys(self) -> Mapping[str, HotKey]:
        """See `Circuit.hot_keys`."""
        return self.circuit.hot_keys()

    def watermarks(self) -> Mapping[str, SourceWatermark]:
        """See `Circuit.watermarks`."""
        return self.circuit.watermarks()

    def close(self) -> None:
        """See `Circuit.close`."""
        self.circuit.close()


class ShadowEvolution:
    """See `falkirk.stream.dataflow.circuit.Evolution`: all state of a shadow is its own, and it writes nothing."""

    def moving(self, state: State) -> bool:
        return False

    def again(self, state: State) -> RereadInput | None:
        return None

    def move(self, step: StepInput, state: State, moving: Moving) -> StepOutput:
        raise AssertionError("a shadow has nothing to move")

    def tables(self) -> frozenset[str]:
        return frozenset()

    def correct(self, should: OutputRecords, published: OutputRecords, clock: int, state: State) -> Corrected:
        raise AssertionError("a shadow has written nothing")
