"""A stage's circuit: sources and edges in, operators one after another, sinks and edges out.

slices ──▶ decode ──▶ one frame an input ──▶ operators in the order of definition ──▶ records
                                                │ ▲
                                              put get          one batched call for each stateful operator
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from falkirk.checkpoint.records import SelectiveCheckpoint
from falkirk.errors import SourceError
from falkirk.state.store import State
from falkirk.stream import operators as op
from falkirk.stream.circuit.edges import EdgeReader, EdgeWriter
from falkirk.stream.circuit.watermarks import TaskTimes
from falkirk.stream.dataflow.batch import Batch
from falkirk.stream.dataflow.circuit import StepInput, StepOutput
from falkirk.stream.dataflow.event_time import EventTime
from falkirk.stream.dataflow.failures import Failures
from falkirk.stream.dataflow.hot_keys import HotKeys
from falkirk.stream.dataflow.operator import Flowing, ResultRunner, Runner, TaskContext, joined
from falkirk.stream.dataflow.partitioners import Partitioners
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.dataflow.task_counts import CallCounts, HotKey, SourceWatermark
from falkirk.stream.dataflow.topics import Layout
from falkirk.stream.operators.sources.source import SourceReader
from falkirk.stream.stages.stage import Edge, PhysicalStage

Flows = dict[op.Operator | Edge, Flowing | None]
"""What each operator and input gives in a step."""


class StageCircuit:
    """See `falkirk.stream.dataflow.circuit.Circuit`."""

    def __init__(self, stage: PhysicalStage, partition: int, layout: Layout) -> None:
        self.stage = stage
        self.partition, self.layout = partition, layout
        counts = layout.partitions
        self.failures = Failures(
            stage.app, stage.id, stage.handled, counts, dead_letters=stage.dead_letters, accepts=layout.accepts
        )
        self.readers: dict[op.Source | Edge, SourceReader | EdgeReader] = {
            source: source.reader(value) for source, value in stage.sources.items()
        }
        self.readers |= {edge: EdgeReader(edge) for edge in stage.edges_in}
        self.incoming = {(e.before, e.after): e for e in stage.edges_in}
        self.writers = [EdgeWriter(e, partition, counts) for e in stage.edges_out]
        shard, partitioners = self.first_shard, self._partitioners()
        logs = {output.id: output.topic for output in stage.outputs if output.outlet is not None}
        self.runners: dict[op.Operator, Runner] = {
            o: o.runner(
                TaskContext(self._tables(o), shard, partitioners, counts, layout.accepts, number=partition, logs=logs)
            )
            for o in stage.operators
        }
        self._hot = HotKeys()
        self._event_time: EventTime | None = None
        """Of the last step."""
        self.timed = [self.runners[o] for o in stage.operators if o.timed]
        self.times = TaskTimes(stage, partition, layout, shard) if stage.watermarked else None

    def run(self, step: StepInput, state: State) -> StepOutput:
        """Run one step."""
        run = StepRun(step, state, self.failures)
        times = run.event_time = self.times.begin(state, step) if self.times is not None else None
        flowing: Flows = {i: r.read(run) for i, r in self.readers.items()}
        if self.times is not None:
            self.times.read(run)
        self.flow(run, self.stage.operators, flowing)
        self.send(run, flowing)
        if times is not None:
            times.write(state)
            self._event_time = times
        late = 0 if times is None else times.late_rows
        return StepOutput(run.emitted, run.starts[-1], run.dead, run.skipped, late, self.wake_at(state))

    def flow(self, run: StepRun, operators: Iterable[op.Operator], flowing: Flows) -> None:
        """Run these operators over what flows into them."""
        for operator in operators:
            # A broadcast table does not flow.
            inputs = [flowing.get(self.incoming.get((before, operator), before)) for before in operator.inputs]
            if operator.stateful:
                self._look_for_hot_keys(operator, inputs)
            if self.times is None or run.event_time is None:
                flowing[operator] = self.runners[operator].step(run, *inputs)
                continue
            self.times.enter(run, operator)
            flowing[operator] = self.runners[operator].step(run, *inputs)
            self.times.leave(run, operator)

    def send(self, run: StepRun, flowing: Flows) -> None:
        """Write what goes to other stages."""
        for writer in self.writers:
            out = flowing.get(writer.edge.before)
            batch = joined([out], weighted=writer.edge.changes)
            mark = None if self.times is None else self.times.say(run, writer.edge)
            if batch is not None or mark is not None:
                writer.run(run, batch, mark)

    def visible(self, run: StepRun, sink: op.Sink, keys: Sequence[bytes | None]) -> Batch | None:
        """The rows that a sink of a grouped result has now under these keys; None where it cannot be told from the state."""
        path: list[op.Operator] = []
        after: op.Operator = sink
        before = sink.inputs[0]
        while (before, after) not in self.incoming and before.row_wise and len(before.inputs) == 1:
            path.append(before)
            before, after = before.inputs[0], before
        if not before.keeps_result or (before, after) in self.incoming:
            return None
        found = self.result(before).visible(run.state, sink, sink.key, keys)
        if found is None:
            return None
        flowing: Flowing | None = found
        for operator in reversed(path):
            flowing = self.runners[operator].step(run, flowing)
        return joined([flowing], weighted=True) or Batch(sink.schema.to_frame(), found.meta[:0])

    def result(self, operator: op.Operator) -> ResultRunner:
        """The runner of an operator that keeps its result."""
        runner = self.runners[operator]
        assert isinstance(runner, ResultRunner)
        return runner

    def rewind(self) -> None:
        """Forget what failed in steps that may not count."""
        self.failures.rewind()

    def calls(self) -> Mapping[str, CallCounts]:
        """What operators have called since the last such question."""
        asked = {o.id: runner.calls() for o, runner in self.runners.items() if o.calls_others}
        return {name: counts for name, counts in asked.items() if counts is not None}

    def hot_keys(self) -> Mapping[str, HotKey]:
        """The keys that have most of the rows of operators with state."""
        return self._hot.found()

    def watermarks(self) -> Mapping[str, SourceWatermark]:
        """How far sources are in event time, as of the last step that ran."""
        return {} if self._event_time is None else self._event_time.sources()

    def _look_for_hot_keys(self, operator: op.Operator, inputs: Sequence[Flowing | None]) -> None:
        for port, given in enumerate(inputs):
            if isinstance(given, Batch) and (key := operator.keys(port)) is not None:
                self._hot.look(operator.id, key.columns, given.rows)

    def close(self) -> None:
        """Close what operators have opened outside."""
        for runner in self.runners.values():
            runner.close()

    def wake_at(self, state: State) -> int | None:
        """When the first timer is due."""
        times = [runner.wake_at(state) for runner in self.timed]
        if self.times is not None:
            times.append(self.times.wake_at(state))
        return min((t for t in times if t is not None), default=None)

    def selective(self, state: State) -> SelectiveCheckpoint | None:
        """The selective checkpoint of a state after a step, if all that was complete has left it."""
        remembered = self.stage.remembered
        if self.times is None or remembered is None or any(r.wake_at(state) is not None for r in self.timed):
            return None
        return self.times.selective(state, remembered)

    def _tables(self, operator: op.Operator) -> dict[str, int]:
        return {table: n for (name, table), n in self.stage.tables.items() if name == operator.id}

    @property
    def first_shard(self) -> int:
        """A shard of the task's own, for what belongs to the task rather than to a key."""
        tasks = max((self.layout.partitions.get(e.topic, 1) for e in self.stage.edges_in), default=1)
        return self.stage.first_shard(self.partition, tasks)

    def _partitioners(self) -> Partitioners | None:
        """The check of where the sources' keys lie; None where an exchange has put them there."""
        keyed = [s for s in self.stage.sources if s.key is not None]
        if not keyed or not self.stage.keeping:
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
