"""Expressions over a stream: checked when the flow is built, on an empty frame of the stream's schema.

An expression must be row-wise: f(a ++ b) = f(a) ++ f(b) for any rows a and b. The result of a sum or a shift would depend
on how the input is divided into steps. So this module rejects it; use `group_by` instead.

Only this module reads Narwhals' expression nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import narwhals as nw
import polars as pl
from narwhals._expression_parsing import ExprKind, ExprNode
from narwhals.functions import When

from falkirk.blame import did_you_mean
from falkirk.errors import DefinitionError

IntoExpr = nw.Expr | str
"""An expression, or the name of a column."""

_PARSING = {"str.to_date": "%Y-%m-%d", "str.to_datetime": "%Y-%m-%d %H:%M:%S", "str.to_time": "%H:%M:%S"}
_COMPARING = {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "is_between"}
_ANY_COLUMN = {ExprKind.ALL, ExprKind.NTH, ExprKind.EXCLUDE, ExprKind.SELECTOR, ExprKind.SERIES}


def expressions(positional: Sequence[Any], named: Mapping[str, Any], where: str) -> tuple[nw.Expr, ...]:
    """Names become columns, other values literals, and keywords names. Raises DefinitionError if there are none."""
    exprs = [_expression(e, where, listed=False) for e in positional]
    exprs += [_expression(e, where, listed=True).alias(name) for name, e in named.items()]
    if not exprs:
        raise DefinitionError(
            "there is no expression", where=where, hint='give a column, "price", or fk.col("price") * 2'
        )
    return tuple(exprs)


def _expression(expr: Any, where: str, *, listed: bool) -> nw.Expr:
    """`listed`: a list is a literal."""
    if isinstance(expr, nw.Expr):
        return expr
    if isinstance(expr, list | tuple) and (not listed or any(isinstance(e, nw.Expr) for e in expr)):
        raise DefinitionError("a list is no expression", where=where, hint='give each one by itself: "id", "price"')
    if isinstance(expr, str):
        return nw.col(expr)
    if isinstance(expr, pl.Expr):
        raise DefinitionError(
            f"{expr} is a Polars expression", where=where, hint="use fk.col, which has the same methods"
        )
    _check_one_row(expr, where)
    if isinstance(expr, When):
        raise DefinitionError(
            "fk.when(…) has no .then(…)", where=where, hint="fk.when(condition).then(value).otherwise(other)"
        )
    if callable(expr):
        raise DefinitionError(
            f"{getattr(expr, '__name__', expr)!r} is a function, and no expression",
            where=where,
            hint='write fk.col("price") > 100 in place of lambda row: row["price"] > 100; a function of rows is for .map(…), '
            "or for .flat_map(…), which may give none",
        )
    try:
        return nw.lit(expr)
    except Exception as error:
        raise DefinitionError(
            f"{expr!r} is not an expression", where=where, hint='write one like fk.col("price")'
        ) from error


def _check_one_row(part: Any, where: str) -> None:
    """Raises DefinitionError for an aggregate, or a function with `over`."""
    if hasattr(part, "bind") or hasattr(part, "window"):
        raise DefinitionError(
            "a function of several rows is not row-wise",
            where=where,
            hint='name it, and the rows that it is of: with_columns(total=fk.sum("price").over("id")); or group_by(…).agg(…)',
        )


def check(exprs: Sequence[nw.Expr], schema: pl.Schema, where: str) -> None:
    """Raises DefinitionError unless every expression is row-wise and reads existing columns."""
    for expr in exprs:
        for node in _walk(expr):
            for argument in node.exprs:
                _check_one_row(argument, where)
            if not node.kind.is_elementwise or node.kind is ExprKind.SERIES:
                raise DefinitionError(
                    f"{text(expr)} is not row-wise: {node.name} needs more than one row, so its result would depend on "
                    "the division into steps",
                    where=where,
                    hint="aggregate with group_by(…).agg(…), or use map_batches for a function of whole batches",
                )
            if node.name in _PARSING and node.kwargs["format"] is None:
                raise DefinitionError(
                    f"{text(expr)} has no format: Polars would guess one from the first rows, so its result would depend on "
                    "the division into steps",
                    where=where,
                    hint=f'name it: fk.col(…).{node.name}("{_PARSING[node.name]}")',
                )
            if _looks_for_null(node):
                raise DefinitionError(
                    f"{text(expr)} compares with None: the result is null, and never true",
                    where=where,
                    hint="write fk.col(…).is_null(), or ~fk.col(…).is_null()",
                )
            if node.kwargs.get("dtype") is nw.Decimal:
                raise DefinitionError(
                    f"{text(expr)} does not say how many digits a decimal has",
                    where=where,
                    hint="say how many, and how many behind the point: fk.Decimal(18, 2)",
                )
        for name in _named_columns(expr):
            if name not in schema:
                literal = f"; a text is fk.lit({name!r})" if _may_be_text(expr, name) else ""
                raise DefinitionError(
                    f"there is no column {name!r}",
                    where=where,
                    hint=_field(name, schema) or did_you_mean(name, schema) + literal,
                )


def _looks_for_null(node: ExprNode) -> bool:
    """Whether None is compared with something. SQL compares with a null of a type, as its users expect."""
    if node.name == "is_in":
        listed = node.kwargs["other"]
        return isinstance(listed, list | tuple | set | frozenset) and any(value is None for value in listed)
    return node.name in _COMPARING and any(argument is None for argument in node.exprs)


def _may_be_text(expr: nw.Expr, name: str) -> bool:
    """Whether a user may take a column's name for a text: in when(…).then("dear"), or with_columns(kind="dear")."""
    if any(node.kind is ExprKind.EXCLUDE for node in _walk(expr)):
        return False
    columns = {c for node in _walk(expr) if node.kind is ExprKind.COL for c in node.kwargs["names"]}
    return name not in columns or (len(expr._nodes) > 1 and renamed_column(expr) == name)


