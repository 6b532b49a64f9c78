"""The tables of state that operators use, and how a stage's state is described for its fingerprint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from falkirk.stream import operators as op
from falkirk.stream.aggregates.bound import Bound, Context
from falkirk.stream.aggregates.builtin import BoundExtreme, BoundLen
from falkirk.stream.expressions import words

GROUPS = ""
"""The table of groups; multisets are in tables named after their output column, which is never empty."""
ROWS = ""
"""The aggregate that counts a group's rows; no output column has this name."""
LOOKED_UP = ""
"""The rows of the table that a lookup looks in."""
MOVED = b""
"""The mark of tables of an earlier version that have no rows left (`falkirk.stream.engine.moving`)."""
TIMERS, DUE = ".timers", ".due"
"""A process's timers: by key, and in the order of time."""


def bounds(group: op.Group) -> list[Bound]:
    """What is kept for each group. Where rows can be taken back, their number: a group without rows is gone."""
    if not group.inputs[0].changes:
        return list(group.aggregates.values())
    count = BoundLen(Context(ROWS, group.inputs[0].schema, True, group.where), arguments={}, words="rows")
    return [count, *group.aggregates.values()]


def multiset_bounds(group: op.Group) -> list[BoundExtreme]:
    """The aggregates that need every value of a group, for the next best when the best is taken back."""
    return [b for b in group.aggregates.values() if isinstance(b, BoundExtreme) and b.retract]


def group_schema(group: op.Group) -> pl.Schema:
    """The columns of a group's row of state."""
    return pl.Schema({column: dtype for b in bounds(group) for column, dtype in b.states().items()})


def looked_up_schema(lookup: op.Lookup) -> pl.Schema:
    """What a lookup keeps of a table's row: that it is there, if nothing else."""
    kept = lookup.columns or lookup.key.columns[:1]
    return pl.Schema({c: lookup.inputs[1].schema[c] for c in kept})


def tables_of(operator: op.Operator) -> Sequence[str]:
    """The names of an operator's tables."""
    if isinstance(operator, op.Group):
        return [GROUPS, *(b.name for b in multiset_bounds(operator))]
    if isinstance(operator, op.Processing):
        return [*operator.tables, TIMERS, DUE]
    if isinstance(operator, op.Lookup):
        return [LOOKED_UP]
    return []


def state_words(operator: op.Operator) -> str:
    """An operator's state in one line: what must not change while its state is kept."""
    if isinstance(operator, op.Group):
        keys = {c: operator.schema[c] for c in operator.columns}
        kept = "; ".join(f"{b.name or 'rows'} = {b.words} [{words(b.parts)}]" for b in bounds(operator))
        return f"{operator.id} v{operator.version}: {words(keys)} → {kept} (placed by {operator.partitioned!r})"
    if isinstance(operator, op.Processing):
        keys = {c: operator.inputs[0].schema[c] for c in operator.columns}
        kept = "; ".join(f"{table} [{words(schema)}]" for table, schema in sorted(operator.tables.items()))
        return f"{operator.id} v{operator.version}: {words(keys)} → {kept} (placed by {operator.key!r})"
    if isinstance(operator, op.Lookup):
        keys = {c: operator.inputs[1].schema[c] for c in operator.key.columns}
        kept = words(looked_up_schema(operator))
        return f"{operator.id} v{operator.version}: {words(keys)} → {kept} (written as {operator.key!r})"
    return ""


def kept_by(operators: Iterable[op.Operator]) -> dict[str, int]:
    """What operators with state keep: how many tables, by `state_words`."""
    return {state_words(o): len(tables_of(o)) for o in operators}


def kept_earlier(operators: Iterable[op.Operator]) -> dict[str, int]:
    """What they kept in earlier versions, likewise."""
    return kept_by(e.operator for o in operators for e in o.earlier)
