"""The columns and expressions that users give to aggregates."""

from __future__ import annotations

from typing import NamedTuple

import narwhals as nw
import polars as pl

from falkirk.errors import DefinitionError
from falkirk.state.cells import as_decimal
from falkirk.stream.aggregates.bound import Context
from falkirk.stream.definition.expressions import IntoExpr, evaluate


class Argument(NamedTuple):
    """One argument, checked."""

    column: str
    """The name of its result."""
    expr: nw.Expr
    dtype: pl.DataType


def physical(dtype: pl.DataType) -> pl.DataType:
    """The type of a column in keys and values of state."""
    return pl.Int128() if isinstance(dtype, pl.Decimal) else dtype


def in_state(column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """A column of this type, as keys and values of state have it."""
    return column.to_physical() if isinstance(dtype, pl.Decimal) else column


def of_state(column: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Back from there."""
    return as_decimal(column, dtype.scale, dtype.precision) if isinstance(dtype, pl.Decimal) else column


def one_zero(column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """A column of this type in which −0.0 is 0.0. They are equal, and the result would depend on which comes first."""
    # Polars leaves −0.0 + 0.0 as it is, if it adds a scalar to several values.
    return pl.when(column == 0).then(pl.lit(0.0, dtype)).otherwise(column) if dtype.is_float() else column


def checked_argument(kind: str, of: IntoExpr, context: Context) -> Argument:
    """Raises DefinitionError unless it is one column or one row-wise expression."""
    where = f"{kind} in {context.where}"
    if not isinstance(of, (str, nw.Expr)):
        raise DefinitionError(f"{of!r} is neither a column nor an expression", where=where, hint=f'fk.{kind}("price")')
    expr = nw.col(of) if isinstance(of, str) else of
    schema = evaluate([expr], context.schema, "select", where)
    if len(schema) != 1:
        raise DefinitionError(f"{kind} takes one column, and {expr} gives {len(schema)}", where=where)
    ((column, dtype),) = schema.items()
    return Argument(column, expr, dtype)
