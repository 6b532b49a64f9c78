"""Conditions of a join that say how far two event times are apart.

lower ≤ b.at − a.at ≤ upper         from   b.at between a.at + lower and a.at + upper,   b.at >= a.at + lower,   …
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import NamedTuple

from sqlglot import exp

from falkirk.errors import DefinitionError
from falkirk.stream.sql.relations import Relation
from falkirk.stream.sql.scalar.times import duration_of
from falkirk.stream.sql.text import Text


class Interval(NamedTuple):
    """What some conditions say of two sides with a watermark."""

    within: tuple[timedelta, timedelta]
    used: list[exp.Expr]
    """The conditions that say no more than that."""


_TURNED: dict[type[exp.Expr], type[exp.Expr]] = {exp.GTE: exp.LTE, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.LT: exp.GT}


def interval(conditions: Sequence[exp.Expr], left: Relation, right: Relation, text: Text) -> Interval | None:
    """How far the event times of both sides are apart, if the conditions bound it on both sides."""
    if not all(r.stream._op.watermarked and r.stream._op.time is not None for r in (left, right)):
        return None
    lower: list[timedelta] = []
    upper: list[timedelta] = []
    used = []
    for condition in conditions:
        bounds = [_bound(kind, a, b, left, right, text) for kind, a, b in _comparisons(condition)]
        known = [bound for bound in bounds if bound is not None]
        for kind, distance in known:
            (lower if kind in (exp.GTE, exp.GT) else upper).append(distance)
        if bounds and len(known) == len(bounds) and all(kind in (exp.GTE, exp.LTE) for kind, _ in known):
            used.append(condition)
    if not lower or not upper or max(lower) > min(upper):
        return None
    return Interval((max(lower), min(upper)), used)


def _comparisons(node: exp.Expr) -> Iterator[tuple[type[exp.Expr], exp.Expr, exp.Expr]]:
    if isinstance(node, exp.Between):
        yield exp.GTE, node.this, node.args["low"]
        yield exp.LTE, node.this, node.args["high"]
    elif type(node) in _TURNED:
        yield type(node), node.args["this"], node.args["expression"]


def _bound(
    kind: type[exp.Expr], a: exp.Expr, b: exp.Expr, left: Relation, right: Relation, text: Text
) -> tuple[type[exp.Expr], timedelta] | None:
    """A comparison as one of the right time less the left one with a distance; None if it is another."""
    mine, theirs = _moved(a, text), _moved(b, text)
    if mine is None or theirs is None:
        return None
    if _is_time(mine[0], right) and _is_time(theirs[0], left):
        return kind, theirs[1] - mine[1]
    if _is_time(mine[0], left) and _is_time(theirs[0], right):
        return _TURNED[kind], mine[1] - theirs[1]
    return None


def _is_time(column: exp.Column, relation: Relation) -> bool:
    return relation.columns.get((column.table, column.name)) == relation.stream._op.time


def _moved(node: exp.Expr, text: Text) -> tuple[exp.Column, timedelta] | None:
    """A column, and what is added to it."""
    node = node.unnest()
    if isinstance(node, exp.Column):
        return node, timedelta()
    if not isinstance(node, exp.Add | exp.Sub):
        return None
    column, distance = node.left.unnest(), node.right
    if isinstance(column, exp.Interval) and isinstance(node, exp.Add):
        column, distance = node.right.unnest(), column
    if not isinstance(column, exp.Column):
        return None
    try:
        found = duration_of(distance, text, "a distance")
    except DefinitionError:
        return None  # A month, or something else that is not always the same: it is an ordinary condition.
    return column, found if isinstance(node, exp.Add) else -found