def _field(name: str, schema: pl.Schema) -> str:
    """What to write for "address.city", if that is a field of a column."""
    column, _, inner = name.partition(".")
    dtype = schema.get(column)
    if isinstance(dtype, pl.Struct) and inner in {field.name for field in dtype.fields}:
        return f"a field is fk.col({column!r}).struct.field({inner!r})"
    return ""


def evaluate(
    exprs: Sequence[nw.Expr], schema: pl.Schema, how: Literal["select", "with_columns"], where: str
) -> pl.Schema:
    """The schema of the expressions' results. Raises DefinitionError for a wrong type, an unknown column, or no rows."""
    check(exprs, schema, where)
    empty = nw.from_native(schema.to_frame(), eager_only=True)
    try:
        frame = empty.select(*exprs) if how == "select" else empty.with_columns(*exprs)
    except Exception as error:
        hint = f"the columns are {words(schema)}"
        if any(_has_no_zone(node) for expr in exprs for node in _walk(expr)):
            hint += "; times of sources are in UTC, so write datetime(…, tzinfo=UTC)"
        raise DefinitionError(_first_lines(error), where=where, hint=hint) from error
    native = frame.to_native()
    if not native.width:
        raise DefinitionError("no column is selected", where=where, hint=f"the columns are {words(schema)}")
    if native.height:
        raise DefinitionError(
            "only constants are selected", where=where, hint="select a column too, or use with_columns"
        )
    return native.schema


def _has_no_zone(node: ExprNode) -> bool:
    return any(
        isinstance(value, datetime) and value.tzinfo is None for value in (*node.exprs, node.kwargs.get("value"))
    )


def columns_read(exprs: Sequence[nw.Expr], schema: pl.Schema) -> frozenset[str]:
    """The columns that expressions may read: all columns, if an expression selects them by a rule."""
    if any(node.kind in _ANY_COLUMN for expr in exprs for node in _walk(expr)):
        return frozenset(schema)
    return frozenset(name for expr in exprs for name in _named_columns(expr))


def passed_through(exprs: Sequence[nw.Expr], schema: pl.Schema) -> frozenset[str]:
    """The columns that the expressions pass on without a change of name or value."""
    bare = [e for e in exprs if len(e._nodes) == 1 and e._nodes[0].kind in _ANY_COLUMN | {ExprKind.COL}]
    if not bare:
        return frozenset()
    return frozenset(nw.from_native(schema.to_frame(), eager_only=True).select(*bare).columns)


def bare_column(expr: nw.Expr) -> str | None:
    """The expression's column, if the expression is only a column."""
    node = expr._nodes[0]
    if len(expr._nodes) > 1 or node.kind is not ExprKind.COL or len(node.kwargs["names"]) > 1:
        return None
    return str(node.kwargs["names"][0])


