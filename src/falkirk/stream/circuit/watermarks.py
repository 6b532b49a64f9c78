"""The watermarks of one task: from the times of its inputs, operator by operator.

sources ──▶ times ──▶ watermark of each source ──▶ of each operator's inputs: the least of them
"""

from __future__ import annotations

from collections.abc import Mapping

from falkirk.state.codec import encode_key
from falkirk.stream import operators as op
from falkirk.stream.dataflow.circuit import State
from falkirk.stream.dataflow.event_time import EventTime, SourceTimes, Watermark, lowest, times_in
from falkirk.stream.dataflow.topics import Layout
from falkirk.stream.stages.stage import PhysicalStage


class TaskTimes:
    """What one task knows of event time. Steps keep it in the task's state."""

    def __init__(self, stage: PhysicalStage, partition: int, layout: Layout, first_shard: int) -> None:
        self.stage = stage
        places = read_by(stage, partition, layout)
        self.sources = {
            source.id: SourceTimes(
                encode_key(stage.time_table, first_shard, [source.id]), source.lateness, places.get(source.id, [])
            )
            for source in stage.sources
            if source.lateness is not None
        }

    def begin(self, state: State, clock: int) -> EventTime:
        """The times at the start of a step."""
        return EventTime(self.sources, state, clock)

    def watermarks(self, times: EventTime) -> dict[op.Operator, Watermark]:
        """The watermark of the inputs of each operator of the stage that has one."""
        given: dict[op.Operator, Watermark] = {
            source: times.watermarks[source.id] for source in self.stage.sources if source.id in times.watermarks
        }
        found: dict[op.Operator, Watermark] = {}
        for operator in self.stage.operators:
            several = [given.get(before) for before in operator.streams]
            known = [w for w in several if w is not None]
            if known and len(known) == len(several):
                found[operator] = lowest(known)
                if operator.passes_time:
                    given[operator] = found[operator]
        return found

    def wake_at(self, state: State) -> int | None:
        """When a partition becomes idle."""
        sources = list(self.sources.values())
        stored = zip(sources, times_in(state, [source.key for source in sources]), strict=True)
        return min((at for source, times in stored if (at := source.wake_at(times)) is not None), default=None)


def read_by(stage: PhysicalStage, partition: int, layout: Layout) -> Mapping[str, list[tuple[str, int]]]:
    """The partitions that a task reads, by input (as `falkirk.runtime.app.app.lay_out` divides them)."""
    found: dict[str, list[tuple[str, int]]] = {}
    tasks = layout.tasks.get(stage.id) or max((layout.partitions.get(i.topic, 1) for i in stage.inputs), default=1)
    for i in stage.inputs:
        count = layout.partitions.get(i.topic, 0)
        numbers = range(partition, count, tasks) if i.loose else range(partition, min(partition + 1, count))
        found.setdefault(i.id, []).extend((i.topic, n) for n in numbers)
    return found
