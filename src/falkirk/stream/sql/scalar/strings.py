"""Functions of text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import narwhals as nw
import polars as pl
from sqlglot import exp

from falkirk.stream.sql.scalar.values import Build, Handler, Value, called, constant, need, null


def _text(build: Build, node: exp.Expr, what: str) -> nw.Expr:
    return need(build, node, "String", what).expr


def _plain(name: str, function: Callable[[nw.Expr], nw.Expr]) -> Handler:
    def handler(build: Build, node: exp.Func) -> Value:
        return build.typed(node, function(_text(build, node.this, name)))

    return handler


def _with_constant(name: str, wanted: str, dtype: pl.DataType, function: Callable[[nw.Expr, Any], nw.Expr]) -> Handler:
    def handler(build: Build, node: exp.Func) -> Value:
        x = _text(build, node.this, name)
        second = constant(build, node.expression, f"the second argument of {name}", wanted)
        return null(dtype) if second is None else build.typed(node, function(x, second))

    return handler


def _left(build: Build, node: exp.Left) -> Value:
    """The first characters, or all but the last ones if the number is negative."""
    x = _text(build, node.this, "left")
    count = constant(build, node.expression, "the number of characters", "a whole number")
    if count is None:
        return null(pl.String())
    if count < -_LEFT_OUT:
        raise build.text.error(node, f"left leaves out up to {_LEFT_OUT} characters", "right takes the last ones")
    return build.typed(node, x.str.head(count) if count >= 0 else x.str.replace(rf"(?s).{{0,{-count}}}\z", ""))


_LEFT_OUT = 1000
"""A regular expression leaves them out, whose size has a limit."""


def _last(x: nw.Expr, count: int) -> nw.Expr:
    """The last characters, or all but the first ones if the number is negative."""
    return x.str.tail(count) if count else x.str.slice(0, 0)  # Polars' last 0 are all


def _trim(build: Build, node: exp.Trim) -> Value:
    x = _text(build, node.this, "trim")
    characters = constant(build, node.expression, "what trim removes", "a text") if node.expression else " "
    if characters is None:
        return null(pl.String())
    sides = {"LEADING": x.str.strip_chars_start, "TRAILING": x.str.strip_chars_end}
    return build.typed(node, sides.get(str(node.args.get("position")), x.str.strip_chars)(characters))


def _substring(build: Build, node: exp.Substring) -> Value:
    x = _text(build, node.this, "substring")
    if node.args.get("start") is None:
        raise build.text.error(node, "substring has no start", "substring(x, 2), or substring(x, 2, 3)")
    start = constant(build, node.args["start"], "the start of substring", "a whole number")
    given = node.args.get("length")
    length = constant(build, given, "the length of substring", "a whole number") if given is not None else None
    if start is None or (given is not None and length is None):
        return null(pl.String())
    return build.typed(node, x.str.slice(*_slice(start, length)))


def _slice(start: int, length: int | None) -> tuple[int, int | None]:
    """Where a substring begins, counted from 0, or from the end if it is negative, and how many characters it has.

    In SQL, 0 is the place before the first character, and a negative length takes what is before the start.

    >>> _slice(2, 3), _slice(-2, None), _slice(0, 2), _slice(3, -5)
    ((1, 3), (-2, None), (0, 1), (0, 2))
    """
    first = start - 1 if start > 0 else start
    if length is None:
        return first, None
    if start == 0:
        return 0, max(0, length - 1)
    if length >= 0:
        return first, length
    before = -length if start < 0 else min(-length, first)
    return first - before, before


def _replace(build: Build, node: exp.Replace) -> Value:
    x = _text(build, node.this, "replace")
    if node.args.get("replacement") is None:
        raise build.text.error(node, "replace has no replacement", "replace(x, 'a', 'b')")
    old = constant(build, node.expression, "what replace looks for", "a text")
    new = constant(build, node.args["replacement"], "what replace writes", "a text")
    if old is None or new is None:
        return null(pl.String())
    return build.typed(node, x.str.replace_all(old, new, literal=True) if old else x)


def _joined(build: Build, node: exp.DPipe) -> Value:
    """a || b is null if one of them is."""
    return build.typed(node, nw.concat_str([_spelt(build, side) for side in (node.left, node.right)]))


def _concat(build: Build, node: exp.Concat) -> Value:
    """concat(a, b) leaves nulls out; concat_ws(s, a, b) too."""
    parts = [_spelt(build, e) for e in node.expressions]
    if isinstance(node, exp.ConcatWs):
        separator = constant(build, node.expressions[0], "the separator", "a text")
        if len(parts) == 1:
            raise build.text.error(node, "concat_ws joins nothing", "concat_ws('-', x, y)")
        if separator is None:
            return null(pl.String())
        return build.typed(node, nw.concat_str(parts[1:], separator=separator, ignore_nulls=True))
    return build.typed(node, nw.concat_str(parts, ignore_nulls=True))


def _spelt(build: Build, node: exp.Expr) -> nw.Expr:
    value = build(node)
    if value.family not in ("String", "number", "Boolean", ""):
        raise build.text.error(
            node,
            f"text is joined of text and numbers, and this is {called(value.dtype)}",
            "strftime(at, '%Y-%m-%d')" if value.family == "time" else "cast it: cast(x as varchar)",
        )
    return value.settled().cast(nw.String)


HANDLERS: Mapping[type[exp.Expr], Handler] = {
    exp.Upper: _plain("upper", lambda x: x.str.to_uppercase()),
    exp.Lower: _plain("lower", lambda x: x.str.to_lowercase()),
    exp.Length: _plain("length", lambda x: x.str.len_chars().cast(nw.Int64)),
    exp.StartsWith: _with_constant("starts_with", "a text", pl.Boolean(), lambda x, y: x.str.starts_with(y)),
    exp.EndsWith: _with_constant("ends_with", "a text", pl.Boolean(), lambda x, y: x.str.ends_with(y)),
    exp.Contains: _with_constant("contains", "a text", pl.Boolean(), lambda x, y: x.str.contains(y, literal=True)),
    exp.Left: _left,
    exp.Right: _with_constant("right", "a whole number", pl.String(), _last),
    exp.Trim: _trim,
    exp.Substring: _substring,
    exp.Replace: _replace,
    exp.DPipe: _joined,
    exp.Concat: _concat,
    exp.ConcatWs: _concat,
}