def renamed(exprs: Sequence[nw.Expr], column: str | None) -> str | None:
    """The first new name of a column, if an expression only renames it.

    >>> renamed([nw.col("a") + 1, nw.col("a").alias("b")], "a")
    'b'
    """
    for expr in exprs:
        first, *others = expr._nodes
        is_column = first.kind is ExprKind.COL and first.kwargs["names"] == [column]
        if is_column and [node.name for node in others] == ["alias"]:
            return str(others[0].kwargs["name"])
    return None


def renamed_column(expr: nw.Expr) -> str | None:
    """The expression's column, if the expression is only a column, with its own name or another.

    >>> renamed_column(nw.col("price").alias("usd")), renamed_column(nw.col("price") + 1)
    ('price', None)
    """
    column, *renaming = expr._nodes
    if any(node.name != "alias" for node in renaming) or column.kind is not ExprKind.COL:
        return None
    names = column.kwargs["names"]
    return str(names[0]) if len(names) == 1 else None


def constant_of(exprs: Sequence[nw.Expr], column: str, schema: pl.Schema) -> bool | str | None:
    """Whether the expression that gives a column reads no column; the column that it renames; None if none gives it.

    >>> [constant_of([nw.lit(0).alias("a"), nw.col("x").alias("b")], c, pl.Schema({"x": pl.Int64()})) for c in "abc"]
    [True, 'x', None]
    """
    for expr in exprs:
        if column in computed_columns([expr], schema):
            return renamed_column(expr) or not columns_read([expr], schema)
    return None


def computed_columns(exprs: Sequence[nw.Expr], schema: pl.Schema) -> frozenset[str]:
    """The columns that with_columns would add or replace."""
    return frozenset(nw.from_native(schema.to_frame(), eager_only=True).select(*exprs).columns)


def text(expr: nw.Expr) -> str:
    """An expression as readable text.

    >>> text((nw.col("price") > 100) & ~nw.col("name").str.contains("x"))
    "(price > 100) & not (name.str.contains('x', literal=False))"
    """
    written = ""
    for node in expr._nodes:
        arguments = [text(a) if isinstance(a, nw.Expr) else repr(a) for a in node.exprs]
        named = [f"{name}={value!r}" for name, value in node.kwargs.items()]
        if node.kind is ExprKind.COL:
            written = ", ".join(node.kwargs["names"])
        elif node.kind is ExprKind.LITERAL:
            written = repr(node.kwargs["value"])
        elif node.name in _INFIX:
            written = f"{_within(written)} {_INFIX[node.name]} {_within(arguments[0])}"
        elif node.name == "__invert__":
            written = f"not {_within(written)}"
        elif node.name == "alias":
            written = f"{node.kwargs['name']} = {written}"
        else:
            written = f"{written}{'.' if written else ''}{node.name}({', '.join(arguments + named)})"
    return written


_INFIX = {
    "__gt__": ">", "__ge__": ">=", "__lt__": "<", "__le__": "<=", "__eq__": "==", "__ne__": "!=", "__and__": "&",
    "__or__": "|", "__add__": "+", "__sub__": "-", "__mul__": "*", "__truediv__": "/", "__floordiv__": "//",
    "__mod__": "%", "__pow__": "**",
}  # fmt: skip


def _within(written: str) -> str:
    return f"({written})" if " " in written and not written.startswith("not ") else written


def words(schema: Mapping[str, pl.DataType]) -> str:
    """A schema as readable text.

    >>> words(pl.Schema({"auction": pl.Int64, "name": pl.String}))
    'auction Int64, name String'
    """
    return ", ".join(f"{name} {dtype}" for name, dtype in schema.items())


def _walk(expr: nw.Expr) -> Iterator[ExprNode]:
    for node in expr._nodes:
        yield node
        for argument in node.exprs:
            if isinstance(argument, nw.Expr):
                yield from _walk(argument)


def _named_columns(expr: nw.Expr) -> Iterator[str]:
    for node in _walk(expr):
        if node.kind is ExprKind.COL:
            yield from node.kwargs["names"]
        elif node.kind is ExprKind.EXCLUDE:
            yield from sorted(node.kwargs["names"])
        if not node.str_as_lit:
            yield from (argument for argument in node.exprs if isinstance(argument, str))


def _first_lines(error: Exception) -> str:
    first = str(error).split("\n\n")[0].strip()
    return (
        f"there is no field {first!r}"
        if isinstance(error.__context__, pl.exceptions.StructFieldNotFoundError)
        else first
    )
