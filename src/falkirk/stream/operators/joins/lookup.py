"""`stream.lookup(table)`, incrementally: state has the table's row of each key, and joins it with each row of the stream.

    kept'[k]   = the row of k that the step brings, if it brings any; none, if it takes kept[k] back; else kept[k]
    output     = { (row, kept'[key of row]) }

From a topic, a step brings the last record of k. From a stream, it brings the row of k in the sum of its changes: they are in
any order, and the old row may leave after the new one has come.

A step takes the table's rows first, so that a lookup sees the table as of this step. A batch uses the same runner with state
in memory: the table as of the division is complete before the first row is joined.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar, Literal

import polars as pl

from falkirk.state.codec import decode_keys, decode_values, encode_keys, encode_values
from falkirk.state.shards import Hashes, murmur2, shard_of
from falkirk.state.store import State
from falkirk.stream.dataflow.batch import ORIGIN, TS, WEIGHT, Batch, Updates, everywhere, nulls
from falkirk.stream.dataflow.exchange import BucketRun, Exchange, SendsRows
from falkirk.stream.dataflow.operator import Flowing, Operator, Runner, TaskContext
from falkirk.stream.dataflow.partitioners import Partitioners, some_keys
from falkirk.stream.dataflow.place import Place
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.definition.expressions import words
from falkirk.stream.formats import Key

_KEY = pl.Schema({"key": pl.Binary()})
"""State knows a key by the bytes that both sides write it as, and so do people who ask for it."""

_SPELT, _OF_TABLE, _KEPT = "__falkirk_key", "__falkirk_of_table", "__falkirk_kept."

LOOKED_UP = ""
"""The rows of the table that a lookup looks in."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Lookup(Operator):
    """Each row with the table's row of its key, as of the step: inputs are the stream and the table."""

    kind: ClassVar[str] = "lookup"
    stateful: ClassVar[bool] = True
    reruns: ClassVar[bool] = True
    table_ports: ClassVar[frozenset[int]] = frozenset({1})
    main_table: ClassVar[str] = LOOKED_UP
    on: Key
    """Of the stream."""
    key: Key
    """Of the table. It encodes equal values to the same bytes as `on`."""
    columns: Mapping[str, str]
    """The columns to add, and their names in the result."""
    how: Literal["left", "inner"]
    version: int

    @property
    def kept(self) -> pl.Schema:
        """The kept columns of a table's row. If there are none, state still records that the row exists."""
        kept = self.columns or self.key.columns[:1]
        return pl.Schema({c: self.inputs[1].schema[c] for c in kept})

    def keys(self, port: int) -> Key | None:
        return self.on if port == 0 else self.key

    def reads(self, port: int, needed: Set[str]) -> Set[str]:
        return needed | set(self.on.columns) if port == 0 else set(self.key.columns) | self.columns.keys()

    @property
    def words(self) -> str:
        added = ", ".join(self.columns.values()) or "nothing"
        return f"lookup {self.id}: {', '.join(self.on.columns)} in {self.inputs[1].id} → {added}"

    @property
    def exact_words(self) -> str:
        return f"{self.state_words()}, {dict(self.columns)}, {self.how}"

    def runner(self, task: TaskContext) -> Runner:
        return LookupRunner(self, task.tables, task.partitioners)

    def exchange(self) -> Exchange:
        return LookupExchange(self)

    def state_words(self) -> str:
        keys = {c: self.inputs[1].schema[c] for c in self.key.columns}
        return f"{self.id} v{self.version}: {words(keys)} → {words(self.kept)} (written as {self.key!r})"

    def table_schemas(self) -> Mapping[str, pl.Schema]:
        return {LOOKED_UP: self.kept}

    def state_keys(self, table: str) -> pl.Schema:
        return _KEY

    def rebuilt_from(self) -> Sequence[Operator]:
        return self.inputs[1:]

    def rerun_from(self) -> Sequence[Operator]:
        return self.inputs[:1]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SharedLookup(Lookup):
    """A lookup in a broadcast table, which is not part of the task's state."""

    stateful: ClassVar[bool] = False

    def looks_up(self, port: int) -> Set[str] | None:
        return self.columns.keys() if port == 1 else None

    def runner(self, task: TaskContext) -> Runner:
        return SharedLookupRunner(self)


