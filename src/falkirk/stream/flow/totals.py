"""Aggregates as `agg` is given them, and the aggregates of a whole stream."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import narwhals as nw
import polars as pl

from falkirk.errors import DefinitionError
from falkirk.state.codec import check_value_type
from falkirk.stream import operators as op
from falkirk.stream.aggregates.bound import Bound, Context
from falkirk.stream.aggregates.builtin import BoundLen
from falkirk.stream.aggregates.values import BoundBest
from falkirk.stream.formats import Key
from falkirk.stream.operators.groups.folding import ROWS
from falkirk.stream.operators.groups.partials import EVERYTHING, merges, parts_schema


def bound_aggregates(
    before: op.Operator, aggregates: Mapping[str, Any], columns: Collection[str], where: str, *, sessions: bool = False
) -> dict[str, Bound]:
    """The aggregates by their column. `columns`: those of the group. `sessions` add up their rows again where one is taken
    back, and have one row of state each. Raises DefinitionError."""
    if not aggregates:
        raise DefinitionError("agg() has no aggregates", where=where, hint="agg(n=fk.len())")
    bound = {}
    for name, aggregate in aggregates.items():
        if name in columns:
            raise DefinitionError(f"{name!r} is already a column of the group", where=where, hint="choose another name")
        check_object(name, aggregate, where)
        if hasattr(aggregate, "window"):
            raise DefinitionError(
                f"{name} is a column of each row, because of its .over(…), and not an aggregate of the group",
                where=where,
                hint=f"leave .over(…) out, or use stream.with_columns({name}=…) in place of the group",
            )
        if not hasattr(aggregate, "bind"):
            raise DefinitionError(
                f"{name}={aggregate!r} is not an aggregate",
                where=where,
                hint="use fk.len(), fk.sum, fk.min, fk.max, fk.mean, or your own fk.Aggregate",
            )
        one = aggregate.bind(Context(name, before.schema, before.changes and not sessions, where))
        bound[name] = one.in_one_row() if sessions else one
        for column, dtype in bound[name].states().items():
            check_value_type(dtype, where=f"state {column} of {where}")
    return bound


def check_object(name: str, aggregate: Any, where: str) -> None:
    """Raises DefinitionError for the class of an aggregate."""
    if isinstance(aggregate, type):
        kind = aggregate.__name__
        raise DefinitionError(f"{name}={kind} is a class, and no aggregate", where=where, hint=f'{kind}("price")')


def check_named(unnamed: Sequence[Any], where: str) -> None:
    """Raises DefinitionError for aggregates without a name."""
    if unnamed:
        raise DefinitionError(
            "each aggregate needs a name, which is its column's", where=where, hint='agg(total=fk.sum("price"))'
        )


def whole(
    graph: op.Graph, before: op.Operator, aggregates: Mapping[str, Any], name: str, version: int, line: str
) -> op.Operator:
    """One row for all rows. Raises DefinitionError."""
    where = f"agg {name!r} ({line})"
    bound = bound_aggregates(before, aggregates, (), where)
    if not all(merges(b) or (isinstance(b, BoundBest) and _stays(before)) for b in bound.values()):
        return _of_rows(graph, before, bound, name, version, line)
    count = [BoundLen(Context(ROWS, before.schema, True, where), arguments={}, words="rows")] if before.changes else []
    bounds = (*count, *bound.values())
    same: dict[str, Any] = {"line": line, "regime": before.regime}
    own: dict[str, Any] = {
        "id": f"{name}.partials", "inputs": (before,), "schema": parts_schema(bounds), "root": before.root,
        "bounds": bounds, **same,
    }  # fmt: skip
    stateful = not all(map(merges, bounds))
    partials = graph.add(op.BestPartials(version=version, **own) if stateful else op.Partials(**own))
    total = op.Total(
        id=name, inputs=(partials,), schema=pl.Schema({n: b.returns for n, b in bound.items()}), changes=True,
        unique=frozenset(), root=name, partials=partials, version=version, **same,
    )  # fmt: skip
    return graph.add(total, exchange=True)


def _stays(before: op.Operator) -> bool:
    """Whether a row is taken back in the task to which it came."""
    while before.row_wise and len(before.inputs) == 1 and before.partitioned is None:
        before = before.inputs[0]
    return before.partitioned is not None or not before.changes


def _of_rows(
    graph: op.Graph, before: op.Operator, bound: Mapping[str, Bound], name: str, version: int, line: str
) -> op.Operator:
    """All rows go to one task, because some aggregates cannot be merged."""
    column = EVERYTHING
    while column in before.schema or column in bound:
        column += "_"
    same: dict[str, Any] = {"line": line, "regime": before.regime}
    keyed = op.WithColumns(
        id=op.WithColumns.kind, inputs=(before,), schema=pl.Schema({**before.schema, column: pl.Boolean()}),
        changes=before.changes, partitioned=before.partitioned, root=before.root,
        exprs=(nw.lit(value=True).alias(column),), **same,
    )  # fmt: skip
    schema = pl.Schema({n: b.returns for n, b in bound.items()})
    group = op.Group(
        id=name, inputs=(graph.add(keyed),), changes=True, partitioned=Key(column), root=name,
        unique=frozenset({column}), schema=pl.Schema({column: pl.Boolean(), **schema}), columns=(column,),
        aggregates=dict(bound), version=version, **same,
    )  # fmt: skip
    chosen = op.Select(
        id=op.Select.kind, inputs=(graph.add(group, exchange=True),), schema=schema, changes=True, unique=frozenset(),
        root=name, exprs=tuple(nw.col(n) for n in schema), **same,
    )  # fmt: skip
    return graph.add(chosen)
