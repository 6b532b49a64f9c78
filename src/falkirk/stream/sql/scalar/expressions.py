"""Any SQL expression as an expression of the DSL. Null is SQL's: unknown, in three-valued logic."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import reduce
from typing import Any

import narwhals as nw
import polars as pl
from sqlglot import exp

from falkirk.stream.sql.scalar import arithmetic, casts, patterns, strings, time_formats, times
from falkirk.stream.sql.scalar.values import Build, Handler, Value, called, literal, narwhals, need, null
from falkirk.stream.sql.text import Text, span

Resolve = Callable[[exp.Column], str]
"""The stream's column that a column of the query means. Raises DefinitionError."""


class Expressions:
    """Compiles the expressions of one relation. `given` are nodes that are columns already: keys and aggregates."""

    def __init__(
        self, text: Text, schema: pl.Schema, resolve: Resolve, given: Mapping[exp.Expr, str] | None = None
    ) -> None:
        self.text, self.schema, self.resolve, self.given = text, schema, resolve, given or {}
        self._empty = nw.from_native(schema.to_frame(), eager_only=True)

    def __call__(self, node: exp.Expr) -> Value:
        if (column := self.given.get(node)) is not None:
            return self.column(column)
        if isinstance(node, exp.Column):
            return self.column(self.resolve(node))
        handler = HANDLERS.get(type(node))
        if isinstance(node, exp.Anonymous) and node.name.lower() in ("now", "today"):
            handler = HANDLERS[exp.CurrentTimestamp]
        if handler is None:
            raise self.text.error(node, *_unsupported(node, self.text))
        self.text.only(node, *_PARTS.get(type(node), ()))
        return handler(self, node)

    def column(self, name: str) -> Value:
        """A column of the stream."""
        return Value(nw.col(name), self.schema[name])

    def typed(self, node: exp.Expr, expr: nw.Expr) -> Value:
        """An expression with its type, found on an empty frame. Raises DefinitionError."""
        try:
            return Value(expr, self._empty.select(expr.alias("x")).to_native().schema["x"])
        except Exception as error:
            reason = str(error).split("\n\n")[0].strip()
            raise self.text.error(node, f"{_written(node, self.text)} is not defined: {reason}") from error


def _unsupported(node: exp.Expr, text: Text) -> tuple[str, str]:
    """What is wrong with a node that is no expression here, and what to do."""
    written = _written(node, text)
    if isinstance(node, exp.Anonymous):
        return f"there is no function {node.name.lower()}", _LISTED
    if isinstance(node, exp.AggFunc):
        return f"{written} is an aggregate, which has no place here", "aggregate in a subquery of from"
    if isinstance(node, exp.Window):
        return "a window function has no place here", "compute it in a subquery of from, or use qualify"
    if isinstance(node, exp.Any | exp.All):
        return f"{written} is not supported", "x in (select …), or compare with (select max(y) …)"
    if isinstance(node, exp.Exists):
        return "exists (select …) can only be a condition of its own in where", "where exists (select …) and …"
    if isinstance(node, exp.Subquery | exp.Select):
        return "a subquery is no condition", "compare its value: (select max(y) …) > 1, or use exists (select …)"
    return f"{written} is not supported", _LISTED


_LISTED = "docs/sql/index.md lists what there is"
_WORDS: Mapping[type[exp.Expr], str] = {exp.Any: "any", exp.All: "all", exp.Array: "a list", exp.Struct: "a struct"}


def _written(node: exp.Expr, text: Text) -> str:
    """A node in the words of the query: the parser gives some functions other names, and columns their tables."""
    if type(node) in _WORDS:
        return _WORDS[type(node)]
    if "start" in node.meta or isinstance(node, exp.Binary):
        return text.sql[slice(*span(node))].lower() if isinstance(node, exp.Func) else text.sql[slice(*span(node))]
    return node.sql_name().lower() if isinstance(node, exp.Func) else node.sql("duckdb")


def _literal(_: Build, node: exp.Literal) -> Value:
    if node.is_string:
        return literal(node.name)
    if node.is_int:
        return literal(int(node.name))
    if "e" in node.name.lower():
        return literal(float(node.name))
    # A number with a point is a decimal until it meets a column: 0.06 + 0.01 is 0.07.
    return Value(nw.lit(float(node.name)), pl.Float64(), Decimal(node.name))


def _compare(build: Build, node: exp.Binary) -> Value:
    a, b = alike(build, node.left, node.right)
    return build.typed(node, _COMPARISONS[type(node)](a.expr, b.expr))


