"""`migrate=`: what an operator kept in earlier versions of it, and how rows of that become rows of today's.

version=3, migrate=[fk.From(1, …, by=f), fk.From(2, …, by=g)]        row of version 1 ─f─▶ row of 2 ─g─▶ row of 3
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from falkirk.stream.aggregates.bound import AggregateLike
from falkirk.stream.formats.rows import SchemaLike

Function = Callable[[dict[str, Any]], Mapping[str, Any]]
"""From a row of one version to that of the next."""


@dataclass(frozen=True)
class From:
    """An earlier version of an operator: what it kept, and how a row of that becomes one of the next version.

    >>> def in_cents(row):
    ...     return {"cents": round(row["euros"] * 100)}
    >>> before = From(1, state={"euros": float}, by=in_cents)

    Of a process: `state` and `tables`, as they were. `by` is a function of a row of `state`, as a dict, or one for each
    table, by its name. A table whose columns are as they were goes on without one; one that is no longer there goes.

    Of a group: the aggregates, as they were: `From(1, agg={"n": fk.len()})`. Those that are the same today go on as they
    are, new ones begin with what `by` says, or empty: it is given the parts of the aggregates of before (`n.rows`) and
    gives those of the ones that are new. One that is another now (of another type, say) needs it.
    """

    version: int
    state: SchemaLike | None = None
    tables: Mapping[str, SchemaLike] = field(default_factory=dict)
    agg: Mapping[str, AggregateLike] | None = None
    by: Function | Mapping[str, Function] | None = None


Migrate = From | Sequence[From]
"""What `migrate=` takes: each leads to the next, and the last to today's."""
