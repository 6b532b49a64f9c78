"""A stage's circuit: sources and edges in, operators one after another, sinks and edges out.

slices ──▶ decode ──▶ one frame an input ──▶ operators in the order of definition ──▶ records
                                                │ ▲
                                              put get          one batched call for each stateful operator
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from falkirk.errors import SourceError
from falkirk.state.shards import shard_range
from falkirk.stream import operators as op
from falkirk.stream.circuit import Again, Corrected, Moving, Speech, State, StepInput, StepOutput
from falkirk.stream.engine import rows
from falkirk.stream.engine.batch import Batch, Updates
from falkirk.stream.engine.correcting import corrected_outputs
from falkirk.stream.engine.edges import EdgeReader, EdgeWriter
from falkirk.stream.engine.failures import Failures
from falkirk.stream.engine.groups import GroupRunner
from falkirk.stream.engine.lookups import Joining
from falkirk.stream.engine.moving import Mover
from falkirk.stream.engine.partitioners import Partitioners
from falkirk.stream.engine.processes import ProcessRunner
from falkirk.stream.engine.rebuilding import Flows, Rebuilder
from falkirk.stream.engine.sinks import SinkRunner
from falkirk.stream.engine.sources import SourceReader
from falkirk.stream.engine.step import StepRun
from falkirk.stream.engine.tables import reader_of
from falkirk.stream.forms import GATHERING, ROW_WISE
from falkirk.stream.plan import Layout
from falkirk.stream.stage import Edge, PhysicalStage

Flowing = Batch | Updates
Runner = Callable[[StepRun, Batch], Flowing | None]


class StageCircuit:
    """See `falkirk.stream.circuit.Circuit`."""

    def __init__(self, stage: PhysicalStage, partition: int, layout: Layout) -> None:
        self.stage = stage
        self.partition, self.layout = partition, layout
        counts = layout.partitions
        self.failures = Failures(
            stage.app, stage.id, stage.handled, counts, dead_letters=stage.dead_letters, accepts=layout.accepts
        )
        self.readers: dict[op.Source | Edge, SourceReader | EdgeReader] = {
            source: reader_of(source)(source, value) for source, value in stage.sources.items()
        }
        self.readers |= {edge: EdgeReader(edge) for edge in stage.edges_in}
        self.incoming = {(e.before, e.after): e for e in stage.edges_in}
        self.writers = [EdgeWriter(e, partition, counts) for e in stage.edges_out]
        self.sinks = {
            o: SinkRunner(o, counts.get(o.topic, 1), layout.accepts.get(o.topic))
            for o in stage.operators
            if isinstance(o, op.Sink)
        }
        self.mover = Mover(stage, self._first_shard())
        self.rebuilder = Rebuilder(self, self._first_shard())
        self.processes: dict[op.Operator, ProcessRunner] = {}
        self.lookups: dict[op.Operator, Joining] = {}
        self.groups: dict[op.Operator, GroupRunner] = {}
        self.runners: dict[op.Operator, Runner] = {}
        partitioners = self._partitioners()
        for o in stage.operators:
            if type(o) in ROW_WISE:
                self.runners[o] = ROW_WISE[type(o)](o)
            elif type(o) in GATHERING:
                runner = GATHERING[type(o)].stream(o, self._tables(o), self._first_shard(), partitioners)
                if isinstance(runner, ProcessRunner):
                    self.processes[o] = runner
                elif isinstance(runner, Joining):
                    self.lookups[o] = runner
                else:
                    self.groups[o] = runner
                    self.runners[o] = runner.run

    def run(self, step: StepInput, state: State) -> StepOutput:
        """Run one step."""
        run = StepRun(step, state, self.failures)
        flowing: Flows = {i: r.read(run) for i, r in self.readers.items()}
        self.flow(run, self.stage.operators, flowing)
        self.send(run, flowing)
        return StepOutput(run.emitted, run.starts[-1], run.dead, run.skipped, self.wake_at(state))

    def flow(self, run: StepRun, operators: Iterable[op.Operator], flowing: Flows) -> None:
        """Run these operators over what flows into them."""
        for operator in operators:
            # A broadcast table does not flow.
            inputs = [flowing.get(self.incoming.get((before, operator), before)) for before in operator.inputs]
            if isinstance(operator, op.Errors):
                flowing[operator] = run.errors.get(operator.inputs[0])
                continue
            if operator in self.lookups:
                rows, table = inputs
                flowing[operator] = self.lookups[operator].run(run, rows, table)
                continue
            present = [i for i in inputs if i is not None and len(i)]
            if operator in self.sinks:
                if present:
                    self.sinks[operator].run(run, present[0])
                continue
            batch = _joined(present, weighted=any(before.changes for before in operator.inputs))
            if operator in self.processes:
                flowing[operator] = self.processes[operator].run(run, batch)
            else:
                flowing[operator] = None if batch is None else self.runners[operator](run, batch)

    def send(self, run: StepRun, flowing: Flows) -> None:
        """Write what goes to other stages."""
        for writer in self.writers:
            out = flowing.get(writer.edge.before)
            batch = None if out is None else _joined([out], weighted=writer.edge.changes)
            if batch is not None:
                writer.run(run, batch)

    def tables(self) -> frozenset[str]:
        """The sinks of grouped results."""
        return frozenset(sink.id for sink in self.sinks if sink.inputs[0].changes)

    def correct(self, should: Speech, said: Speech, clock: int, state: State) -> Corrected:
        """What makes up for the difference between what was said and what should have been."""
        run = StepRun(StepInput(clock, []), state, self.failures)
        corrected = corrected_outputs(self.stage, should, said, lambda sink, keys: self._visible(run, sink, keys))
        self.failures.rewind()
        return corrected

    def _visible(self, run: StepRun, sink: op.Sink, keys: Sequence[bytes | None]) -> Batch | None:
        """The rows that a sink of a grouped result has now under these keys; None where it cannot be told from the state."""
        path: list[op.Operator] = []
        after: op.Operator = sink
        before = sink.inputs[0]
        while (before, after) not in self.incoming and type(before) in ROW_WISE and len(before.inputs) == 1:
            path.append(before)
            before, after = before.inputs[0], before
        group = self.groups.get(before)
        if group is None or (before, after) in self.incoming:
            return None
        batch = group.visible(run.state, sink, keys)
        for operator in reversed(path):
            found = None if batch is None else self.runners[operator](run, batch)
            batch = found.zset() if isinstance(found, Updates) else found
        return batch

    def rewind(self) -> None:
        """Forget what failed in steps that may not count."""
        self.failures.rewind()

    def moving(self, state: State) -> bool:
        """Whether there may be state of an earlier version of the flow."""
        return self.mover.moving(state) or self.rebuilder.rebuilding(state)

    def again(self, state: State) -> Again | None:
        """What is read again next: not before all is moved that moves."""
        return None if self.mover.moving(state) else self.rebuilder.again(state)

    def move(self, step: StepInput, state: State, moving: Moving) -> StepOutput:
        """Move some of it, or rebuild it."""
        if self.mover.moving(state):
            self.mover.move(state)
            out = StepOutput()
        else:
            out = self.rebuilder.step(step, state, moving)
        out.wake_at, out.moving = self.wake_at(state), self.moving(state)
        return out

    def wake_at(self, state: State) -> int | None:
        """When the first timer is due."""
        times = [process.wake_at(state) for process in self.processes.values()]
        return min((t for t in times if t is not None), default=None)

    def _tables(self, operator: op.Operator) -> dict[str, int]:
        return {table: n for (name, table), n in self.stage.tables.items() if name == operator.id}

    def _first_shard(self) -> int:
        """A shard of the task's own, for what belongs to the task rather than to a key. Where a topic's partitions cut
        the keys, every task has all shards."""
        if self.stage.partitioned_by == "topic":
            return 0
        tasks = max(self.layout.partitions.get(e.topic, 1) for e in self.stage.edges_in)
        return shard_range(self.partition, tasks).start

    def _partitioners(self) -> Partitioners | None:
        """The check of where the sources' keys lie; None where an exchange has put them there."""
        keyed = [s for s in self.stage.sources if s.key is not None]
        if not keyed or not self.stage.stateful:
            return None
        where = ", ".join(s.where for s in keyed)
        names = {s.id for s in keyed}
        counts = {self.layout.partitions.get(i.topic, 1) for i in self.stage.inputs if i.id in names}
        if len(counts) > 1:
            raise SourceError(
                f"the topics have {' and '.join(map(str, sorted(counts)))} partitions, so a key of one is not where it "
                "is in the other",
                where=where,
                hint="give the sources repartition=True",
            )
        return Partitioners(where, self.partition, counts.pop())


def _joined(flowing: Sequence[Flowing], *, weighted: bool) -> Batch | None:
    """All of it as one batch, with weights where any of it could have them; None if there is nothing."""
    batches = [f.zset() if isinstance(f, Updates) else f for f in flowing]
    batches = [b for b in batches if len(b)]
    return rows.concatenated(batches, weighted=weighted) if batches else None
