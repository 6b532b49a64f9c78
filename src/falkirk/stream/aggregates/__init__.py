"""Aggregates: what `group_by(…).agg(…)` keeps for each group."""

from __future__ import annotations

from falkirk.stream.aggregates.bound import AggregateLike, Bound, new, old
from falkirk.stream.aggregates.builtin import len_ as len  # noqa: A004
from falkirk.stream.aggregates.builtin import max_ as max  # noqa: A004
from falkirk.stream.aggregates.builtin import mean
from falkirk.stream.aggregates.builtin import min_ as min  # noqa: A004
from falkirk.stream.aggregates.builtin import sum_ as sum  # noqa: A004
from falkirk.stream.aggregates.user import Aggregate

__all__ = ["Aggregate", "AggregateLike", "Bound", "len", "max", "mean", "min", "new", "old", "sum"]
