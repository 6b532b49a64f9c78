"""The watermarks of one task: from the times of its inputs, operator by operator, to what it says over its edges.

sources, edges ──▶ times ──▶ watermark of each input ──▶ of each operator: the least of its inputs ──▶ edges
"""

from __future__ import annotations

from collections.abc import Mapping

from falkirk.checkpoint.ids import Millis
from falkirk.checkpoint.records import SelectiveCheckpoint
from falkirk.state.codec import encode_key
from falkirk.state.store import State
from falkirk.stream import operators as op
from falkirk.stream.dataflow.circuit import StepInput
from falkirk.stream.dataflow.event_time import (
    BEGINNING,
    EventTime,
    SenderTimes,
    SentTimes,
    SourceTimes,
    lowest,
    times_in,
)
from falkirk.stream.dataflow.packing import Mark
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.dataflow.topics import Layout
from falkirk.stream.stages.stage import Edge, PhysicalStage


class TaskTimes:
    """What one task knows of event time. Steps keep it in the task's state."""

    def __init__(self, stage: PhysicalStage, partition: int, layout: Layout, first_shard: int) -> None:
        self.incoming = {(e.before, e.after): e for e in stage.edges_in}
        self.sources = list(stage.sources)
        tasks = layout.tasks.get(stage.id) or max((layout.partitions.get(i.topic, 1) for i in stage.inputs), default=1)
        places = read_by(stage, partition, tasks, layout)

        def key(kind: str, name: str) -> bytes:
            return encode_key(stage.time_table, first_shard, [kind, name])

        sources = encode_key(stage.time_table, first_shard, ["source"])
        self.inputs: dict[str, SourceTimes | SenderTimes] = {
            source.id: SourceTimes(key("source", source.id), source.lateness, places.get(source.id, []), sources)
            for source in stage.sources
            if source.lateness is not None
        }
        self.inputs |= {
            e.id: SenderTimes(key("from", e.id), dates_rows=stage.regime.selective is not None)
            for e in stage.edges_in
            if e.timed
        }
        self.outputs = {
            e.id: SentTimes(key("to", e.id), partition, tasks, layout.partitions.get(e.topic, 1))
            for e in stage.edges_out
            if e.timed
        }

    def begin(self, state: State, step: StepInput) -> EventTime:
        """The times at the start of a step."""
        return EventTime(self.inputs, self.outputs, state, step.clock, step.places)

    def read(self, run: StepRun) -> None:
        """All inputs are read: their watermarks are known."""
        assert run.event_time is not None
        run.event_time.read()
        readers: list[op.Source | Edge] = [*self.sources, *self.incoming.values()]
        known = run.event_time.watermarks
        run.passed_on.update({reader: known[reader.id] for reader in readers if reader.id in known})

    def enter(self, run: StepRun, operator: op.Operator) -> None:
        """Before an operator runs: the watermark of its inputs, if all of them have one."""
        several = [run.passed_on.get(self.incoming.get((before, operator), before)) for before in operator.streams]
        known = [w for w in several if w is not None]
        if known and len(known) == len(several):
            run.watermarks[operator] = lowest(known)

    def leave(self, run: StepRun, operator: op.Operator) -> None:
        """After it has run: the watermark of its output."""
        if operator.passes_time and operator in run.watermarks:
            run.passed_on.setdefault(operator, run.watermarks[operator])

    def say(self, run: StepRun, edge: Edge) -> Mark | None:
        """What this task now says of its watermark over an edge."""
        now = run.passed_on.get(edge.before)
        if run.event_time is None or edge.id not in self.outputs or now is None:
            return None
        return run.event_time.say(edge.id, now)

    def wake_at(self, state: State) -> int | None:
        """When a partition becomes idle, or when there is something to say."""
        kept = [*self.inputs.values(), *self.outputs.values()]
        stored = zip(kept, times_in(state, [one.key for one in kept]), strict=True)
        return min((at for one, times in stored if (at := one.wake_at(times)) is not None), default=None)

    def selective(self, state: State, remembered: int) -> SelectiveCheckpoint | None:
        """The times after a step, if all inputs have some. `remembered`: for how long a row counts after its time."""
        keys = [one.key for one in (*self.inputs.values(), *self.outputs.values())]
        values = state.get(keys)
        known = [times for times in times_in(state, keys[: len(self.inputs)]) if times is not None]
        if len(known) < len(self.inputs) or any(times.watermark == BEGINNING for times in known):
            return None
        complete, latest = min(times.watermark for times in known), max(times.latest for times in known)
        kept = tuple((key, value) for key, value in zip(keys, values, strict=True) if value is not None)
        # Results of windows have their end for their time, and for their timestamp the millisecond before.
        return SelectiveCheckpoint(Millis(complete), Millis(latest + 1 + remembered), kept)


def read_by(stage: PhysicalStage, partition: int, tasks: int, layout: Layout) -> Mapping[str, list[tuple[str, int]]]:
    """The existing partitions that a task reads, by input."""
    found: dict[str, list[tuple[str, int]]] = {}
    for i in stage.inputs:
        count = layout.partitions.get(i.topic, 0)
        found.setdefault(i.id, []).extend((i.topic, n) for n in i.read_by(partition, tasks, count) if n < count)
    return found
