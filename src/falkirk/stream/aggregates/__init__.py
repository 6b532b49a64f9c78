"""Aggregates: what `group_by(…).agg(…)` keeps for each group."""

from __future__ import annotations

from falkirk.stream.aggregates.bound import AggregateLike, Bound, new, old
from falkirk.stream.aggregates.builtin import len_, max_, mean, min_, sum_
from falkirk.stream.aggregates.user import Aggregate

__all__ = ["Aggregate", "AggregateLike", "Bound", "len_", "max_", "mean", "min_", "new", "old", "sum_"]
