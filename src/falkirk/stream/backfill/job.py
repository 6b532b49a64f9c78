"""A backfill's work, cut into the histories of tasks.

head(task)        the task's sources ──steps──▶ circuit ──▶ parcels for tasks of later levels, result rows
past(source)      a table in the place of records ──▶ parcels for the tasks that read the source
level n           parcels, task by task ──steps──▶ circuit ──▶ the same

A backfill is the stream whose steps all have its clock. Of event time (`falkirk.stream.dataflow.event_time`) follows:

    no partition becomes idle: from one step to the next no time passes
    a row is late  ⇔  its time is before the greatest time before it in its partition − late: in whatever order partitions
                      are read, for the watermark waits for each of them from the first step on
    the watermark at the end of a task's history  =  that of the stream at the division
    no row comes before the watermark of a receiver, for it waits for all senders; what is complete goes when all are read

Rows of PARCELS, as batch parts have them, with an edge's record in a parcel:

level      exchange             bucket            order
1…n        receiving stage      receiving task    edge · sending stage · sending task · step · number in it
1…n        reading stage        reading task      history · 0 · 0 · time · what is in the row
n + 1      sink                 result partition  0    · sending stage · sending task · step · number in it
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

import polars as pl

from falkirk.checkpoint.overlay import EmptyReader, Overlay
from falkirk.state.store import Identity, Progress, Store
from falkirk.stream.backfill.history import record
from falkirk.stream.backfill.pile import Pile
from falkirk.stream.backfill.stage import BackfillStage
from falkirk.stream.batch.job import of_level
from falkirk.stream.batch.parcels import PARCELS, Piece, parcels, results
from falkirk.stream.dataflow.circuit import Emitted, Slice, StepInput
from falkirk.stream.dataflow.place import Place
from falkirk.stream.dataflow.records import Records
from falkirk.stream.dataflow.topics import Input, Layout
from falkirk.stream.operators.sinks.sink import Written, partitions_of
from falkirk.stream.stages.stage import PhysicalStage

ROWS = 250_000
"""Of a step, at most."""
SIZE = 64 << 20
"""Bytes of a step's keys and values, or of its parcels, unless one record alone has more."""

HELD = 300_000
"""Changed keys that are held in memory, and not looked up in the store, before they are written to it."""

Reads = Callable[[Piece], Iterator[Records]]
"""The records of a range of a source, in order, cut the same way each time."""


class HistoryTask(NamedTuple):
    """A task whose history is run in the head: one of a stage that reads topics alone."""

    stage: int
    """Its number."""
    partition: int


class Keeper(Protocol):
    """Where tasks' states are while their histories are run, and where they go then."""

    def keeping(self, identity: Identity) -> AbstractContextManager[Store]:
        """An empty store, whose state is kept as the task's base when the block ends, and only then."""
        ...


