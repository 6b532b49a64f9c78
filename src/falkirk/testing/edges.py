"""The edges of an app under test, in memory: what production reads from Kafka, it reads here from a simulated cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from falkirk.checkpoint.ids import InputPartition, Offset, TaskId, TopicPartition, after
from falkirk.checkpoint.ports import MARK
from falkirk.checkpoint.records import Division
from falkirk.errors import SourceError
from falkirk.runtime.app.app import BoundInput, BoundTask
from falkirk.runtime.worker.reading.broadcast import SharedTables, TableCopy
from falkirk.runtime.worker.reading.inputs import Inputs
from falkirk.runtime.worker.task import RunningTask
from falkirk.state.memory import MemoryStore
from falkirk.state.store import Identity
from falkirk.stream.dataflow.circuit import ShadowChunk, Slice
from falkirk.stream.dataflow.operator import Operator
from falkirk.stream.dataflow.records import Records
from falkirk.stream.stages.plan import Plan, Stage
from falkirk.testing.cluster import SETTINGS, Cluster, Message


class MemoryEdges:
    """`falkirk.runtime.worker.reading.edges.EdgeReader`. Topics that are read `whole` are read to their end at once; of each
    other partition it gives only what it is allowed to."""

    def __init__(self, cluster: Cluster, whole: Collection[str] = ()) -> None:
        self.ends: dict[TopicPartition, Offset] = {}
        self.unreadable: Mapping[TopicPartition, SourceError] = {}
        self.at: dict[TopicPartition, Offset] = {}
        """From where to go on."""
        self._cluster, self._whole = cluster, whole
        self._paused: set[TopicPartition] = set()
        self._most: int | None = None
        self._given: Counter[TopicPartition] = Counter()

    def allow(self, most: int | None) -> None:
        """From now on, give up to so many records of each partition; None: all."""
        self._most = most
        self._given.clear()

    def add(self, positions: Mapping[TopicPartition, Offset]) -> None:
        """Begin to read partitions at the given positions."""
        self.at |= positions
        for place in positions:
            self.ends.pop(place, None)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading partitions."""
        for place in partitions:
            self.at.pop(place, None)
            self._paused.discard(place)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Give no more of these partitions until they are resumed."""
        self._paused.update(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on where it stopped."""
        self._paused.difference_update(partitions)

    def poll(self, timeout: float) -> tuple[list[tuple[TopicPartition, list[Message]]], int]:
        """What is there and allowed."""
        runs = [(place, found) for place in self.at if place not in self._paused and (found := self._next(place))]
        return runs, sum(len(found) for _, found in runs)

    def _next(self, place: TopicPartition) -> list[Message]:
        most = None if place.topic in self._whole or self._most is None else self._most - self._given[place]
        found = self._cluster.read(place, self.at[place], most)
        if found:
            self.at[place] = after(found[-1].offset())
            self._given[place] += len(found)
        if most is None or len(found) < most:
            self.ends[place] = self.at[place]
        return found

    def at_end(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether the end of each of these partitions has been reached since it was added."""
        return self.ends.keys() >= set(partitions)

    def marks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The ends of partitions."""
        return {place: Offset(self._cluster.broker[place].end) for place in partitions}

    def close(self) -> None:
        """Nothing is open."""


class MemoryInputs(Inputs):
    """The inputs of one worker, in memory: as in production, but for the reader of the edges."""

    def __init__(self, cluster: Cluster, tables: SharedTables | None = None) -> None:
        """`tables`: the worker's broadcast tables, if they are not read to their end at once."""
        self._cluster = cluster
        self._edges: list[MemoryEdges] = []
        tables = memory_tables(cluster) if tables is None else tables
        super().__init__(cluster.plan.stages, SETTINGS, self._open_edges, tables, MemoryRereader(cluster))

    def allow(self, most: int | None) -> None:
        """From now on, read up to so many records of each partition; None: all. Tables that are looked up are always read to
        their end."""
        for edges in self._edges:
            edges.allow(most)

    def begins(self, task: RunningTask) -> dict[InputPartition, Offset]:
        """Where the inputs of a task without any step begin."""
        return dict.fromkeys((i.partition for i in task.bound.inputs), Offset(0)) | self.tables.positions(task.bound)

    @staticmethod
    def joining(task: RunningTask) -> dict[InputPartition, Offset]:
        """Where the partitions of topics begin that have joined its sources since its last step."""
        new = (i.partition for i in task.bound.inputs if task.begun and i.partition not in task.ends)
        return dict.fromkeys(new, Offset(0))

    def _open_edges(self, stages: Sequence[Stage]) -> MemoryEdges:
        edges = MemoryEdges(self._cluster, whole_topics(self._cluster.plan))
        self._edges.append(edges)
        return edges


def whole_topics(plan: Plan) -> set[str]:
    """The topics that each step reads to their end: those of tables that rows are looked up in, before and behind an
    exchange. (An upsert source is read as a table too, but what its rows give does not depend on when they come.)"""
    stages = plan.planned
    looking = [o for stage in stages for o in stage.operators if 0 < len(o.table_ports) < len(o.inputs)]
    waiting, behind = [o.inputs[port] for o in looking for port in o.table_ports], set[Operator]()
    while waiting:
        behind.add(operator := waiting.pop())
        waiting += [before for before in operator.inputs if before not in behind]
    changing = {source.id for stage in stages for source in stage.sources if source not in behind}
    tables = [i for stage in plan.stages for i in stage.inputs if i.table]
    return {i.topic for i in tables if i.kind != "source" or i.id not in changing}


class MemoryRereader:
    """`falkirk.runtime.worker.task_ports.Rereader`, where no input is ever trimmed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def begins(self, inputs: Sequence[BoundInput]) -> dict[InputPartition, Offset]:
        """All topics are whole."""
        return {i.partition: Offset(0) for i in inputs}

    def read(self, task: BoundTask, division: Division) -> list[Slice]:
        """The records of a division, in the order of inputs."""
        ranges = {r.partition: (r.start, r.end) for r in division}
        slices = []
        for i in task.inputs:
            start, end = ranges.get(i.partition, (0, 0))  # topics that have joined since are not read
            if found := self._cluster.between(i.place, start, end):
                records = Records.of(found, headers=i.input.headers)
                slices.append(Slice(i.input.id, i.place.topic, i.place.partition, records))
        return slices

    def take(self, task: BoundTask, at: Offset) -> ShadowChunk:
        """The next chunk of its shadow's changelog."""
        assert task.shadow is not None
        place, end = task.shadow
        found = [m for m in self._cluster.read(place, at, self._cluster.chunk) if m.offset() < end]
        behind = after(found[-1].offset()) if found else end
        changes = {m.key() or b"": m.value() for m in found if m.key() != MARK}
        return ShadowChunk(changes, behind if behind < end else None)

    def forget(self, task: TaskId) -> None:
        """Nothing is kept of it."""

    def close(self) -> None:
        """Nothing is open."""


def memory_tables(cluster: Cluster) -> SharedTables:
    """A worker's broadcast tables. An epoch's rows appear at once: those of the testing kit are written at once."""
    tables = []
    for table in cluster.plan.shared:
        name = table.source.topic
        store = MemoryStore(Identity(cluster.plan.app, f"table {name}", ""))
        tables.append(TableCopy(replace(table, epochs=None), cluster.counts[name], store))
    return SharedTables(tables, MemoryEdges(cluster), lambda places: dict.fromkeys(places, Offset(0)))
