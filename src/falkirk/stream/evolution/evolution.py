"""What a task does beside its steps when the code of its stage has changed.

    moving      rows that earlier versions of operators kept go to where they are kept now      moving.py
    rebuilt     state is made again from the inputs, and the difference is written              rebuilding.py
    corrected   recorded steps would say something else now: what makes up for it is written    correcting.py

A circuit knows nothing of it: it runs steps. Moves and rebuilds are steps that read nothing new.
"""

from __future__ import annotations

from falkirk.state.store import State
from falkirk.stream.circuit.circuit import StageCircuit
from falkirk.stream.dataflow.circuit import Corrected, Moving, OutputRecords, RereadInput, StepInput, StepOutput
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.evolution.correcting import corrected_outputs
from falkirk.stream.evolution.moving import StateMigrator
from falkirk.stream.evolution.rebuilding import Rebuilder
from falkirk.stream.operators.sinks.sink import Sink


class StageEvolution:
    """Of one task: see `falkirk.stream.dataflow.circuit.Evolution`."""

    def __init__(self, circuit: StageCircuit, rows_moved: int | None = None) -> None:
        """`rows_moved`: in a step, at most. None: as many as is usual."""
        self.circuit = circuit
        self.migrator = StateMigrator(circuit.stage, circuit.first_shard, rows_moved)
        self.rebuilder = Rebuilder(circuit, circuit.first_shard)

    def moving(self, state: State) -> bool:
        """Whether there may be state of an earlier version of the flow."""
        return self.migrator.moving(state) or self.rebuilder.rebuilding(state)

    def again(self, state: State) -> RereadInput | None:
        """What is read again next: nothing before all rows are moved."""
        return None if self.migrator.moving(state) else self.rebuilder.reread_input(state)

    def move(self, step: StepInput, state: State, moving: Moving) -> StepOutput:
        """Move some of it, or rebuild it."""
        if self.migrator.moving(state):
            self.migrator.move(state)
            out = StepOutput()
        else:
            out = self.rebuilder.step(step, state, moving)
        out.wake_at, out.moving = self.circuit.wake_at(state), self.moving(state)
        return out

    def tables(self) -> frozenset[str]:
        """The sinks of grouped results. Of a sink that writes each change, every record counts."""
        changing = [o for o in self.circuit.stage.operators if o.role == "sink" and o.inputs[0].changes]
        return frozenset(o.id for o in changing if not (isinstance(o, Sink) and o.is_log))

    def correct(self, should: OutputRecords, published: OutputRecords, clock: int, state: State) -> Corrected:
        """The records that correct the difference between the published and the expected output."""
        circuit = self.circuit
        run = StepRun(StepInput(clock, []), state, circuit.failures)
        corrected = corrected_outputs(
            circuit.stage, should, published, lambda sink, keys: circuit.visible(run, sink, keys)
        )
        circuit.failures.rewind()
        return corrected