@dataclass(frozen=True, eq=False)
class BackfillJob:
    """What each task of a backfill runs. For one division and one clock its results are the same bytes, on however many
    cores and in whatever order tasks run, as far as users' functions are deterministic."""

    stage: BackfillStage
    layout: Layout
    pieces: Mapping[tuple[int, int], Sequence[Piece]]
    """What each task reads of its sources, by (stage's number, partition): of each source, all of the division. Each task is
    there, though it reads nothing."""
    clock: int
    """Milliseconds: the only time that operators see."""
    base: int
    """The backfill's name, which is that of the bases too."""
    result_partitions: int
    incarnation: str = ""
    """Of the app, whose states the bases are."""

    @property
    def levels(self) -> int:
        """How many follow the head."""
        return max(self._levels)

    @property
    def buckets(self) -> int:
        """Tasks of the largest stage that is sent parcels."""
        return max((n for n, level in zip(self._sizes, self._levels, strict=True) if level), default=1)

    @property
    def turns(self) -> list[HistoryTask]:
        """The tasks of the head, those that have most to read first."""
        first = [n for n, level in enumerate(self._levels) if not level]
        turns = [HistoryTask(n, p) for n in first for p in range(self._sizes[n])]
        return sorted(
            turns, key=lambda history_task: -sum(piece.end - piece.start for piece in self.pieces[history_task])
        )

    def marks(self) -> pl.DataFrame:
        """A row for each task that is sent parcels, before them all: one that nobody sends anything has a base too."""
        rows = [(level, n, p) for n, level in enumerate(self._levels) if level for p in range(self._sizes[n])]
        empty = dict.fromkeys(PARCELS)
        level, exchange, bucket = zip(*rows, strict=True) if rows else ((), (), ())
        marked = {"level": level, "exchange": exchange, "bucket": bucket, "order": [b""] * len(rows)}
        return pl.DataFrame({**empty, **marked}, schema=PARCELS)

    def head(self, history_task: HistoryTask, reads: Reads, keeper: Keeper) -> Iterator[pl.DataFrame]:
        """The history of a task that reads topics alone. Raises UserCodeError and SourceError."""
        return self._history(history_task, iter(()), reads, keeper)

    def past(self, source: str, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Some rows of a table that stands for the beginnings of a source, as parcels. Raises ConfigError."""
        # Workers know of backfills, and start without what encodes.
        from falkirk.stream.backfill.past import HistoryRows

        of, topics = self.stage.source(source), {i.topic for i in self.stage.inputs if i.id == source}
        (partitions,) = (self.layout.partitions[topic] for topic in topics)
        made = HistoryRows.of(of, rows, partitions, self.clock)
        for n, stage in enumerate(self.stage.stages):
            for number, (read, before) in enumerate(self._sent(stage)):
                if before and read.id == source:
                    # As the stage's tasks share the partitions of a topic that has more of them (`Input.read_by`).
                    tasks = [partition % self._sizes[n] for partition in made.partitions]
                    yield parcels(self._levels[n], n, tasks, made.orders(number), made.payloads)

    def level(self, n: int, frames: Iterable[pl.DataFrame], reads: Reads, keeper: Keeper) -> Iterator[pl.DataFrame]:
        """The histories of some tasks of level n, whose parcels come sorted; frames may be cut anywhere. Rows of later levels
        pass through. Raises UserCodeError and SourceError."""
        rest = iter(frames)
        later: list[pl.DataFrame] = []
        for (number, partition), rows in groupby(of_level(n, rest, later), key=itemgetter(0, 1)):
            yield from self._history(HistoryTask(number, partition), rows, reads, keeper)
        yield from later
        yield from rest

    def _history(
        self,
        history_task: HistoryTask,
        rows: Iterator[tuple[int, int, bytes, bytes | None]],
        reads: Reads,
        keeper: Keeper,
    ) -> Iterator[pl.DataFrame]:
        stage = self.stage.stages[history_task.stage]
        if not stage.stateful:
            yield from _History(self, history_task, None).run(self._steps(history_task, rows, reads))
            return
        task, incarnation = f"{stage.id}/{history_task.partition}", self.incarnation
        identity = Identity(self.stage.app, task, stage.fingerprint, stage.state_schema, incarnation)
        with keeper.keeping(identity) as store:
            yield from _History(self, history_task, store).run(self._steps(history_task, rows, reads))

    def _steps(
        self, history_task: HistoryTask, rows: Iterator[tuple[int, int, bytes, bytes | None]], reads: Reads
    ) -> Iterator[list[Slice]]:
        """What the task reads, cut: source by source, then edge by edge, and before a source the table that stands for its
        beginnings; but what is looked up in before all that looks it up."""
        sends = self._sent(self.stage.stages[history_task.stage])
        sent = ((Place.of(order).level, value) for _, _, order, value in rows if value is not None)
        by_kind = groupby(sent, key=lambda row: (sends[row[0]][0].table, sends[row[0]][1]))
        following = next(by_kind, None)
        for tables in (True, False):
            for before in (True, False):
                if following is not None and following[0] == (tables, before):
                    yield from _sent_records(sends, history_task.partition, following[1])
                    following = next(by_kind, None)
                if before:
                    yield from self._sources(history_task, reads, tables=tables)

    def _sources(self, history_task: HistoryTask, reads: Reads, *, tables: bool) -> Iterator[list[Slice]]:
        for piece in self.pieces[history_task]:
            source = self.stage.inputs[piece.source]
            if source.table == tables:
                for records in _cut(reads(piece)):
                    yield [Slice(source.id, piece.topic, piece.partition, records)]

    @cached_property
    def _levels(self) -> tuple[int, ...]:
        return self.stage.levels

    @cached_property
    def _sizes(self) -> tuple[int, ...]:
        counts = Counter(n for n, _ in self.pieces)
        return tuple(counts[n] for n in range(len(self.stage.stages)))

    def receiver(self, edge: str) -> tuple[int, int]:
        """The number of the stage that reads an edge, and which it is of all that the stage is sent."""
        for n, stage in enumerate(self.stage.stages):
            for number, (read, before) in enumerate(self._sent(stage)):
                if read.id == edge and not before:
                    return n, number
        raise KeyError(edge)

    def _sent(self, stage: PhysicalStage) -> list[tuple[Input, bool]]:
        """What reaches a stage as parcels, in the order in which it is read: edges, and (True) what stands for the beginnings
        of sources."""
        found = [(i, i.kind == "source") for i in stage.inputs if i.kind == "edge" or self.stage.begins(i)]
        return sorted(found, key=lambda one: (not one[0].table, not one[1]))

    def level_of(self, stage: int) -> int:
        """Of a stage, by its number."""
        return self._levels[stage]

    def __getstate__(self) -> dict[str, Any]:
        """Without what each process makes for itself."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(slots=True)
class _History:
    """One task's: its circuit, its steps, and what these give."""

    job: BackfillJob
    history_task: HistoryTask
    store: Store | None
    """None: the task has no state."""
    number: int = 0
    """Of the step."""
    piles: dict[int, Pile] = field(default_factory=dict)

    def run(self, steps: Iterator[list[Slice]]) -> Iterator[pl.DataFrame]:
        """All steps; then, as a worker would, those that timers ask for which are due."""
        job, stage = self.job, self.job.stage.stages[self.history_task.stage]
        circuit = stage.circuit(self.history_task.partition, job.layout)
        progress = Progress(-1, 0, 0, job.clock, job.base)
        if self.store is not None:
            self.store.write({}, progress)
        wake_at: int | None = None
        following: list[Slice] | None = next(steps, None)
        overlay = Overlay(EmptyReader() if self.store is None else self.store)
        while following is not None or (wake_at is not None and wake_at <= job.clock):
            found = circuit.run(StepInput(job.clock, following or []), overlay)
            wake_at = found.wake_at
            for emitted in found.emitted:
                yield from self._emitted(emitted)
            if self.store is not None and len(overlay.changes) > HELD:
                self.store.write(overlay.changes, progress)
                overlay = Overlay(self.store)
            self.number += 1
            following = next(steps, None)
        if self.store is not None:
            self.store.write(overlay.changes, progress)
        for pile in self.piles.values():
            yield from pile.close()

    def _emitted(self, emitted: Emitted) -> Iterator[pl.DataFrame]:
        stage = self.job.stage.stages[self.history_task.stage]
        sinks = {o.id: o for o in self.job.stage.sinks}
        kind = next(o.kind for o in stage.outputs if o.id == emitted.output)
        if kind == "edge":
            receiver, edge = self.job.receiver(emitted.output)
            orders = self._orders(edge, len(emitted.values))
            level = self.job.level_of(receiver)
            yield parcels(level, receiver, emitted.partitions, orders, emitted.values)  # type: ignore[arg-type]
            return
        sink = sinks.get(emitted.output) if kind == "sink" else None
        number = next(i for i, o in enumerate(self.job.stage.outputs) if o.id == emitted.output)
        records = Written(emitted.keys, emitted.values, pl.Series(emitted.timestamps, dtype=pl.Int64))
        places = partitions_of(None if sink is None else sink.key, records, self.job.result_partitions)
        rows = results(self.job.levels + 1, number, places, self._orders(0, len(emitted.values)), records)
        if sink is None or not sink.changes:
            yield rows
        else:
            yield from self.piles.setdefault(number, Pile()).take(rows)

    def _orders(self, edge: int, count: int) -> list[bytes]:
        return Place(edge, self.history_task.stage, self.history_task.partition, self.number).orders(0, count)


def _sent_records(
    sends: Sequence[tuple[Input, bool]], partition: int, sent: Iterable[tuple[int, bytes]]
) -> Iterator[list[Slice]]:
    """What a task was sent, cut into steps."""
    held: dict[int, Records] = {}
    size = offset = 0
    for number, value in sent:
        read, before = sends[number]
        one = record(value, offset, headers=read.headers) if before else Records([offset], [None], [value], [0])
        held[number] = held[number].followed_by(one) if number in held else one
        size, offset = size + len(value), offset + 1
        if size >= SIZE or (before and len(held[number]) >= ROWS):
            yield [Slice(sends[n][0].id, sends[n][0].topic, partition, records) for n, records in held.items()]
            held, size = {}, 0
    if held:
        yield [Slice(sends[n][0].id, sends[n][0].topic, partition, records) for n, records in held.items()]


def _cut(chunks: Iterator[Records]) -> Iterator[Records]:
    """The same records in pieces for steps. Where one ends follows from the records alone."""
    held, size = Records(), 0
    for records in chunks:
        held, size = held.followed_by(records), size + _size(records)
        if len(held) >= ROWS or size >= SIZE:
            yield held
            held, size = Records(), 0
    if len(held):
        yield held


def _size(records: Records) -> int:
    return sum(sum(map(len, filter(None, column))) for column in (records.keys, records.values))