_COMPARISONS: Mapping[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.EQ: lambda a, b: a == b,
    exp.NEQ: lambda a, b: a != b,
    exp.GT: lambda a, b: a > b,
    exp.GTE: lambda a, b: a >= b,
    exp.LT: lambda a, b: a < b,
    exp.LTE: lambda a, b: a <= b,
    exp.NullSafeEQ: lambda a, b: (a == b).fill_null(False) | (a.is_null() & b.is_null()),
    exp.NullSafeNEQ: lambda a, b: ~((a == b).fill_null(False) | (a.is_null() & b.is_null())),
}


def alike(build: Build, left: exp.Expr, right: exp.Expr) -> tuple[Value, Value]:
    """Two values that can be compared. A text constant next to a time is a time. Raises DefinitionError."""
    a, b = build(left), build(right)
    if a.family == "time" and isinstance(b.literal, str):
        b = times.parsed(b.literal, a.dtype, right, build.text)
    elif b.family == "time" and isinstance(a.literal, str):
        a = times.parsed(a.literal, b.dtype, left, build.text)
    if a.family == b.family == "time" and (a.dtype == pl.Date()) != (b.dtype == pl.Date()):
        a, b = times.moment_of(a), times.moment_of(b)
    if a.family == b.family == "time":
        a, b = times.of_one_unit([a, b])
    if a.family and b.family and a.family != b.family:
        raise build.text.error(
            left.parent or left,
            f"{called(a.dtype)} and {called(b.dtype)} cannot be compared",
            "cast one of them: cast(x as varchar)",
        )
    if not (a.family and b.family):  # with null: unknown
        dtype = a.dtype if a.family else b.dtype if b.family else pl.Boolean()
        a, b = (v if v.family else null(dtype) for v in (a, b))
    return a, b


def _logic(apply: Callable[[nw.Expr, nw.Expr], nw.Expr], word: str) -> Handler:
    def handler(build: Build, node: exp.Connector) -> Value:
        sides = [_condition(build, side, word) for side in node.flatten()]
        return build.typed(node, reduce(apply, sides))

    return handler


def _condition(build: Build, node: exp.Expr, what: str) -> nw.Expr:
    value = need(build, node, "Boolean", what)
    return value.expr if value.family else nw.lit(None, dtype=nw.Boolean)


def _not(build: Build, node: exp.Not) -> Value:
    return build.typed(node, ~_condition(build, node.this, "not"))


def _is(build: Build, node: exp.Is) -> Value:
    if isinstance(node.expression, exp.Null):
        return build.typed(node, build(node.this).expr.is_null())
    if isinstance(node.expression, exp.Boolean):
        known = _condition(build, node.this, "is").fill_null(not node.expression.this)
        return build.typed(node, known if node.expression.this else ~known)
    raise build.text.error(node, "is takes null, true or false", "use =, or is not distinct from")


def _in(build: Build, node: exp.In) -> Value:
    if node.args.get("query") is not None or node.args.get("unnest") is not None:
        raise build.text.error(
            node, "in (select …) can only be a condition of its own in where", "where x in (select …) and …"
        )
    if not node.expressions:
        raise build.text.error(node, "in () names no values", "write them: x in (1, 2)")
    first = build(node.this)
    given = [build(e) for e in node.expressions]
    plain = first.dtype in (pl.Int64(), pl.String())
    if plain and all(v.is_literal and v.literal is not None and v.dtype == first.dtype for v in given):
        return build.typed(node, first.expr.is_in([v.literal for v in given]))
    pairs = [alike(build, node.this, e) for e in node.expressions]
    return build.typed(node, reduce(lambda a, b: a | b, [a.expr == b.expr for a, b in pairs]))


def _between(build: Build, node: exp.Between) -> Value:
    a, low = alike(build, node.this, node.args["low"])
    b, high = alike(build, node.this, node.args["high"])
    return build.typed(node, (a.expr >= low.expr) & (b.expr <= high.expr))


def _case(build: Build, node: exp.Expr) -> Value:
    ifs = node.args.get("ifs") or [node]
    conditions = []
    for one in ifs:
        if isinstance(node, exp.Case) and node.this is not None:
            a, b = alike(build, node.this, one.this)
            conditions.append(a.expr == b.expr)
        else:
            conditions.append(_condition(build, one.this, "when"))
    otherwise = node.args.get("default") or node.args.get("false")
    results = [one.args["true"] for one in ifs] + ([otherwise] if otherwise is not None else [])
    values = one_family(build, node, results)
    last = values.pop() if otherwise is not None else nw.lit(None)
    for condition, value in zip(reversed(conditions), reversed(values), strict=True):
        last = nw.when(condition).then(value).otherwise(last)
    return build.typed(node, last)