class Joining(Runner):
    """Rows, joined with the table's rows of their keys."""

    def __init__(self, lookup: Lookup) -> None:
        self.lookup = lookup
        self.schema = lookup.kept

    def step(self, run: StepRun, *inputs: Flowing | None) -> Batch | None:
        """Join the rows, which only come."""
        rows = inputs[0]
        assert not isinstance(rows, Updates)
        return self.joined(run, rows) if rows is not None and len(rows) else None

    def joined(self, run: StepRun, batch: Batch) -> Batch:
        """The rows, each with the kept row of its key."""
        keys = self.lookup.on.encode(batch.rows)
        numbers: dict[bytes, int] = {}
        rows: list[int] = []
        for i, key in enumerate(keys):
            if key is not None and numbers.setdefault(key, len(numbers)) == len(rows):
                rows.append(i)
        known = list(numbers)
        kept, found = self._find(run, known, batch, rows) if known else (self.schema.to_frame(), [])
        places = pl.Series([None if key is None else found[numbers[key]] for key in keys], dtype=pl.UInt32)
        added = kept.select(pl.col(c).gather(places).alias(new) for c, new in self.lookup.columns.items())
        out = Batch(batch.rows.hstack(added), batch.meta)
        return out if self.lookup.how == "left" else out.filter(places.is_not_null())

    @abstractmethod
    def _find(
        self, run: StepRun, keys: Sequence[bytes], batch: Batch, rows: Sequence[int]
    ) -> tuple[pl.DataFrame, list[int | None]]:
        """The existing rows of some keys, and the key of each. `rows` has the position of each key in the batch."""


class LookupRunner(Joining):
    """One lookup in one task, over the task's own state."""

    def __init__(self, lookup: Lookup, tables: Mapping[str, int], partitioners: Partitioners | None) -> None:
        super().__init__(lookup)
        self.partitioners = partitioners
        self.table = tables[LOOKED_UP]
        self.summed = lookup.inputs[1].role != "source"
        """Whether the table is a stream, whose changes add up."""

    def step(self, run: StepRun, *inputs: Flowing | None) -> Batch | None:
        """Keep the table's rows, then join the stream's rows."""
        rows, table = inputs
        if table is not None and len(table):
            self.keep(run, table.zset() if isinstance(table, Updates) else table)
        return super().step(run, rows)

    def keep(self, run: StepRun, table: Batch) -> None:
        """Store the table's rows: one of each key."""
        keys = self.lookup.key.encode(table.rows)
        last = {key: i for i, key in enumerate(keys) if key is not None}
        if not last:
            return
        known, rows = list(last), list(last.values())
        hashes = murmur2(known)
        self._check(run, known, hashes, everywhere(True, len(known)), table, rows)
        encoded = encode_values(self.schema, table.rows.select(self.schema.names()))
        weights = table.weights.to_list()
        kept: dict[bytes, bytes | None]
        if self.summed:
            kept, gone = _sum(zip(keys, encoded, weights, strict=True))
            kept |= self._taken_back(run, gone)
        else:
            kept = {key: encoded[i] if weights[i] > 0 else None for key, i in last.items()}
        if kept:
            known = list(kept)
            run.state.put(self._full(known, murmur2(known)), list(kept.values()))

    def _taken_back(self, run: StepRun, gone: Mapping[bytes, Set[bytes]]) -> dict[bytes, None]:
        """The keys whose present row is among those that are taken back. Where an edge has brought the new row in an earlier
        step than the old row leaves in, the new one is present, and stays."""
        keys = list(gone)
        present = run.state.get(self._full(keys, murmur2(keys))) if keys else []
        there = [(key, row) for key, row in zip(keys, present, strict=True) if row is not None]
        rows = encode_values(self.schema, decode_values(self.schema, [row for _, row in there]))
        return {key: None for (key, _), row in zip(there, rows, strict=True) if row in gone[key]}

    def _find(
        self, run: StepRun, keys: Sequence[bytes], batch: Batch, rows: Sequence[int]
    ) -> tuple[pl.DataFrame, list[int | None]]:
        hashes = murmur2(keys)
        values = run.state.get(self._full(keys, hashes))
        there = [value for value in values if value is not None]
        if len(there) < len(values):
            self._check(run, keys, hashes, pl.Series([value is None for value in values]), batch, rows)
        nth = iter(range(len(there)))
        return decode_values(self.schema, there), [None if value is None else next(nth) for value in values]

    def _full(self, keys: Sequence[bytes], hashes: Hashes) -> list[bytes]:
        return encode_keys(self.table, shard_of(hashes), [pl.Series("key", keys, dtype=pl.Binary)])

    def _check(
        self, run: StepRun, keys: Sequence[bytes], hashes: Hashes, which: pl.Series, batch: Batch, rows: Sequence[int]
    ) -> None:
        """A key that lies elsewhere than its row is never found."""
        if self.partitioners is not None:
            self.partitioners.recall(lambda: self._known(run.state))
            self.partitioners.check(keys, hashes, which, lambda i: run.span(batch, [rows[i]]))

    def _known(self, state: State) -> list[bytes | None]:
        return decode_keys(_KEY, some_keys(state, {self.table}))["key"].to_list()


