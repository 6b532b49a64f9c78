"""A broadcast table: the last row of each key of a topic, kept once a worker, for all tasks that look up in it.

    kept(positions) = fold of the topic's records below the positions

Where the topic is the result of a batch part, each row is of an epoch, and all of an epoch is seen at once:

    visible    = the newest complete epoch all of which lies below the positions
    newest[k]  = (epoch, row) as last read          older[k] = the row before it, as long as newest[k] is not to be seen
    seen(k)    = newest[k] if its epoch ≤ visible, else older[k]

Two rows of a key are enough: a row of epoch e is let in only when every complete epoch before e is visible. What a switch
costs does not depend on the size of the table.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

import msgspec
import numpy as np
import polars as pl

from falkirk.checkpoint.epochs import EpochRecord, Epochs, OutputEnds
from falkirk.checkpoint.ids import Offset, after
from falkirk.checkpoint.publishing import HEADER
from falkirk.state.codec import decode_values, encode_keys, encode_values
from falkirk.state.store import State
from falkirk.stream.dataflow.batch import WEIGHT
from falkirk.stream.dataflow.circuit import Slice, StepInput
from falkirk.stream.dataflow.failures import Failures
from falkirk.stream.dataflow.handling import Handling
from falkirk.stream.dataflow.records import Records
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.operators.sources.table import TableReader
from falkirk.stream.stages.stage import SharedTable

NEVER = -1
"""The epoch of rows that are of none: they are seen at once."""

_NEWEST, _OLDER = 1, 2
_EPOCH, _GONE = "__falkirk_epoch", "__falkirk_gone"
_ABOUT = encode_keys(0, np.zeros(1, np.uint16), [pl.Series(["about"])])[0]
"""Where a table says how far it is: no table of keys has the number 0."""


class About(msgspec.Struct, frozen=True):
    """How far a table is, written with what it keeps."""

    positions: dict[int, Offset] = {}
    """By partition."""
    visible: int = NEVER


@dataclass(slots=True)
class Run:
    """Records of one partition and one epoch, in the order of offsets."""

    partition: int
    epoch: int
    records: Records


@dataclass(slots=True)
class Arrivals:
    """What was read of the topic and is not kept yet, and when it may be."""

    topic: str
    about: About
    topic_id: str = ""
    """Kafka's; "" for any topic of that name."""
    epochs: Epochs = field(default_factory=Epochs)
    waiting: dict[int, deque[Run]] = field(default_factory=dict)

    def offer(self, partition: int, records: Records) -> None:
        """Records came, in the order of offsets."""
        runs = self.waiting.setdefault(partition, deque())
        runs.extend(Run(partition, epoch, some) for epoch, some in by_epoch(records))

    def reach(self, partition: int, offset: Offset) -> None:
        """Nothing readable is left below an offset."""
        if not self.waiting.get(partition):
            self._move(partition, offset)

    def admit(self, offset: Offset, record: EpochRecord) -> None:
        """An epoch was opened, or ended."""
        self.epochs.admit(offset, record)

    def take(self) -> Iterator[Run]:
        """What may be kept, one after the other."""
        going = True
        while going:
            going = False
            self.see()
            for partition, runs in self.waiting.items():
                while runs and self._may(self._next(partition, runs).epoch):
                    run = runs.popleft()
                    yield run
                    self._move(partition, after(run.records.offsets[-1]))
                    going = True

    def see(self) -> None:
        """Make the newest complete epoch visible that is here as a whole."""
        for complete in reversed(self.epochs.kept):
            ends = self._ends(complete.completed.outputs)
            if complete.opened.epoch > self.about.visible and all(self.reached(p, end) for p, end in enumerate(ends)):
                self.about = About(self.about.positions, complete.opened.epoch)
                return

    def reached(self, partition: int, end: Offset) -> bool:
        """Is all below `end` kept?"""
        runs = self.waiting.get(partition)
        at = runs[0].records.offsets[0] if runs else self.about.positions.get(partition, Offset(0))
        return at >= end

    def _next(self, partition: int, runs: deque[Run]) -> Run:
        """The first run. What a deleted app of this name left in the topic is of none of these epochs: their numbers begin
        again."""
        run, first = runs[0], self.epochs.first
        if run.epoch == NEVER or first is None or run.epoch < first.epoch:
            return run
        ends = self._ends(first.outputs)
        former = bisect_left(run.records.offsets, ends[partition]) if partition < len(ends) else 0
        if former:
            runs.popleft()
            if former < len(run.records):
                runs.appendleft(Run(partition, run.epoch, _cut(run.records, former, len(run.records))))
            runs.appendleft(Run(partition, NEVER, _cut(run.records, 0, former)))
        return runs[0]

    def _ends(self, outputs: Sequence[OutputEnds]) -> Sequence[Offset]:
        """Where the topic ended then. An earlier one of that name ended elsewhere."""
        return next((o.ends for o in outputs if o.topic == self.topic and self.topic_id in ("", o.topic_id)), ())

    def _may(self, epoch: int) -> bool:
        if epoch == NEVER:
            return True
        if self.epochs.opened is None or self.epochs.opened.epoch < epoch:
            return False  # what became of the epochs before it is not known yet
        before = [c.opened.epoch for c in self.epochs.kept if c.opened.epoch < epoch]
        return not before or self.about.visible >= before[-1]

    def _move(self, partition: int, offset: Offset) -> None:
        at = self.about.positions
        self.about = About({**at, partition: max(offset, at.get(partition, Offset(0)))}, self.about.visible)


