"""The checks of `top_k`, and its operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from falkirk.errors import DefinitionError
from falkirk.state.codec import check_value_types
from falkirk.stream import operators as op
from falkirk.stream.dataflow.graph import placed
from falkirk.stream.definition.keys import check_column
from falkirk.stream.operators.groups.ordering import Ordering

MOST = 10_000
"""A step writes the whole top of each group that it changes."""


def top_k(
    before: op.Operator,
    line: str,
    columns: tuple[str, ...],
    k: Any,
    by: Any,
    reverse: bool | Sequence[bool],
    rank: Any,
    ties: bool,
    name: str,
    version: int,
) -> op.TopK:
    """The operator. Raises DefinitionError."""
    where = f"top_k {name!r} ({line})"
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MOST:
        raise DefinitionError(f"k={k!r} is not a number of rows", where=where, hint=f"from 1 to {MOST:,}")
    ordering = ordering_of(before.schema, columns, by, reverse, where)
    check_value_types(before.schema, where)
    if rank is not None and (not isinstance(rank, str) or rank in before.schema):
        raise DefinitionError(f"rank={rank!r} is not a new column", where=where, hint="choose another name")
    key, root = placed(before, columns, name)
    unique = before.unique
    if not ties and k == 1:
        unique = frozenset(columns)
    elif not ties and rank is not None:
        unique = frozenset((*columns, rank))
    # A row that changes its group moves to another task: a sink is keyed by the group, too, or two tasks would write one key.
    if unique is not None and root != before.root:
        unique |= set(columns)
    return op.TopK(
        id=name, line=line, inputs=(before,), changes=True, partitioned=key, root=root, regime=before.regime,
        schema=before.schema if rank is None else pl.Schema({**before.schema, rank: pl.Int64()}),
        unique=unique, k=k, columns=columns, ordering=ordering, rank=rank, ties=ties, version=version,
    )  # fmt: skip


def ordering_of(
    schema: pl.Schema, columns: tuple[str, ...], by: Any, reverse: bool | Sequence[bool], where: str,
    *, option: str = "by", other: str = "reverse", descending: bool = False,
) -> Ordering:  # fmt: skip
    """The order of rows. `reverse`: whether the smallest is first, or, with `descending`, the greatest. `option` and `other`
    are the parameters' names. Raises DefinitionError."""
    names = list(by) if isinstance(by, Sequence) and not isinstance(by, str) else [by]
    if not names:
        raise DefinitionError("there is no column to order by", where=where, hint=f'{option}="price"')
    for name in names:
        check_column(name, schema, where)
        if name in columns or names.count(name) > 1:
            what = "is the same in the whole group" if name in columns else "is named twice"
            raise DefinitionError(f"column {name!r} {what}", where=where, hint=f"leave it out of {option}=")
    smallest = [reverse] * len(names) if isinstance(reverse, bool) else list(reverse)
    if len(smallest) != len(names):
        raise DefinitionError(
            f"{other}={reverse!r} is not one value for each column of {option}", where=where, hint="True or False"
        )
    others = tuple(c for c in schema if c not in columns and c not in names)
    return Ordering(tuple(names), tuple(bool(s) != descending for s in smallest), others)
