"""insert into t values (…): constants as rows of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import narwhals as nw
import polars as pl
from sqlglot import exp

from falkirk.blame import did_you_mean
from falkirk.stream.sql.scalar.expressions import Expressions
from falkirk.stream.sql.scalar.times import parsed
from falkirk.stream.sql.scalar.types import sql_type
from falkirk.stream.sql.text import Text

_ONE = pl.DataFrame({"": [True]})


def rows_of(statement: exp.Insert, schema: Mapping[str, pl.DataType], text: Text) -> pl.DataFrame:
    """The rows, with the types of the table. A column that is not named is null. Raises DefinitionError."""
    named = statement.this.expressions if isinstance(statement.this, exp.Schema) else []
    columns = [column.name for column in named] or list(schema)
    for node, name in zip(named, columns, strict=False):
        if name not in schema:
            raise text.error(node, f"there is no column {name!r}", did_you_mean(name, schema))
    values = statement.expression
    assert isinstance(values, exp.Values)
    rows = [_row(row, columns, schema, text) for row in values.expressions]
    return pl.DataFrame(rows, schema=dict(schema), orient="row")


def _row(node: exp.Expr, columns: Sequence[str], schema: Mapping[str, pl.DataType], text: Text) -> dict[str, Any]:
    given = node.expressions if isinstance(node, exp.Tuple) else [node]
    if len(given) != len(columns):
        raise text.error(
            node,
            f"this row has {len(given)} values, and the columns are {', '.join(columns)}",
            "one value for each column",
        )
    found = {
        name: _constant(value.unnest(), name, schema[name], text) for name, value in zip(columns, given, strict=True)
    }
    return {name: found.get(name) for name in schema}


def _constant(node: exp.Expr, name: str, dtype: pl.DataType, text: Text) -> Any:
    """The value of an expression without columns. Raises DefinitionError."""

    def resolve(column: exp.Column) -> str:
        raise text.error(
            column, f"{column.name!r} is a name, and a value is wanted", f"write text in quotes: '{column.name}'"
        )

    if isinstance(node, exp.Array):
        inner = pl.List(dtype.inner).inner if isinstance(dtype, pl.List) else pl.Null()
        return [_constant(e, name, inner, text) for e in node.expressions]  # type: ignore[arg-type]
    value = Expressions(text, _ONE.schema, resolve)(node)
    if isinstance(value.literal, str) and dtype.is_temporal():
        value = parsed(value.literal, dtype, node, text)
    try:
        column = nw.from_native(_ONE, eager_only=True).select(value.expr.alias(name)).to_native()[name]
        fits = column.dtype == pl.Null() or (column.dtype == pl.String()) == (dtype == pl.String())
        if fits:
            return column.cast(dtype)[0]
    except Exception as error:
        reason = str(error).split("\n")[0]
        raise text.error(node, f"this is not a value of column {name!r}, which is {dtype}: {reason}") from error
    hint = f"cast(… as {sql_type(dtype)})" if sql_type(dtype) else ""
    raise text.error(node, f"this is {column.dtype}, and column {name!r} is {dtype}", hint)
