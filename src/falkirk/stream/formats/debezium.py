"""Debezium's change events in JSON, with and without their schema: what a row was before, and what it is after.

without schema   {"before": …, "after": …, "op": "u", …}
with schema      {"schema": …, "payload": {"before": …, "after": …, "op": "u", …}}
tombstone        no value; it follows a deletion, for compaction, and says nothing new

op         before               after
c, r       -                    the row              created; read by a snapshot
u          the row before       the row              updated
d          the row before       -                    deleted
t          -                    -                    the table is truncated: refused, because no rows are named

A large value that an update did not change may be missing from the log: Debezium then writes a placeholder for it. Such a
row is not known, so the record is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import md5
from typing import Any
from uuid import UUID

import polars as pl

from falkirk.errors import DefinitionError
from falkirk.stream.formats.base import Decoded
from falkirk.stream.formats.json import Json, without
from falkirk.stream.formats.key import KeyLike, key_of
from falkirk.stream.formats.types import instance

BEFORE, AFTER, OP = "before", "after", "op"
TOMBSTONE = "tombstone"
"""The op of a record without a value."""
PLACEHOLDER = "__debezium_unavailable_value"
_BYTES = PLACEHOLDER.encode()
_PAYLOAD = "payload"


def envelope_of(row: pl.Schema) -> pl.Schema:
    """The columns of the change events of rows with these columns.

    >>> list(envelope_of(pl.Schema({"id": pl.Int64()})))
    ['before', 'after', 'op']
    """
    return pl.Schema({BEFORE: pl.Struct(row), AFTER: pl.Struct(row), OP: pl.String()})


class Debezium(Json):
    """Change events of one table.

    >>> events = Debezium(Json({"id": int, "name": str}), key="id")
    >>> events.decode([b'{"op": "c", "after": {"id": 7, "name": "lamp"}}', None]).frame["op"].to_list()
    ['c', 'tombstone']
    >>> events.decode([b'{"op": "t"}']).bad
    [(0, "op 't' names no rows: Debezium leaves truncates out with skipped.operations=t")]
    """

    def __init__(self, row: Json, key: KeyLike | None = None) -> None:
        """`row` is the format of the rows. With a `key`, a row before is needed for its key alone, and only in deletions.
        Raises DefinitionError for a format that compares the fields: an envelope has others."""
        assert row.schema is not None
        if (row.extra, row.missing) != ("ignore", "null"):
            raise DefinitionError(
                "an envelope has more fields than the row",
                where=repr(row),
                hint='leave out extra="refuse" and missing="refuse"',
            )
        own = envelope_of(row.schema)
        super().__init__(dict(own))
        self.row = row.schema
        self.key = None if key is None else key_of(key)
        """That of the row, by which Debezium writes the records."""
        self._whole = Json({**own, _PAYLOAD: pl.Struct(own)})

    def __repr__(self) -> str:
        return f"Debezium{super().__repr__()[len('Json') :]}"

    def project(self, columns: Sequence[str]) -> Debezium:
        """The same: all of an envelope is needed to understand it."""
        return self

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """A row of before, after and op for each record; no value is a tombstone."""
        nothing = b'{"op":"%s"}' % TOMBSTONE.encode()
        decoded = self._whole.decode([nothing if value is None else value for value in values])
        inside = pl.col(_PAYLOAD)
        frame = decoded.frame.select(
            pl.when(inside.is_not_null()).then(inside.struct.field(c)).otherwise(pl.col(c)).alias(c)
            for c in (BEFORE, AFTER, OP)
        )
        wrong = frame.select(self._flaw()).to_series()
        if wrong.null_count() == len(wrong):
            return Decoded(frame, decoded.bad)
        lost = {i for i, _ in decoded.bad}
        numbers = [i for i in range(len(values)) if i not in lost]
        flaws = {numbers[i]: wrong[i] for i in wrong.is_not_null().arg_true()}
        return without(Decoded(frame, decoded.bad), flaws)

    def keys(self, events: pl.DataFrame) -> list[bytes | None]:
        """The keys of the records of these events: a deletion has its row before, all others the row after.

        >>> before, after = [None, {"id": 7}], [{"id": 7}, None]
        >>> Debezium(Json({"id": int}), key="id").keys(pl.DataFrame({"before": before, "after": after, "op": ["c", "d"]}))
        [b'7', b'7']
        """
        if self.key is None:
            return [None] * events.height
        row = pl.when(pl.col(OP) == "d").then(pl.col(BEFORE)).otherwise(pl.col(AFTER))
        return self.key.encode(events.select(row.struct.field(c).alias(c) for c in self.key.columns))

    def _flaw(self) -> pl.Expr:
        """Why an envelope cannot be understood; null if it can."""
        op, before, after = pl.col(OP), pl.col(BEFORE), pl.col(AFTER)
        named, comes = pl.concat_str(pl.lit("op '"), op, pl.lit("'")), op.is_in(["c", "r", "u"])
        keyless: pl.Expr = pl.lit(None, pl.String())
        if self.key is not None:
            key = self.key.columns
            columns = ", ".join(key)
            nameless, unnamed = (
                pl.any_horizontal(side.struct.field(c).is_null() for c in key) for side in (before, after)
            )
            lacks = (op == "d") & (before.is_null() | nameless)
            why = f" without {columns} in before: it is not known which row is gone"
            moved = pl.any_horizontal(before.struct.field(c) != after.struct.field(c) for c in key)
            keyless = (
                pl.when(comes & unnamed).then(pl.concat_str(named, pl.lit(f" without {columns} in after")))
                .when((op == "u") & moved).then(pl.concat_str(named, pl.lit(
                    f" changes {columns}: Debezium writes a deletion and a creation, if the source's key is the table's")))
            )  # fmt: skip
        else:
            lacks = op.is_in(["u", "d"]) & before.is_null()
            why = " without before: set REPLICA IDENTITY FULL, or give the source a key, which takes it from state"
        return (
            pl.when(op.is_null()).then(pl.lit("not an envelope of Debezium: it has no op"))
            .when(op == "t").then(pl.concat_str(named, pl.lit(
                " names no rows: Debezium leaves truncates out with skipped.operations=t")))
            .when(~comes & ~op.is_in(["d", TOMBSTONE])).then(pl.concat_str(named, pl.lit(" is not known")))
            .when(comes & after.is_null()).then(pl.concat_str(named, pl.lit(" without after")))
            .when(lacks).then(pl.concat_str(named, pl.lit(why)))
            .otherwise(pl.coalesce(keyless, *self._unsent()))
        )  # fmt: skip

    def _unsent(self) -> Iterator[pl.Expr]:
        """Of each column that may be large, the reason if its value was not sent."""
        for column, dtype in self.row.items():
            value = pl.col(AFTER).struct.field(column)
            why = f"field 'after.{column}': Debezium has no value for it: set REPLICA IDENTITY FULL"
            for placeholder in _placeholders(dtype):
                yield pl.when(value == placeholder).then(pl.lit(why))


def _placeholders(dtype: pl.DataType) -> Iterator[pl.Expr]:
    """What Debezium writes in place of a value of this type that was not sent: an array has the placeholder as its only
    item, or has its bytes as numbers."""
    inner = instance(dtype.inner) if isinstance(dtype, pl.List) else dtype
    items: list[list[Any]] = []
    if inner == pl.String():
        items = [[PLACEHOLDER], [str(UUID(bytes=md5(_BYTES, usedforsecurity=False).digest(), version=3))]]
    elif inner == pl.Binary():
        items = [[_BYTES]]
    elif isinstance(dtype, pl.List) and (inner.is_integer() or inner.is_float()):
        items = [list(_BYTES)]
    for each in items:
        yield pl.lit(pl.Series([each], dtype=dtype)) if isinstance(dtype, pl.List) else pl.lit(each[0])
