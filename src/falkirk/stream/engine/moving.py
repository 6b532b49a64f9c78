"""Rows that earlier versions of operators kept, on their way to where they are kept now.

    old table ──▶ decode ──▶ the user's functions, version by version ──▶ encode ──▶ new table, and the old row is deleted

A move is a step like any other, which reads nothing. A task moves some rows a step until there are no more; then it reads.

    every row is in one table, the old or the new
    below a mark there is no row of an old table
    a step that reads input finds no mark but MOVED

A mark is a row of an old table without a key: it says how far the search is, and those who take the task over go on there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import polars as pl

from falkirk.errors import StateError, UserCodeError
from falkirk.state import schema
from falkirk.state.codec import decode_key, decode_values, encode_key, encode_values
from falkirk.stream import operators as op
from falkirk.stream.blame import raised
from falkirk.stream.circuit import State
from falkirk.stream.earlier import Function
from falkirk.stream.engine.partitioners import EVERYTHING
from falkirk.stream.expressions import words
from falkirk.stream.frames import frame_if_all_fit, frame_of, misfits
from falkirk.stream.migrating import kept_aggregates
from falkirk.stream.stage import PhysicalStage
from falkirk.stream.tables import GROUPS, MOVED, ROWS, group_schema, state_words, tables_of

ROWS_A_STEP = 20_000
BYTES_A_STEP = 16 << 20
LOOKED_A_STEP = 1_000_000
"""Rows that are looked at, others' among them: a worker that looked for minutes would be taken for dead."""

_PREFIX = 3
"""Bytes of a key before its columns: shard and table."""

Pairs = Sequence[tuple[bytes, bytes]]
Change = Callable[[pl.DataFrame, Pairs], pl.DataFrame]
"""Rows of a table in one version, and whose they are, to rows in the next."""


@dataclass(frozen=True, slots=True)
class Way:
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


class Mover:
    """Of one task: all that its operators have to move."""

    def __init__(self, stage: PhysicalStage, first_shard: int) -> None:
        self.task = stage.id
        self.ways: dict[int, Way] = {}
        self.strange: dict[int, str] = {}
        """Tables of versions from which nothing leads on, in words."""
        self.marks: list[bytes] = []
        by_id = {o.id: o for o in stage.keeping}
        for line in schema.moved(stage.state_schema):
            operator = by_id[line.id]
            into = {table: n for (name, table), n in stage.tables.items() if name == operator.id}
            found = ways(operator, line, into)
            self.ways |= found
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
            if count == ROWS_A_STEP or size > BYTES_A_STEP or looked == LOOKED_A_STEP:
                reached = key
                break
            if len(key) == _PREFIX or (number := key[2]) not in self.ways:
                if len(key) > _PREFIX and key[2] in self.strange:
                    raise self._no_way(self.strange[key[2]])
                continue
            found.setdefault(number, []).append((key, value))
            count, size = count + 1, size + len(key) + len(value)
        for number, pairs in found.items():
            puts = self.ways[number].puts(pairs)
            state.put(list(puts), list(puts.values()))
        state.put(list(left), [reached] * len(left))

    def _no_way(self, was: str) -> StateError:
        return StateError(
            f"there is state of an earlier version that has not been migrated yet, and nothing says how to: {was}",
            where=f"stage {self.task}",
            hint="give migrate= that version too, before those that followed, until all tasks have run so",
        )


def ways(now: op.Operator, line: schema.Line, into: Mapping[str, int]) -> dict[int, Way]:
    """From each table of what an operator kept to today's, `into` those of these numbers. Empty where nothing leads on."""
    chain = [*(e.operator for e in now.earlier), now]
    first = next((i for i, one in enumerate(chain) if state_words(one) == line.words), None)
    if first is None:
        return {}
    found = {}
    for table, number in zip(sorted(tables_of(chain[first])), line.numbers, strict=True):
        changes: list[Change] = []
        gone = False
        for earlier, after in zip(now.earlier[first:], chain[first + 1 :], strict=True):
            gone = gone or not _goes_on(earlier.operator, after, table)
            if not gone and (change := _change(earlier, after, table)) is not None:
                changes.append(change)
        if gone:
            found[number] = Way(None)
        elif changes:
            found[number] = Way(into[table], _rows_of(chain[first], table), _rows_of(now, table), tuple(changes))
        else:
            found[number] = Way(into[table])
    return found


def _goes_on(was: op.Operator, now: op.Operator, table: str) -> bool:
    """Whether there is still such a table, of the same things."""
    if isinstance(was, op.Group) and isinstance(now, op.Group) and table != GROUPS:
        return table in {b.name for b in kept_aggregates(was, now)}
    return table in tables_of(now)


def _rows_of(operator: op.Operator, table: str) -> pl.Schema:
    if isinstance(operator, op.Group):
        return group_schema(operator)
    assert isinstance(operator, op.Processing)
    return operator.tables[table]


def _change(earlier: op.Earlier, now: op.Operator, table: str) -> Change | None:
    """What happens to the rows of a table; None: nothing."""
    was, function = earlier.operator, earlier.by.get(table)
    if isinstance(was, op.Group) and isinstance(now, op.Group):
        same = table != GROUPS or (function is None and group_schema(was) == group_schema(now))
        return None if same else partial(_regrouped, was, now, function)
    return None if function is None else partial(_changed, was, function, _rows_of(now, table), ())


def _regrouped(was: op.Group, now: op.Group, function: Function | None, rows: pl.DataFrame, of: Pairs) -> pl.DataFrame:
    """Aggregates that are the same keep their parts; the others have what the function says, or nothing."""
    kept = [column for b in kept_aggregates(was, now) for column in b.states()]
    schema = group_schema(now)
    others = pl.Schema({c: t for c, t in schema.items() if c not in kept})
    if function is None:
        made = frame_of([{}] * rows.height, others)
    else:
        made = _changed(was, function, others, [c for c in rows.columns if c.startswith(f"{ROWS}.")], rows, of)
    return pl.DataFrame([(rows if column in kept else made)[column] for column in schema])


def _changed(
    was: op.Operator, function: Function, schema: pl.Schema, hidden: Sequence[str], rows: pl.DataFrame, of: Pairs
) -> pl.DataFrame:
    """What a user's function makes of each row. Raises UserCodeError."""
    made: list[Any] = []
    for i, row in enumerate(rows.drop(hidden).iter_rows(named=True)):
        try:
            made.append(function(row))
        except Exception as error:
            name = getattr(function, "__name__", type(function).__name__)
            raise _failed(was, raised(f"{name}({row})", error), of[i][0]) from error
    if (frame := frame_if_all_fit(made, schema)) is not None:
        return frame
    wrong = misfits(made, schema)[0]
    what = f"`by` gave {made[wrong]!r}, which is no row of the version after it: {words(schema)}"
    raise _failed(was, what, of[wrong][0])


def _failed(was: op.Operator, what: str, key: bytes) -> UserCodeError:
    where = f"migrate= of {was.where}, version {getattr(was, 'version', '')}, key {decode_key(key)[2]}"
    return UserCodeError(
        what, where=where, hint="fix it and start again: it is then given all rows that are not moved yet"
    )
