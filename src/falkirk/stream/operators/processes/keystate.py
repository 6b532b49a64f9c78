"""The state and timers of the keys in a step: one call per table reads them, and one call per table writes them.

.timers    key → its timers            the truth, which moves with the key's shard
.due       (time, key, name) → ∅       the order of time, under the task's first shard: one scan finds what is due
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from falkirk.errors import UserCodeError
from falkirk.state.codec import decode_keys, decode_values, encode_key, encode_keys, encode_values, prefix_end
from falkirk.state.store import State
from falkirk.stream.dataflow.catching import Misfit
from falkirk.stream.dataflow.operator import Operator
from falkirk.stream.dataflow.partitioners import some_keys
from falkirk.stream.definition.expressions import words
from falkirk.stream.definition.frames import MISFITS, fits, flaw, frame_of
from falkirk.stream.formats.rows import Row

Shards = npt.NDArray[np.uint16]


TIMERS, DUE = ".timers", ".due"
"""A process's timers: by key, and in the order of time."""


class Saved(NamedTuple):
    """A key's earlier state."""

    rows: dict[str, Row | None]
    put_by: dict[str, Callable[[], str]]
    timers: dict[str, int]


class KeyState:
    """One key's rows and timers during a step: the stored values, overlaid with the step's writes."""

    def __init__(self, clock: int, schemas: Mapping[str, pl.Schema]) -> None:
        self.clock, self.schemas = clock, schemas
        self.rows: dict[str, Row | None] = {}
        self.put_by: dict[str, Callable[[], str]] = {}
        """The tables with writes, and the place of the last call that wrote to each."""
        self.timers: dict[str, int] = {}
        self.timers_read: dict[str, int] = {}
        self.where: Callable[[], str] = str
        """The place of the current call."""

    def get(self, table: str) -> Row | None:
        row = self._row(table)
        return None if row is None else dict(row)

    def put(self, table: str, row: Any) -> None:
        self._row(table)
        schema = self.schemas[table]
        if row is not None:
            if not isinstance(row, Mapping) or row.keys() - schema.keys():
                raise ValueError(_no_row(table, row, schema))
            row = {name: row.get(name) for name in schema}
        self.rows[table] = row
        self.put_by[table] = self.where

    def saved(self) -> Saved:
        """The key's current state."""
        return Saved(dict(self.rows), dict(self.put_by), dict(self.timers))

    def restore(self, saved: Saved) -> None:
        """Restore the earlier state."""
        self.rows, self.put_by, self.timers = dict(saved.rows), dict(saved.put_by), dict(saved.timers)

    def check(self, table: str) -> None:
        """Raises Misfit if the row of a table does not fit the table's schema."""
        row = self.rows[table]
        if row is not None and not fits(row, self.schemas[table]):
            raise no_row_of(table, row, self.schemas[table])

    def set_timer(self, name: str, at: int) -> None:
        self.timers[name] = at

    def delete_timer(self, name: str) -> None:
        self.timers.pop(name, None)

    def _row(self, table: str) -> Row | None:
        if table not in self.schemas:
            known = ", ".join(self.schemas) or "none: give process(…, state={…})"
            raise KeyError(f"there is no table {table!r}; there are {known}")
        return self.rows[table]


