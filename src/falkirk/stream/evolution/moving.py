"""Rows that earlier versions of operators kept, on their way to where they are kept now.

    old table ──▶ decode ──▶ the user's functions, version by version ──▶ encode ──▶ new table, and the old row is deleted

A move is a step like any other, which reads nothing. A task moves some rows a step until there are no more; then it reads.

    every row is in one table, the old or the new
    below a mark there is no row of an old table
    a step that reads input finds no mark but MOVED

A mark is a row of an old table without a key: it says how far the search is, and those who take the task over go on there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from falkirk.errors import StateError
from falkirk.state import schema
from falkirk.state.codec import decode_values, encode_key, encode_values
from falkirk.state.store import State
from falkirk.stream.dataflow.operator import Change, Operator, Pairs
from falkirk.stream.dataflow.partitioners import EVERYTHING
from falkirk.stream.stages.kept import MOVED
from falkirk.stream.stages.stage import PhysicalStage

ROWS_A_STEP = 20_000
BYTES_A_STEP = 16 << 20
LOOKED_A_STEP = 1_000_000
"""Rows that are looked at, others' among them: a worker that looked for minutes would be taken for dead."""

_PREFIX = 3
"""Bytes of a key before its columns: shard and table."""


@dataclass(frozen=True, slots=True)
class TableMigration:
    """From a table of an earlier version to today's."""

    into: int | None
    """The number of today's table; None: there is none, and the rows go."""
    before: pl.Schema = field(default_factory=pl.Schema)
    after: pl.Schema = field(default_factory=pl.Schema)
    changes: tuple[Change, ...] = ()
    """None: rows go on as they are, byte for byte."""

    def puts(self, pairs: Pairs) -> dict[bytes, bytes | None]:
        """What is put, for rows that are found. Raises UserCodeError."""
        puts: dict[bytes, bytes | None] = dict.fromkeys(key for key, _ in pairs)
        if self.into is None:
            return puts
        values = [value for _, value in pairs]
        if self.changes:
            rows = decode_values(self.before, values)
            for change in self.changes:
                rows = change(rows, pairs)
            values = encode_values(self.after, rows)
        number = bytes([self.into])
        return puts | {key[:2] + number + key[_PREFIX:]: v for (key, _), v in zip(pairs, values, strict=True)}


class StateMigrator:
    """Of one task: all that its operators have to move."""

    def __init__(self, stage: PhysicalStage, first_shard: int, rows_a_step: int | None = None) -> None:
        """`rows_a_step`: None is ROWS_A_STEP."""
        self.task = stage.id
        self.rows_a_step = ROWS_A_STEP if rows_a_step is None else rows_a_step
        self.migrations: dict[int, TableMigration] = {}
        self.strange: dict[int, str] = {}
        """Tables of versions from which nothing leads on, in words."""
        self.marks: list[bytes] = []
        by_id = {o.id: o for o in stage.keeping}
        for line in schema.moved(stage.state_schema):
            operator = by_id[line.id]
            into = {table: n for (name, table), n in stage.tables.items() if name == operator.id}
            found = migrations(operator, line, into)
            self.migrations |= found
            self.strange |= {} if found else dict.fromkeys(line.numbers, line.words)
            self.marks.append(encode_key(line.numbers[0], first_shard, []))

    def moving(self, state: State) -> bool:
        """Whether anything may be left."""
        return bool(self._left(state))

    def _left(self, state: State) -> dict[bytes, bytes]:
        """The marks that are not done, and how far they are."""
        found = zip(self.marks, state.get(self.marks), strict=True)
        return {mark: at or EVERYTHING[0] for mark, at in found if at != MOVED}

    def move(self, state: State) -> None:
        """Move some rows. Raises UserCodeError and StateError."""
        found: dict[int, list[tuple[bytes, bytes]]] = {}
        left = self._left(state)
        count, size, reached = 0, 0, MOVED
        for looked, (key, value) in enumerate(state.scan(min(left.values()), EVERYTHING[1])):
            if count == self.rows_a_step or size > BYTES_A_STEP or looked == LOOKED_A_STEP:
                reached = key
                break
            if len(key) == _PREFIX or (number := key[2]) not in self.migrations:
                if len(key) > _PREFIX and key[2] in self.strange:
                    raise self._no_migration(self.strange[key[2]])
                continue
            found.setdefault(number, []).append((key, value))
            count, size = count + 1, size + len(key) + len(value)
        for number, pairs in found.items():
            puts = self.migrations[number].puts(pairs)
            state.put(list(puts), list(puts.values()))
        state.put(list(left), [reached] * len(left))

    def _no_migration(self, was: str) -> StateError:
        return StateError(
            f"state of an earlier version is not migrated yet, and migrate= does not say how: {was}",
            where=f"stage {self.task}",
            hint="give migrate= that version too, before those that followed, until all tasks have run so",
        )


def migrations(now: Operator, line: schema.Line, into: Mapping[str, int]) -> dict[int, TableMigration]:
    """From each table of what an operator kept to today's, `into` those of these numbers. Empty where nothing leads on."""
    chain = [*(e.operator for e in now.earlier), now]
    first = next((i for i, one in enumerate(chain) if one.state_words() == line.words), None)
    if first is None:
        return {}
    found = {}
    for table, number in zip(sorted(chain[first].tables()), line.numbers, strict=True):
        changes: list[Change] = []
        gone = False
        for earlier, after in zip(now.earlier[first:], chain[first + 1 :], strict=True):
            gone = gone or not after.carries(earlier.operator, table)
            if not gone and (change := after.change(earlier.operator, earlier.by.get(table), table)) is not None:
                changes.append(change)
        if gone:
            found[number] = TableMigration(None)
        elif changes:
            found[number] = TableMigration(
                into[table], chain[first].table_schemas()[table], now.table_schemas()[table], tuple(changes)
            )
        else:
            found[number] = TableMigration(into[table])
    return found