def _sum(
    changes: Iterable[tuple[bytes | None, bytes, int]],
) -> tuple[dict[bytes, bytes | None], dict[bytes, set[bytes]]]:
    """What changes add up to, which are a key, a row and a weight: the row of each key that has one; and of the others the
    rows that are taken back.

    >>> _sum([(b"k", b"new", 1), (b"k", b"old", -1), (b"gone", b"old", -1), (b"back", b"it", -1), (b"back", b"it", 1)])
    ({b'k': b'new'}, {b'gone': {b'old'}})
    """
    sums: dict[bytes, dict[bytes, int]] = {}
    for key, row, weight in changes:
        if key is not None:
            of_key = sums.setdefault(key, {})
            of_key[row] = of_key.get(row, 0) + weight
    found: dict[bytes, bytes | None] = {}
    gone: dict[bytes, set[bytes]] = {}
    for key, of_key in sums.items():
        present = [row for row, weight in of_key.items() if weight > 0]
        if present:
            found[key] = present[0]
        elif taken := {row for row, weight in of_key.items() if weight < 0}:
            gone[key] = taken
    return found, gone


class SharedLookupRunner(Joining):
    """One lookup in a broadcast table."""

    def _find(
        self, run: StepRun, keys: Sequence[bytes], batch: Batch, rows: Sequence[int]
    ) -> tuple[pl.DataFrame, list[int | None]]:
        return run.step.shared[self.lookup.inputs[1].id].find(keys)


class LookupExchange(SendsRows):
    """Sends the rows of both sides as one table: the columns of the stream, then the table's, one side's of them null."""

    def __init__(self, lookup: Lookup) -> None:
        self.lookup = lookup
        self.key = Key(_SPELT)
        rows, table = (before.schema for before in lookup.inputs)
        self.rows = pl.Schema(rows)
        self.kept = {c: f"{_KEPT}{c}" for c in dict.fromkeys([*lookup.key.columns, *lookup.columns])}
        self.types = {_KEPT + c: table[c] for c in self.kept}
        self.runner = LookupRunner(lookup, {LOOKED_UP: 1}, None)

    def sent(self, run: StepRun, batch: Batch, port: int) -> pl.DataFrame:
        of_table = port == 1
        spelt = (self.lookup.key if of_table else self.lookup.on).encode(batch.rows)
        meta = {
            _SPELT: pl.Series(spelt, dtype=pl.Binary),
            _OF_TABLE: everywhere(of_table, len(batch)),
            TS: batch.meta[TS],
            WEIGHT: batch.meta[WEIGHT] if WEIGHT in batch.meta.columns else nulls(pl.Int64(), len(batch)),
        }
        given = {new: batch.rows[c] for c, new in self.kept.items()} if of_table else batch.rows.to_dict()
        types = {**self.rows, **self.types}
        return pl.DataFrame({**{c: given[c] if c in given else nulls(t, len(batch)) for c, t in types.items()}, **meta})

    def received(self, run: BucketRun, parcels: Iterator[tuple[Place, pl.DataFrame]]) -> Iterator[Batch]:
        waiting: list[tuple[Place, pl.DataFrame]] = []
        for place, frame in parcels:
            table = frame.filter(pl.col(_OF_TABLE))
            if table.height:
                self.runner.keep(run, self._of_table(table))
            if table.height < frame.height:
                waiting.append((place, frame.filter(~pl.col(_OF_TABLE))))
        for place, rows in waiting:
            origins = pl.Series([len(run.places)], dtype=pl.UInt32).new_from_index(0, rows.height).alias(ORIGIN)
            run.places.append(place)
            yield self.runner.joined(run, Batch(rows.select(self.rows.names()), rows.select(TS).hstack([origins])))

    def _of_table(self, table: pl.DataFrame) -> Batch:
        rows = table.select(pl.col(new).alias(c) for c, new in self.kept.items())
        return Batch(rows, table.select(TS, pl.col(WEIGHT).fill_null(1)))
