"""union, intersect and except of two queries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import narwhals as nw
import polars as pl
from sqlglot import exp

from falkirk.stream.definition.expressions import bare_column
from falkirk.stream.flow.streams import Stream
from falkirk.stream.formats import types as fk
from falkirk.stream.formats.types import described
from falkirk.stream.sql.numbers import holds_both
from falkirk.stream.sql.relations import Ids
from falkirk.stream.sql.scalar.values import family
from falkirk.stream.sql.text import Text


def combined(
    node: exp.SetOperation, left: Stream[Any], right: Stream[Any], ids: Ids, number: str, text: Text
) -> Stream[Any]:
    """One stream of two. Raises DefinitionError."""
    kind = node.key
    every = not node.args.get("distinct", True)
    if node.args.get("by_name"):
        raise text.error(node, "union by name is not supported", "name the columns in one order")
    first = left.schema
    left, right = _alike(node, left, right, text)
    if isinstance(node, exp.Union):
        both = left.concat(right, id=ids.of(f"union{number}"))
        return both if every else once(both, ids.of(f"distinct{number}"))
    if every:
        raise text.error(node, f"{kind} all is not supported", f"write {kind}, which gives each row once")
    decimals = left.schema
    left, right = _texts(left), _texts(right)
    both = (left.intersect if kind == "intersect" else left.subtract)(right, id=ids.of(f"{kind}{number}"))
    return _narrowed(with_decimals(both, decimals), first)


def once(stream: Stream[Any], name: str) -> Stream[Any]:
    """Each row once. Decimals are compared as text: a key in state cannot have one."""
    return with_decimals(_texts(stream).unique(id=name), stream.schema)


def _texts(stream: Stream[Any]) -> Stream[Any]:
    texts = {c: nw.col(c).cast(nw.String) for c, dtype in stream.schema.items() if isinstance(dtype, pl.Decimal)}
    return stream.with_columns(**texts) if texts else stream


def with_decimals(stream: Stream[Any], schema: Mapping[str, pl.DataType]) -> Stream[Any]:
    """The stream with the decimals of a schema, in place of their text."""
    decimals = {
        c: nw.col(c).cast(nw.Decimal(dtype.precision, dtype.scale))
        for c, dtype in schema.items()
        if isinstance(dtype, pl.Decimal)
    }
    return stream.with_columns(**decimals) if decimals else stream


def _alike(
    node: exp.SetOperation, left: Stream[Any], right: Stream[Any], text: Text
) -> tuple[Stream[Any], Stream[Any]]:
    """Both sides with the left's names, and with one type for each column. Raises DefinitionError."""
    if len(left.schema) != len(right.schema):
        raise text.error(
            node.right, f"one side has the columns {described(left.schema)}, and the other {described(right.schema)}",
            "select as many on both sides",
        )  # fmt: skip
    sides: tuple[list[nw.Expr], list[nw.Expr]] = ([], [])
    for (name, mine), (other, theirs) in zip(left.schema.items(), right.schema.items(), strict=True):
        wanted: Any = None
        if mine != theirs:
            if family(mine) == family(theirs) == "time":  # a date is the moment at which it begins
                wanted = fk.DatetimeMicros if pl.Datetime("us", "UTC") in (mine, theirs) else fk.Datetime
            elif not family(mine) == family(theirs) == "number":
                raise text.error(
                    node.right, f"column {name!r} is {mine}, and on the other side {theirs}", "cast one of them"
                )
            else:
                wanted = holds_both(mine, theirs, big=nw.Decimal(38, 0) if isinstance(node, exp.Union) else nw.Int128)
        for side, column in zip(sides, (name, other), strict=True):
            expr = nw.col(column) if wanted is None else nw.col(column).cast(wanted)
            side.append(expr if column == name and wanted is None else expr.alias(name))
    return _selected(left, sides[0]), _selected(right, sides[1])


def _narrowed(stream: Stream[Any], first: pl.Schema) -> Stream[Any]:
    """Rows of intersect and except are rows of the first query: integers of 128 bits get its types again."""
    exprs: dict[str, nw.Expr] = {}
    for (column, dtype), before in zip(stream.schema.items(), first.values(), strict=True):
        if dtype == pl.Int128():
            wanted: Any = nw.from_native(pl.DataFrame(schema={"x": before})).schema["x"]
            exprs[column] = nw.col(column).cast(wanted)
    return stream.with_columns(**exprs) if exprs else stream


def _selected(stream: Stream[Any], exprs: list[nw.Expr]) -> Stream[Any]:
    return stream if all(map(bare_column, exprs)) else stream.select(*exprs)
