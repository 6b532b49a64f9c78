"""What a worker reads for its tasks: their own inputs, with as many consumers as needed, and the broadcast tables.

`intake` draws which of them a task reads, and when."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.reading.sources import SourceReaders
from falkirk.errors import SourceError
from falkirk.runtime.app.app import App
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.worker.reading.broadcast import SharedTables, open_tables
from falkirk.runtime.worker.reading.edges import EdgeReader, OpenEdges
from falkirk.runtime.worker.reading.intake import Intake
from falkirk.runtime.worker.reading.rereading import KafkaRereader
from falkirk.runtime.worker.reading.unreadable import UnreadableInputs
from falkirk.runtime.worker.reading.upstream import UpstreamTables
from falkirk.runtime.worker.task import RunningTask
from falkirk.runtime.worker.task_ports import Rereader
from falkirk.state.engine import Memory
from falkirk.stream.stages.plan import Stage

DRAINED = 500
"""A poll for input that gave fewer messages than this found no backlog."""

SLOW = timedelta(seconds=1)
"""Steps that may stay open for so long do not need each record at once. A broker under load then answers a tenth of the
requests for them, and the quick parts beside them sooner."""


class Arrival(NamedTuple):
    """What one poll has found."""

    tasks: list[RunningTask]
    """Those that were given messages."""
    behind: set[str]
    """The stages for which there may be more."""


class Inputs:
    """The inputs of one worker. A poll costs by what arrives, not by the number of tasks."""

    def __init__(
        self,
        stages: Sequence[Stage],
        settings: Settings,
        edges: OpenEdges,
        tables: SharedTables,
        again: Rereader,
        upstream: UpstreamTables | None = None,
    ) -> None:
        """`upstream`: None if all that is before a table has arrived at once."""
        self.tables, self.again, self._upstream = tables, again, upstream
        self._lanes = lanes_of(stages)
        """By stage, the number of its reader."""
        self._readers = [
            edges([stage for stage in stages if self._lanes[stage.id] == lane])
            for lane in sorted(set(self._lanes.values()))
        ]
        self._tasks: list[dict[TopicPartition, RunningTask]] = [{} for _ in self._readers]
        """For each reader: the tasks that it reads for, by the partitions of their inputs."""
        self._turn = 0
        """Which of them is polled first."""
        self._opening: dict[RunningTask, None] = {}
        """The tasks that do not read all their inputs yet."""
        self._paused: dict[RunningTask, None] = {}
        """Those that read no more until their steps have taken some."""
        self._unreadable = UnreadableInputs[RunningTask](settings)

    def add(self, task: RunningTask) -> None:
        """Begin to read for a task, from its position."""
        self._tasks[self._lane(task)].update({i.place: task for i in task.bound.inputs})
        self._opening[task] = None
        self._reader_of(task).add(task.positions())

    def remove(self, task: RunningTask) -> None:
        """Stop reading for it."""
        for i in task.bound.inputs:
            self._tasks[self._lane(task)].pop(i.place, None)
        self._opening.pop(task, None)
        self._unreadable.forget(task)
        if task in self._paused:
            self._resume(task)
        self._reader_of(task).remove(i.place for i in task.bound.inputs)
        self.again.forget(task.owned.task.id)

    def rewind(self, task: RunningTask) -> None:
        """Read for it again, from its present position. (After a seek, prefetched messages would stay in the queue a
        while.)"""
        self.remove(task)
        self.add(task)

    def poll(self, timeout: float, full: Collection[str] = ()) -> Arrival:
        """Hand the tasks what has arrived, waiting up to `timeout` seconds for it. `full`: stages for which no more is to be
        read; those that share a consumer with one of them wait too."""
        given: dict[RunningTask, None] = {}
        for lagging in [t for t in self._paused if not t.full]:
            self._resume(lagging)
        behind = {self._lanes[stage] for stage in full}
        if len(behind) == len(self._readers):
            time.sleep(timeout)
        for lane in self._polled_first(behind):
            # Once something has come, none is waited for: an idle consumer does not delay the others.
            runs, count = self._readers[lane].poll(0 if given else timeout / len(self._readers))
            for place, messages in runs:
                if (task := self._tasks[lane].get(place)) is not None:
                    task.offer(place, messages)
                    given[task] = None
            for place, error in self._readers[lane].unreadable.items():
                if (task := self._tasks[lane].get(place)) is not None:
                    self._unreadable.note(task, error, error.where)
            if count >= DRAINED:
                behind.add(lane)
        for task in [t for t in given if t.full and t not in self._paused]:
            self._paused[task] = None
            self._reader_of(task).pause(i.place for i in task.bound.inputs)
        self.tables.tick()
        for opening in list(self._opening):
            self._open(opening)
        return Arrival(list(given), {stage for stage, lane in self._lanes.items() if lane in behind})

    def unreadable(self) -> list[tuple[RunningTask, SourceError]]:
        """Tasks one of whose inputs cannot be read on, and why, if no other worker has them."""
        return self._unreadable.counting()

    def _polled_first(self, full: Collection[int]) -> list[int]:
        """The consumers to be polled, each first in its turn: those that come later may not be waited for."""
        self._turn = (self._turn + 1) % len(self._readers)
        lanes = [*range(self._turn, len(self._readers)), *range(self._turn)]
        return [lane for lane in lanes if lane not in full]

    def _resume(self, task: RunningTask) -> None:
        del self._paused[task]
        self._reader_of(task).resume(i.place for i in task.bound.inputs)

    def _open(self, task: RunningTask) -> None:
        """Begin to read those inputs of a task whose turn has come."""
        while task.begun and self._may_advance(task):
            self._reader_of(task).add(task.advance())
        if new := task.joined():
            self._reader_of(task).add(new)
        if not task.opening:
            del self._opening[task]

    def _may_advance(self, task: RunningTask) -> bool:
        """Whether what the task's intake waits for has come."""
        match task.intake:
            case Intake.HELD:
                return self.tables.ready(task.bound, task.ends)
            case Intake.MOVING:
                return not task.moving
            case Intake.LOADING:
                reader = self._reader_of(task)
                return reader.at_end(task.tables) and (
                    self._upstream is None or self._upstream.loaded(task.bound, reader.ends)
                )
            case Intake.OPEN:
                return False

    def marks(self, task: RunningTask) -> Mapping[TopicPartition, Offset]:
        """Where the task's inputs end, as far as this worker knows."""
        return self._reader_of(task).marks(i.place for i in task.bound.inputs)

    def close(self) -> None:
        """Close the consumers and the tables' stores."""
        for reader in self._readers:
            reader.close()
        self.tables.close()
        self.again.close()
        if self._upstream is not None:
            self._upstream.close()

    def _lane(self, task: RunningTask) -> int:
        return self._lanes[task.bound.stage.id]

    def _reader_of(self, task: RunningTask) -> EdgeReader:
        return self._readers[self._lane(task)]


