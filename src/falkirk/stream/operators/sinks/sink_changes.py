"""What a sink writes of rows that change.

    mode       for the change of a step                                     reads back as
    append     a record for each row                                        rows, if nothing is taken back
    upsert     a record for each key that changed; a tombstone if gone      the last record of each key
    debezium   an envelope for each key that changed: before, after, op     −before + after, summed up
    weights    each changed row, with the column `weight`                   weight · row, summed up

A change is net: rows that come and go within one step leave no trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import polars as pl

from falkirk.errors import UserCodeError
from falkirk.stream.dataflow.batch import TS, WEIGHT, Batch, nulls
from falkirk.stream.dataflow.operator import RESERVED
from falkirk.stream.definition.outlets import WEIGHT_COLUMN
from falkirk.stream.formats import Key
from falkirk.stream.formats.debezium import AFTER, BEFORE, OP, envelope_of

SinkChanges: TypeAlias = Literal["append", "upsert", "debezium", "weights"]
TS_MS = "ts_ms"
"""In envelopes, the record's timestamp in milliseconds."""
_ROW, _OLD, _NEW, _GONE, _COME, _ALL = (f"{RESERVED}_{name}" for name in ("row", "old", "new", "gone", "come", "all"))
"""Columns beside those of the key, which may have any other name."""


class Log(NamedTuple):
    """Changes as records."""

    keyed: pl.DataFrame
    """Rows with the columns of keys."""
    values: pl.DataFrame
    times: pl.Series


def record_schema(mode: SinkChanges, rows: pl.Schema) -> pl.Schema:
    """The columns of a sink's records."""
    if mode == "debezium":
        return pl.Schema({**envelope_of(rows), TS_MS: pl.Int64()})
    return pl.Schema({**rows, WEIGHT_COLUMN: pl.Int64()}) if mode == "weights" else rows


def net(batch: Batch) -> pl.DataFrame:
    """The rows with a weight after all, each once, with the greatest timestamp."""
    return (
        batch.rows.hstack(batch.meta.select(TS, WEIGHT))
        .group_by(batch.rows.columns, maintain_order=True)
        .agg(pl.col(WEIGHT).sum(), pl.col(TS).max())
        .filter(pl.col(WEIGHT) != 0)
    )


def logged(mode: SinkChanges, batch: Batch, key: Key | None, where: str) -> Log:
    """The records of a change. Raises UserCodeError if a key has more than one row."""
    names = batch.rows.columns
    if WEIGHT not in batch.meta.columns:
        places = pl.Series(range(len(batch)), dtype=pl.UInt32)
        values = (
            batch.rows.with_columns(pl.lit(1, pl.Int64).alias(WEIGHT_COLUMN))
            if mode == "weights"
            else _envelopes(batch.rows, nulls(pl.UInt32(), len(batch)), places, batch.meta[TS])
        )
        return Log(batch.rows, values, batch.meta[TS])
    # A row that replaces another comes after it.
    rows = net(batch).sort(pl.col(WEIGHT) > 0, maintain_order=True)
    if mode == "weights":
        return Log(rows.select(names), rows.select(*names, pl.col(WEIGHT).alias(WEIGHT_COLUMN)), rows[TS])
    assert key is not None
    rows, columns = by_key(rows, key.columns)
    at = (
        rows.with_row_index(_ROW)
        .group_by(columns, maintain_order=True)
        .agg(
            pl.col(_ROW).filter(pl.col(WEIGHT) < 0).first().alias(_OLD),
            pl.col(_ROW).filter(pl.col(WEIGHT) > 0).first().alias(_NEW),
            pl.col(WEIGHT).filter(pl.col(WEIGHT) < 0).sum().neg().alias(_GONE),
            pl.col(WEIGHT).filter(pl.col(WEIGHT) > 0).sum().alias(_COME),
            pl.col(TS).max(),
        )
    )
    for weights in (at[_GONE], at[_COME]):
        check_once(at.select(columns), weights, where)
    known = rows.select(names)
    keyed = known[at[_NEW].fill_null(at[_OLD])]
    return Log(keyed, _envelopes(known, at[_OLD], at[_NEW], at[TS]), at[TS])


class FinalRows(NamedTuple):
    """A change as one row for each key."""

    rows: pl.DataFrame
    """The row after the change; if the key has none, one that it had before."""
    here: pl.Series
    """Whether the key has a row after the change."""
    times: pl.Series


def final_rows(batch: Batch, key: Sequence[str], where: str) -> FinalRows:
    """A Z-set as updates: the added row of a key is now visible. A key without an added row is gone. Raises UserCodeError if
    a key has more than one row."""
    names, rows = batch.rows.columns, net(batch)
    rows, columns = by_key(rows, key)
    last = (
        rows.with_row_index(_ROW)
        .group_by(columns, maintain_order=True)
        .agg(
            pl.col(_ROW).filter(pl.col(WEIGHT) > 0).first().alias(_NEW),
            pl.col(_ROW).first().alias(_OLD),
            pl.col(WEIGHT).filter(pl.col(WEIGHT) > 0).sum(),
            pl.col(TS).max(),
        )
    )
    check_once(last.select(columns), last[WEIGHT], where)
    shown = rows.select(names)[last[_NEW].fill_null(last[_OLD])]
    return FinalRows(shown, last[_NEW].is_not_null(), last[TS])


def by_key(rows: pl.DataFrame, key: Sequence[str]) -> tuple[pl.DataFrame, list[str]]:
    """The rows, and the columns by which those of one key are grouped."""
    if key:
        return rows, list(key)
    return rows.with_columns(pl.lit(value=True).alias(_ALL)), [_ALL]


def check_once(keys: pl.DataFrame, rows: pl.Series, where: str) -> None:
    """Raises UserCodeError if a key has more than one row. `rows` is the number of rows of each key."""
    if len(rows) and rows.max() > 1:  # type: ignore[operator]
        raise UserCodeError(
            f"two rows have the key {keys.row((rows > 1).arg_true()[0], named=True)}",
            where=where,
            hint="key the sink by what tells rows apart",
        )


def _envelopes(rows: pl.DataFrame, before: pl.Series, after: pl.Series, times: pl.Series) -> pl.DataFrame:
    """`before` and `after`: the places of rows, null where there is none."""
    whole = rows.to_struct(BEFORE).to_frame()
    old, new = (whole.select(pl.col(BEFORE).gather(places)).to_series() for places in (before, after))
    op = (
        pl.when(before.is_null()).then(pl.lit("c"))
        .when(after.is_null()).then(pl.lit("d"))
        .otherwise(pl.lit("u")).alias(OP)
    )  # fmt: skip
    return pl.DataFrame([old, new.alias(AFTER), times.alias(TS_MS)]).select(BEFORE, AFTER, op, TS_MS)
