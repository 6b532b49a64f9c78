"""Where a sink outside Kafka writes, and how often.

FilesPlan     Parquet files in a folder or bucket
TablePlan     a table of a PostgreSQL database, which the flow names and the settings of a run give the address of
DeltaPlan     a Delta Lake table in a folder or bucket
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, TypeAlias

import polars as pl

WEIGHT_COLUMN = "weight"
"""The column of a change's weight: 1 for a row that comes, −1 for one that goes."""
GONE = "__falkirk_gone"
"""In the log of a table with a key: whether the step removed the row of this key."""


@dataclass(frozen=True, slots=True)
class FilesPlan:
    """A sink of Parquet files."""

    url: str
    """A folder, or the URL of a folder or bucket."""
    every: timedelta
    """The rows of each task that were committed meanwhile become one file, or a few."""

    kind: ClassVar[str] = "files"
    """Where it writes, in a word."""
    what: ClassVar[str] = "files"
    """What it writes, for messages."""


@dataclass(frozen=True, slots=True)
class TablePlan:
    """A sink of a table.

    >>> plan = TablePlan("shop", "totals", ("customer",), pl.Schema({"customer": pl.String()}), timedelta(seconds=1))
    >>> plan.what, plan.schema_name, plan.table_name
    ('rows of table totals', None, 'totals')
    """

    database: str
    """Its name in the settings. The address holds a password, so that no flow has it."""
    table: str
    """NAME or SCHEMA.NAME."""
    key: tuple[str, ...]
    """The columns that identify a row; none: rows are only added."""
    columns: pl.Schema
    every: timedelta
    """For how long a task's committed rows are collected."""

    kind: ClassVar[str] = "table"

    @property
    def what(self) -> str:
        """What it writes, for messages."""
        return f"rows of table {self.table}"

    @property
    def schema_name(self) -> str | None:
        """The schema, if the flow names one."""
        schema, dot, _ = self.table.rpartition(".")
        return schema if dot else None

    @property
    def table_name(self) -> str:
        """The table without its schema."""
        return self.table.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class DeltaPlan:
    """A sink of a Delta Lake table.

    >>> plan = DeltaPlan("lake/totals", ("customer",), pl.Schema({"customer": pl.String()}), timedelta(seconds=10))
    >>> plan.what, plan.kind
    ('rows of table lake/totals', 'table')
    """

    url: str
    """A folder, or the URL of a folder in a bucket."""
    key: tuple[str, ...]
    """The columns that identify a row; none: rows are only added."""
    columns: pl.Schema
    every: timedelta
    """The rows of each task that were committed meanwhile become one commit of the table, or a few."""

    kind: ClassVar[str] = "table"

    @property
    def what(self) -> str:
        """What it writes, for messages."""
        return f"rows of table {self.url}"


OutletPlan: TypeAlias = FilesPlan | TablePlan | DeltaPlan


def postgres_type(dtype: pl.DataType) -> str | None:
    """PostgreSQL's type for a column, which holds each value exactly; None if it has none.

    >>> [postgres_type(t) for t in (pl.Int64(), pl.UInt64(), pl.Decimal(12, 2), pl.Datetime("ms", "UTC"))]
    ['bigint', 'numeric(20,0)', 'numeric(12,2)', 'timestamp with time zone']
    >>> postgres_type(pl.List(pl.String())), postgres_type(pl.Duration("ms")), postgres_type(pl.List(pl.Duration("ms")))
    ('jsonb', None, None)
    """
    match dtype:
        case pl.Decimal():
            return f"numeric({dtype.precision or 38},{dtype.scale})"
        case pl.Datetime():
            zone = "with" if dtype.time_zone is not None else "without"
            return None if dtype.time_unit == "ns" else f"timestamp {zone} time zone"
        case pl.List() | pl.Array():
            return "jsonb" if postgres_type(pl.Series(dtype=dtype.inner).dtype) else None
        case pl.Struct():
            return "jsonb" if all(postgres_type(pl.Series(dtype=each.dtype).dtype) for each in dtype.fields) else None
        case pl.Enum() | pl.Categorical():
            return "text"
    return _TYPES.get(dtype)


_TYPES: dict[pl.DataType, str] = {
    pl.Boolean(): "boolean",
    pl.Int8(): "smallint",
    pl.Int16(): "smallint",
    pl.Int32(): "integer",
    pl.Int64(): "bigint",
    pl.UInt8(): "smallint",
    pl.UInt16(): "integer",
    pl.UInt32(): "bigint",
    pl.UInt64(): "numeric(20,0)",
    pl.Float32(): "real",
    pl.Float64(): "double precision",
    pl.String(): "text",
    pl.Binary(): "bytea",
    pl.Date(): "date",
    pl.Time(): "time without time zone",
}


def delta_type(dtype: pl.DataType) -> pl.DataType | None:
    """The type that a Delta Lake table has for a column, which holds each value exactly; None if it has none.

    >>> [delta_type(t) for t in (pl.UInt32(), pl.UInt64(), pl.Datetime("ms", "UTC"), pl.Enum(["a"]), pl.Time())]
    [Int64, Decimal(precision=20, scale=0), Datetime(time_unit='us', time_zone='UTC'), String, None]
    >>> delta_type(pl.List(pl.Struct({"n": pl.UInt8()}))), delta_type(pl.List(pl.Duration("ms")))
    (List(Struct({'n': Int16})), None)
    """
    match dtype:
        case pl.Decimal():
            return pl.Decimal(dtype.precision or 38, dtype.scale)
        case pl.Datetime():
            zone = None if dtype.time_zone is None else "UTC"
            return None if dtype.time_unit == "ns" else pl.Datetime("us", zone)
        case pl.List() | pl.Array():
            inner = delta_type(pl.Series(dtype=dtype.inner).dtype)
            return None if inner is None else pl.List(inner)
        case pl.Struct():
            fields = {field.name: delta_type(pl.Series(dtype=field.dtype).dtype) for field in dtype.fields}
            known = {name: each for name, each in fields.items() if each is not None}
            return pl.Struct(known) if known and len(known) == len(fields) else None
        case pl.Enum() | pl.Categorical():
            return pl.String()
    return _DELTA_TYPES.get(dtype)


_DELTA_TYPES: dict[pl.DataType, pl.DataType] = {
    **{
        each: each
        for each in (
            pl.Boolean(), pl.Int8(), pl.Int16(), pl.Int32(), pl.Int64(), pl.Float32(), pl.Float64(), pl.String(),
            pl.Binary(), pl.Date(),
        )
    },
    pl.UInt8(): pl.Int16(),
    pl.UInt16(): pl.Int32(),
    pl.UInt32(): pl.Int64(),
    pl.UInt64(): pl.Decimal(20, 0),
}  # fmt: skip
