"""like, and regular expressions."""

from __future__ import annotations

import re
from collections.abc import Mapping

import polars as pl
from sqlglot import exp

from falkirk.stream.sql.scalar.values import Build, Handler, Value, constant, need, null


def _like(build: Build, node: exp.Expr) -> Value:
    x = need(build, node.this, "String", "like").expr
    escape: str | None = ""
    if isinstance(node.parent, exp.Escape):
        escape = constant(build, node.parent.expression, "the escape character", "a text")
    pattern = constant(build, node.expression, "the pattern of like", "a text")
    if pattern is None or escape is None:
        return null(pl.Boolean())
    found = x.str.contains(like_regex(pattern, escape, ignore_case=isinstance(node, exp.ILike)))
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


def _regexp(build: Build, node: exp.RegexpLike) -> Value:
    x = need(build, node.this, "String", "regexp_matches").expr
    pattern = _pattern(build, node.expression)
    return null(pl.Boolean()) if pattern is None else build.typed(node, x.str.contains(pattern))


def _regexp_replace(build: Build, node: exp.RegexpReplace) -> Value:
    x = need(build, node.this, "String", "regexp_replace").expr
    if node.args.get("replacement") is None:
        raise build.text.error(node, "regexp_replace has no replacement", "regexp_replace(x, 'a+', 'b')")
    pattern = _pattern(build, node.expression)
    new = constant(build, node.args["replacement"], "what regexp_replace writes", "a text")
    flags = _flags(build, node.args.get("modifiers"))
    if pattern is None or new is None:
        return null(pl.String())
    written = _written(build, node.args["replacement"], new, groups=_groups(pattern))
    marks = ("i" if flags.rfind("i") > flags.rfind("c") else "") + (
        "s" if "s" in flags else ""
    )  # the last of i, c counts
    pattern = f"(?{marks}){pattern}" if marks else pattern
    return build.typed(node, (x.str.replace_all if "g" in flags else x.str.replace)(pattern, written))


def _pattern(build: Build, node: exp.Expr) -> str | None:
    """A regular expression, None for null. Raises DefinitionError if it is none."""
    given: str | None = constant(build, node, "a regular expression", "a text")
    pattern = None if given is None else re.sub(r"\\.", lambda escape: _ASCII.get(escape[0], escape[0]), given)
    try:
        _groups(pattern or "")
    except pl.exceptions.ComputeError as error:
        reason = str(error).rpartition("error: ")[2].strip().split("\n")[0]
        raise build.text.error(node, f"this is not a regular expression: {reason}", "write it as for RE2") from error
    return pattern


_ASCII = {
    r"\d": "[0-9]", r"\D": "[^0-9]", r"\w": "[0-9A-Za-z_]", r"\W": "[^0-9A-Za-z_]",
    r"\s": r"[\t\n\f\r ]", r"\S": r"[^\t\n\f\r ]", r"\b": r"(?-u:\b)",
}  # fmt: skip
"""What RE2 means by these. Polars means digits, letters and spaces of all languages."""


def _groups(pattern: str) -> int:
    """How many groups a regular expression has. Raises ComputeError if it is none.

    >>> _groups("(a)(?:b)(c)")
    2
    """
    found = pl.Series([""]).str.extract_groups(pattern).dtype
    return len(found.fields) if isinstance(found, pl.Struct) else 0


def _flags(build: Build, node: exp.Expr | None) -> str:
    if node is None:
        return ""
    flags: str | None = constant(build, node, "the flags of regexp_replace", "a text")
    if flags is None or set(flags) - set("cgis"):
        given = "null" if flags is None else f"the flags {flags!r}"
        hint = "g replaces all, i ignores case and c does not, and with s a point is any character"
        raise build.text.error(node, f"regexp_replace does not take {given}", hint)
    return flags


def _written(build: Build, node: exp.Expr, new: str, groups: int) -> str:
    """What replaces a match, in Polars' form: in SQL, a backslash names a group, and $ has no meaning."""
    parts, characters = [], iter(new)
    for character in characters:
        following = next(characters, "") if character == "\\" else ""
        if character != "\\":
            parts.append("$$" if character == "$" else character)
        elif following == "\\":
            parts.append(following)
        elif following.isdecimal() and int(following) <= groups:
            parts.append(f"${{{int(following)}}}")
        else:
            hint = rf"\0 to \{min(groups, 9)} are the groups of this expression, and \\ is one backslash"
            raise build.text.error(node, f"regexp_replace cannot write \\{following}", hint)
    return "".join(parts)


HANDLERS: Mapping[type[exp.Expr], Handler] = {
    exp.Like: _like,
    exp.ILike: _like,
    exp.RegexpLike: _regexp,
    exp.RegexpReplace: _regexp_replace,
}