def one_family(build: Build, node: exp.Expr, nodes: list[exp.Expr]) -> list[nw.Expr]:
    """Values of which any may be the result. Raises DefinitionError if they differ in kind."""
    values = [build(n) for n in nodes]
    known = next((v for v in values if v.family), None)
    for other, value in zip(nodes, values, strict=True):
        if known is not None and value.family and value.family != known.family:
            is_constant = known.family == "time" and isinstance(value.literal, str)
            raise build.text.error(
                other,
                f"this is {called(value.dtype)}, and another result is {called(known.dtype)}",
                "date '2026-01-31', or timestamp '2026-01-31 10:00:00'"
                if is_constant
                else "cast one of them: cast(x as varchar)",
            )
    if known is not None and known.family == "time":
        values = times.of_one_unit(values)
    return [v.settled() for v in values]


def _coalesce(build: Build, node: exp.Coalesce) -> Value:
    nodes = [node.this, *node.expressions]
    values = one_family(build, node, nodes)
    if all(isinstance(other, _NEVER_FAIL) for other in nodes[1:]):
        return build.typed(node, nw.coalesce(*values))
    # Polars' coalesce computes all arguments for all rows: a cast would fail rows that do not need it. A case does not.
    found = values.pop()
    for value in reversed(values):
        found = nw.when(~value.is_null()).then(value).otherwise(found)
    return build.typed(node, found)


_NEVER_FAIL = (exp.Column, exp.Literal, exp.Boolean, exp.Null)


def _nullif(build: Build, node: exp.Nullif) -> Value:
    a, b = alike(build, node.this, node.expression)
    own = build(node.this)  # what is compared may have another unit of time
    return build.typed(
        node, nw.when(~(a.expr == b.expr).fill_null(False)).then((own if own.family == a.family else a).settled())
    )


def _least(build: Build, node: exp.Least) -> Value:
    return build.typed(node, nw.min_horizontal(*one_family(build, node, [node.this, *node.expressions])))


def _greatest(build: Build, node: exp.Greatest) -> Value:
    """NaN is greater than every number, and Polars passes it over."""
    values = one_family(build, node, [node.this, *node.expressions])
    found = build.typed(node, nw.max_horizontal(*values))
    if not found.dtype.is_float():
        return found
    is_nan = reduce(lambda a, b: a | b, [v.cast(nw.Float64).is_nan().fill_null(False) for v in values])
    return build.typed(node, nw.when(is_nan).then(nw.lit(math.nan, dtype=narwhals(found.dtype))).otherwise(found.expr))


_SAFE = ("safe", "coalesce", "typed")
_PARTS: Mapping[type[exp.Expr], tuple[str, ...]] = {
    exp.Literal: ("is_string",), exp.Like: ("negate",), exp.ILike: ("negate",), exp.Round: ("decimals",),
    exp.DPipe: _SAFE, exp.Concat: _SAFE, exp.ConcatWs: _SAFE, exp.Div: _SAFE, exp.Substring: ("start", "length"),
    exp.Replace: ("replacement",), exp.RegexpReplace: ("replacement", "modifiers", "single_replace"), exp.Trim: ("position",),
    exp.Cast: ("to",), exp.TryCast: ("to", "safe"), exp.Case: ("ifs", "default"), exp.If: ("true", "false"),
    exp.Interval: ("unit",), exp.TimestampTrunc: ("unit",), exp.DateTrunc: ("unit",),
    exp.DateDiff: ("unit", "date_part_boundary"), exp.TimestampDiff: ("unit",), exp.Between: ("low", "high"),
    exp.UnixToTime: ("scale",), exp.StrToTime: ("format",), exp.TimeToStr: ("format",), exp.In: ("query", "unnest"),
    exp.Greatest: ("ignore_nulls",), exp.Least: ("ignore_nulls",),
}  # fmt: skip
"""The parts of a node that its handler reads."""

HANDLERS: Mapping[type[exp.Expr], Handler] = {
    **arithmetic.HANDLERS,
    **casts.HANDLERS,
    **strings.HANDLERS,
    **patterns.HANDLERS,
    **times.HANDLERS,
    **time_formats.HANDLERS,
    exp.Literal: _literal,
    exp.Boolean: lambda _, node: literal(bool(node.this)),
    exp.Null: lambda _, node: literal(None),
    exp.Paren: lambda build, node: build(node.this),
    exp.Escape: lambda build, node: build(node.this),
    **dict.fromkeys(_COMPARISONS, _compare),
    exp.And: _logic(lambda a, b: a & b, "and"),
    exp.Or: _logic(lambda a, b: a | b, "or"),
    exp.Not: _not,
    exp.Is: _is,
    exp.In: _in,
    exp.Between: _between,
    exp.Case: _case,
    exp.If: _case,
    exp.Coalesce: _coalesce,
    exp.Nullif: _nullif,
    exp.Greatest: _greatest,
    exp.Least: _least,
}
