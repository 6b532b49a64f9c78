"""Functions of text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import narwhals as nw
from sqlglot import exp

from falkirk.stream.formats.types import type_name
from falkirk.stream.sql.scalar.values import Build, Handler, Value, constant, need


def _text(build: Build, node: exp.Expr, what: str) -> nw.Expr:
    return need(build, node, "String", what).expr


def _plain(name: str, function: Callable[[nw.Expr], nw.Expr]) -> Handler:
    def handler(build: Build, node: exp.Func) -> Value:
        return build.typed(node, function(_text(build, node.this, name)))

    return handler


def _with_constant(name: str, function: Callable[[nw.Expr, str], nw.Expr]) -> Handler:
    def handler(build: Build, node: exp.Func) -> Value:
        second = constant(build, node.expression, f"the second argument of {name}")
        return build.typed(node, function(_text(build, node.this, name), second))

    return handler


def _like(build: Build, node: exp.Expr) -> Value:
    escape = ""
    if isinstance(node.parent, exp.Escape):
        escape = str(constant(build, node.parent.expression, "the escape character"))
    pattern = constant(build, node.expression, "the pattern of like")
    regex = like_regex(pattern, escape, ignore_case=isinstance(node, exp.ILike))
    found = _text(build, node.this, "like").str.contains(regex)
    return build.typed(node, ~found if node.args.get("negate") else found)


def like_regex(pattern: str, escape: str = "", *, ignore_case: bool = False) -> str:
    """A pattern of LIKE as a regular expression.

    >>> like_regex("a%_.$%", "$")
    '(?s)^a.*.\\\\.%$'
    """
    parts, characters = [], iter(pattern)
    for character in characters:
        if character == escape:
            parts.append(re.escape(next(characters, escape)))
        else:
            parts.append({"%": ".*", "_": "."}.get(character) or re.escape(character))
    return f"(?{'i' if ignore_case else ''}s)^{''.join(parts)}$"


def _trim(build: Build, node: exp.Trim) -> Value:
    x = _text(build, node.this, "trim")
    characters = constant(build, node.expression, "what trim removes") if node.expression else " "
    sides = {"LEADING": x.str.strip_chars_start, "TRAILING": x.str.strip_chars_end}
    return build.typed(node, sides.get(str(node.args.get("position")), x.str.strip_chars)(characters))


def _substring(build: Build, node: exp.Substring) -> Value:
    x = _text(build, node.this, "substring")
    start = constant(build, node.args["start"], "the start of substring")
    length = constant(build, node.args["length"], "the length of substring") if node.args.get("length") else None
    if start == 0 and length is not None:  # the place before the first character
        start, length = 1, max(0, length - 1)
    return build.typed(node, x.str.slice(start - 1 if start > 0 else start, length))


def _replace(build: Build, node: exp.Replace) -> Value:
    old = constant(build, node.expression, "what replace looks for")
    new = constant(build, node.args["replacement"], "what replace writes")
    return build.typed(node, _text(build, node.this, "replace").str.replace_all(old, new, literal=True))


def _regexp_replace(build: Build, node: exp.RegexpReplace) -> Value:
    old = _pattern(build, node.expression)
    new = (
        constant(build, node.args["replacement"], "what regexp_replace writes") if node.args.get("replacement") else ""
    )
    every = node.args.get("modifiers") is not None and "g" in str(constant(build, node.args["modifiers"], "the flags"))
    x = _text(build, node.this, "regexp_replace").str
    return build.typed(node, x.replace_all(old, new) if every else x.replace(old, new))


def _regexp(build: Build, node: exp.RegexpLike) -> Value:
    return build.typed(node, _text(build, node.this, "regexp_matches").str.contains(_pattern(build, node.expression)))


def _pattern(build: Build, node: exp.Expr) -> str:
    return str(constant(build, node, "a regular expression"))


def _joined(build: Build, node: exp.DPipe) -> Value:
    """a || b is null if one of them is."""
    return build.typed(node, nw.concat_str([_spelt(build, side) for side in (node.left, node.right)]))


def _concat(build: Build, node: exp.Concat) -> Value:
    """concat(a, b) leaves nulls out; concat_ws(s, a, b) too."""
    parts = [_spelt(build, e) for e in node.expressions]
    if isinstance(node, exp.ConcatWs):
        separator = constant(build, node.expressions[0], "the separator")
        return build.typed(node, nw.concat_str(parts[1:], separator=separator, ignore_nulls=True))
    return build.typed(node, nw.concat_str(parts, ignore_nulls=True))


def _spelt(build: Build, node: exp.Expr) -> nw.Expr:
    value = build(node)
    if value.family not in ("String", "number", "Boolean", ""):
        raise build.text.error(
            node,
            f"text is joined of text and numbers, and this is {type_name(value.dtype)}",
            "strftime(at, '%Y-%m-%d')",
        )
    return value.settled().cast(nw.String)


HANDLERS: Mapping[type[exp.Expr], Handler] = {
    exp.Upper: _plain("upper", lambda x: x.str.to_uppercase()),
    exp.Lower: _plain("lower", lambda x: x.str.to_lowercase()),
    exp.Length: _plain("length", lambda x: x.str.len_chars().cast(nw.Int64)),
    exp.StartsWith: _with_constant("starts_with", lambda x, y: x.str.starts_with(y)),
    exp.EndsWith: _with_constant("ends_with", lambda x, y: x.str.ends_with(y)),
    exp.Contains: _with_constant("contains", lambda x, y: x.str.contains(y, literal=True)),
    exp.Left: _with_constant("left", lambda x, n: x.str.head(int(n))),
    exp.Right: _with_constant("right", lambda x, n: x.str.tail(int(n))),
    exp.Trim: _trim,
    exp.Substring: _substring,
    exp.Replace: _replace,
    exp.RegexpLike: _regexp,
    exp.RegexpReplace: _regexp_replace,
    exp.DPipe: _joined,
    exp.Concat: _concat,
    exp.ConcatWs: _concat,
    exp.Like: _like,
    exp.ILike: _like,
}
