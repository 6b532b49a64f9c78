"""`migrate=`: an operator's state in earlier versions, and how its rows become rows of the current version.

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
    """An earlier version of an operator's state, and a function from its rows to rows of the next version.

    >>> def in_cents(row):
    ...     return {"cents": round(row["euros"] * 100)}
    >>> before = From(1, state={"euros": float}, by=in_cents)

    For a process: `state` and `tables` are the schemas of that version. `by` is a function from a row of `state` (a
    dict) to a row of the next version, or a dict of such functions by table. A table with the same columns needs no
    function. A table that no longer exists is dropped.

    For a group: `agg` are the aggregates of that version, for example `From(1, agg={"n": fk.len()})`. Unchanged
    aggregates keep their state. `by` gets the parts of the earlier aggregates (`n.rows`) and returns the parts of the
    new ones. Without it, new aggregates begin empty. A changed aggregate, for example of another type, needs `by`.
    """

    version: int
    state: SchemaLike | None = None
    tables: Mapping[str, SchemaLike] = field(default_factory=dict)
    agg: Mapping[str, AggregateLike] | None = None
    by: Function | Mapping[str, Function] | None = None


Migrate = From | Sequence[From]
"""The value of `migrate=`: each version leads to the next, and the last to the current version."""