def open_inputs(app: App, settings: Settings, topics: Topics, folder: Path, memory: Memory) -> Inputs:
    """The inputs of a worker, which it reads from Kafka."""
    cluster = settings.cluster()

    def edges(stages: Sequence[Stage]) -> EdgeReader:
        ends = any(i.table for stage in stages for i in stage.inputs)
        return SourceReaders(cluster, ends=ends, gathers=gathers(stages))

    tables = open_tables(app, cluster, topics, folder, memory)
    upstream = UpstreamTables(app, cluster, topics)
    return Inputs(app.plan.stages, settings, edges, tables, KafkaRereader(app, cluster, topics), upstream)


def gathers(stages: Sequence[Stage]) -> bool:
    """Whether the consumer of these stages fetches many records at a time, and not each one as it comes."""
    return all(stage.regime.step >= SLOW for stage in stages)


def lanes_of(stages: Sequence[Stage]) -> dict[str, int]:
    """Which of the worker's consumers reads a stage's inputs, by the stage's id.

    A consumer cannot be assigned a partition twice, and two stages that read one topic are at different offsets of it. And
    one that is full keeps those of its consumer waiting: so a consumer has stages of one pace. Each stage has the first that
    fits.
    """
    taken: list[tuple[timedelta, set[str]]] = []
    lanes = {}
    for stage in stages:
        pace, topics = stage.regime.step, {i.topic for i in stage.inputs}
        fits = (n for n, (other, read) in enumerate(taken) if other == pace and not topics & read)
        if (lane := next(fits, len(taken))) == len(taken):
            taken.append((pace, set()))
        taken[lane][1].update(topics)
        lanes[stage.id] = lane
    return lanes
