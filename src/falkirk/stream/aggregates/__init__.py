"""Aggregates: what `group_by(…).agg(…)` keeps for each group.

bound.py        the interface: an aggregate of one output column, its partials, its state
arguments.py    the columns and expressions that users give, checked

builtin.py      len, sum, min, max and mean
spread.py       var and std, exactly
flags.py        any and all of Booleans
values.py       the base of those that may need all values of a group, in order
ordered.py      first and last, in the order of another column
distinct.py     n_unique: how many different values there are
lists.py        collect: a list of the values
sketches.py     approx_n_unique and approx_quantile
user.py         aggregates that users write in Python

windowed.py     `fk.sum("price").over("auction")`: of the rows around each row, as a column
positions.py    row_number, rank, dense_rank, lag and lead, which are for `over` alone
"""

from __future__ import annotations

from falkirk.stream.aggregates.bound import AggregateLike, Bound, new, old
from falkirk.stream.aggregates.builtin import len_ as len  # noqa: A004
from falkirk.stream.aggregates.builtin import max_ as max  # noqa: A004
from falkirk.stream.aggregates.builtin import mean
from falkirk.stream.aggregates.builtin import min_ as min  # noqa: A004
from falkirk.stream.aggregates.builtin import sum_ as sum  # noqa: A004
from falkirk.stream.aggregates.distinct import n_unique
from falkirk.stream.aggregates.flags import all_ as all  # noqa: A004
from falkirk.stream.aggregates.flags import any_ as any  # noqa: A004
from falkirk.stream.aggregates.lists import collect
from falkirk.stream.aggregates.ordered import first, last
from falkirk.stream.aggregates.positions import dense_rank, lag, lead, rank, row_number
from falkirk.stream.aggregates.sketches import approx_n_unique, approx_quantile
from falkirk.stream.aggregates.spread import std, var
from falkirk.stream.aggregates.user import Aggregate

__all__ = [
    "Aggregate", "AggregateLike", "Bound", "all", "any", "approx_n_unique", "approx_quantile", "collect", "dense_rank",
    "first", "lag", "last", "lead", "len", "max", "mean", "min", "n_unique", "new", "old", "rank", "row_number", "std",
    "sum", "var",
]  # fmt: skip