class KeyTables:
    """The tables of one process in one task."""

    def __init__(self, operator: Operator, numbers: Mapping[str, int], first_shard: int) -> None:
        self.operator, self.numbers, self.first_shard = operator, numbers, first_shard
        self.keys = pl.Schema({c: operator.inputs[0].schema[c] for c in operator.state_columns})
        self.due_keys = due_schema(operator)

    def due(self, state: State, clock: int) -> pl.DataFrame:
        """The timers that are due, in (time, key, name) order: columns `.at`, those of the key, `.name`."""
        first = encode_key(self.numbers[DUE], self.first_shard, [])
        last = encode_key(self.numbers[DUE], self.first_shard, [clock + 1])
        keys = [key for key, _ in state.scan(first, last)]
        return decode_keys(self.due_keys, keys) if keys else self.due_keys.to_frame()

    def wake_at(self, state: State) -> int | None:
        """When the first timer is due."""
        first = encode_key(self.numbers[DUE], self.first_shard, [])
        for key, _ in state.scan(first, prefix_end(first)):
            return int(decode_keys(self.due_keys, [key])[".at"][0])
        return None

    def full_keys(self, table: str, shards: Shards, keys: pl.DataFrame) -> list[bytes]:
        """Keys in state, one for each row of `keys`."""
        return encode_keys(self.numbers[table], shards, keys.get_columns())

    def known(self, state: State) -> pl.DataFrame:
        """Some keys that the task has."""
        ours = {number for table, number in self.numbers.items() if table != DUE}
        return decode_keys(self.keys, some_keys(state, ours))

    def read(self, state: State, clock: int, shards: Shards, keys: pl.DataFrame) -> list[KeyState]:
        """The state of each key."""
        known = [KeyState(clock, self.operator.table_schemas()) for _ in range(keys.height)]
        for table, schema in self.operator.table_schemas().items():
            found = state.get(self.full_keys(table, shards, keys))
            rows = iter(decode_values(schema, [v for v in found if v is not None]).rows(named=True))
            for of_key, value in zip(known, found, strict=True):
                of_key.rows[table] = None if value is None else next(rows)
        for of_key, value in zip(known, state.get(self.full_keys(TIMERS, shards, keys)), strict=True):
            if value is not None:
                of_key.timers_read = msgspec.msgpack.decode(value)
                of_key.timers = dict(of_key.timers_read)
        return known

    def write(self, state: State, known: Sequence[KeyState], shards: Shards, keys: pl.DataFrame) -> None:
        """Stage the changes. If a row does not fit its table, stages nothing and raises UserCodeError from a Misfit."""
        puts: list[tuple[list[bytes], list[bytes | None]]] = []
        for table, schema in self.operator.table_schemas().items():
            put = [i for i, of_key in enumerate(known) if table in of_key.put_by]
            if put:
                rows = [known[i].rows[table] for i in put]
                kept = iter(encode_values(schema, self._frame(table, schema, [known[i] for i in put])))
                values = [None if row is None else next(kept) for row in rows]
                puts.append((self.full_keys(table, shards[put], keys[put]), values))
        for full, staged in puts:
            state.put(full, staged)
        moved = [i for i, of_key in enumerate(known) if of_key.timers != of_key.timers_read]
        if moved:
            timers = [
                msgspec.msgpack.encode(dict(sorted(t.items()))) if (t := known[i].timers) else None for i in moved
            ]
            state.put(self.full_keys(TIMERS, shards[moved], keys[moved]), timers)
            for which, value in (("timers_read", None), ("timers", b"")):
                self._put_due(state, moved, [getattr(known[i], which) for i in moved], keys, value)

    def _put_due(
        self,
        state: State,
        moved: Sequence[int],
        timers: Sequence[dict[str, int]],
        keys: pl.DataFrame,
        value: bytes | None,
    ) -> None:
        rows = [(at, i, name) for i, named in zip(moved, timers, strict=True) for name, at in sorted(named.items())]
        if rows:
            of_keys = keys[[i for _, i, _ in rows]]
            columns = [
                pl.Series([at for at, _, _ in rows], dtype=pl.Int64),
                *of_keys.get_columns(),
                pl.Series([name for _, _, name in rows], dtype=pl.String),
            ]
            full = encode_keys(self.numbers[DUE], np.full(len(rows), self.first_shard, np.uint16), columns)
            state.put(full, [value] * len(full))

    def _frame(self, table: str, schema: pl.Schema, known: Sequence[KeyState]) -> pl.DataFrame:
        rows: list[Any] = [row for of_key in known if (row := of_key.rows[table]) is not None]
        try:
            return frame_of(rows, schema)
        except MISFITS:
            for of_key in known:
                try:
                    of_key.check(table)
                except Misfit as error:
                    raise UserCodeError(error.what, where=of_key.put_by[table]()) from error
            raise


def due_schema(operator: Operator) -> pl.Schema:
    """The columns of the timers in the order of time."""
    keys = {c: operator.inputs[0].schema[c] for c in operator.state_columns}
    return pl.Schema({".at": pl.Int64(), **keys, ".name": pl.String()})


def no_row_of(table: str, row: Any, schema: pl.Schema) -> Misfit:
    """The error for a row that does not fit a table."""
    return Misfit(_no_row(table, row, schema), "")


def _no_row(table: str, row: Any, schema: pl.Schema) -> str:
    columns = words(schema)
    return f"{row!r} is not a valid row of table {table!r}, whose columns are {columns}: {flaw(row, schema)}"
