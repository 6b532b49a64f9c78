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
    """An earlier version of an operator's state, and how its rows become rows of the next version.

    >>> def in_cents(row):
    ...     return {"cents": round(row["euros"] * 100)}
    >>> before = From(1, state={"euros": float}, by=in_cents)

    Of a process: `state` and `tables` are its schemas then. `by` is a function from a row of `state` (a dict) to one
    of the next version, or a dict of such functions by table. A table with the same columns needs none, and one that
    no longer exists is dropped.

    Of a group: `agg` are its aggregates then, for example `From(1, agg={"n": fk.len()})`. Those that did not change
    keep their state. `by` gets the parts of the earlier aggregates (`n.rows`) and returns those of the new ones;
    without it, new ones begin empty. An aggregate that changed, for example its type, needs `by`.
    """

    version: int
    state: SchemaLike | None = None
    tables: Mapping[str, SchemaLike] = field(default_factory=dict)
    agg: Mapping[str, AggregateLike] | None = None
    by: Function | Mapping[str, Function] | None = None


Migrate = From | Sequence[From]
"""What `migrate=` takes: each leads to the next, and the last to today's."""