class Rows(Protocol):
    """What a table is read from."""

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of full keys, in the same order; None for a missing key."""
        ...


class Keeper:
    """The rows of one broadcast table, over a state that is its own."""

    def __init__(self, table: SharedTable) -> None:
        self.table = table
        source = table.source
        self.reader = TableReader(source, table.value)
        self.failures = Failures("", "", {source: Handling(letters="")}, {})
        self.kept = pl.Schema({c: source.schema[c] for c in table.columns or source.key.columns[:1]})
        self.schema = pl.Schema({_EPOCH: pl.Int64(), _GONE: pl.Boolean(), **self.kept})

    @staticmethod
    def about(state: State) -> About:
        """How far the state is."""
        (found,) = state.get([_ABOUT])
        return About() if found is None else msgspec.json.decode(found, type=About)

    @staticmethod
    def tell(state: State, about: About) -> None:
        """Note how far the state is."""
        state.put([_ABOUT], [msgspec.json.encode(about)])

    def keep(self, run: Run, state: State, visible: int) -> Sequence[bytes | None]:
        """Take in records of one epoch. Returns, as dead letters, those that do not decode: their keys' rows stay."""
        source = self.table.source
        step = StepRun(StepInput(0, [Slice(source.id, source.topic, run.partition, run.records)]), state, self.failures)
        batch = self.reader.read(step)
        letters = [letter for emitted in step.emitted for letter in emitted.values]
        if batch is None:
            return letters
        last = {key: i for i, key in enumerate(source.key.encode(batch.rows)) if key is not None}
        rows = list(last.values())
        gone = batch.meta[WEIGHT][rows] < 0
        told = [pl.Series(_EPOCH, [run.epoch], dtype=pl.Int64).new_from_index(0, len(rows)), gone.alias(_GONE)]
        frame = batch.rows[rows].select(self.kept.names())
        values: list[bytes | None] = list(encode_values(self.schema, pl.DataFrame([*told, *frame.get_columns()])))
        newest, older = _keys(_NEWEST, list(last)), _keys(_OLDER, list(last))
        if run.epoch <= visible:
            # Seen at once, so nothing before it is: and a row that is gone need not be there.
            state.put(older, [None] * len(older))
            state.put(newest, [None if no_row else value for no_row, value in zip(gone, values, strict=True)])
            return letters
        before = state.get(newest)
        there = [value for value in before if value is not None]
        epochs = iter(decode_values(self.schema, there)[_EPOCH].to_list())
        seen = [i for i, value in enumerate(before) if value is None or next(epochs) <= visible]
        state.put([older[i] for i in seen], [before[i] for i in seen])
        state.put(newest, values)
        return letters

    def seen(self, rows: Rows, visible: int) -> Seen:
        """The table as it is in these rows."""
        return Seen(self, rows, visible)


@dataclass(frozen=True, slots=True)
class Seen:
    """`falkirk.stream.dataflow.circuit.SharedRows`, of one table."""

    keeper: Keeper
    rows: Rows
    visible: int

    def find(self, keys: Sequence[bytes]) -> tuple[pl.DataFrame, list[int | None]]:
        """The rows under these keys, and for each key which of them is its own."""
        frame, places = self._read(_keys(_NEWEST, keys))
        late = [epoch > self.visible for epoch in frame[_EPOCH].to_list()]
        if any(late):
            hidden = [i for i, place in enumerate(places) if place is not None and late[place]]
            older, found = self._read(_keys(_OLDER, [keys[i] for i in hidden]))
            places = list(places)
            for i, place in zip(hidden, found, strict=True):
                places[i] = None if place is None else frame.height + place
            frame = pl.concat([frame, older])
        gone = frame[_GONE].to_list()
        return frame.select(self.keeper.kept.names()), [None if p is None or gone[p] else p for p in places]

    def _read(self, full: Sequence[bytes]) -> tuple[pl.DataFrame, list[int | None]]:
        values = self.rows.get(full)
        there = [value for value in values if value is not None]
        nth = iter(range(len(there)))
        return decode_values(self.keeper.schema, there), [None if value is None else next(nth) for value in values]


def by_epoch(records: Records) -> Iterator[tuple[int, Records]]:
    """Records in runs of one epoch."""
    if records.headers is None:
        yield NEVER, records
        return
    epochs = [epoch_of(headers) for headers in records.headers]
    cuts = [0, *(i for i in range(1, len(epochs)) if epochs[i] != epochs[i - 1]), len(epochs)]
    for a, b in pairwise(cuts):
        yield epochs[a], _cut(records, a, b)


def _cut(records: Records, a: int, b: int) -> Records:
    return Records(records.offsets[a:b], records.keys[a:b], records.values[a:b], records.times[a:b])


def epoch_of(headers: Sequence[tuple[str, bytes]]) -> int:
    """The epoch that published a record; NEVER if none did."""
    return next((int(value) for name, value in headers if name == HEADER), NEVER)


def _keys(table: int, keys: Sequence[bytes]) -> list[bytes]:
    return encode_keys(table, np.zeros(len(keys), np.uint16), [pl.Series("key", keys, dtype=pl.Binary)])
