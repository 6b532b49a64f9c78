"""How each operator runs, in a step of the stream and in a batch: the one place that says so.

    row-wise    a function of a batch of rows, the same in both
    gathering   in the stream a runner over state; in a batch an exchange, which brings the rows of a key together and begins
                with no state

Sources and sinks are the ends of a circuit and of a job, which know them by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from falkirk.stream import operators as op
from falkirk.stream.engine import rows
from falkirk.stream.engine.groups import GroupRunner
from falkirk.stream.engine.lookups import LookupRunner, SharedLookupRunner
from falkirk.stream.engine.partitioners import Partitioners
from falkirk.stream.engine.processes import ProcessRunner
from falkirk.stream.exchanges.base import Exchange
from falkirk.stream.exchanges.groups import group_exchange
from falkirk.stream.exchanges.lookups import LookupExchange
from falkirk.stream.exchanges.processes import ProcessExchange


def _handing_on(operator: op.Operator) -> rows.Rows:
    """What only marks a place in the graph hands on what it gets."""
    return lambda run, batch: batch


ROW_WISE: Mapping[type[op.Operator], Callable[[Any], rows.Rows]] = {
    op.Filter: rows.filtering,
    op.Select: rows.selecting,
    op.WithColumns: rows.extending,
    op.Map: lambda operator: partial(rows.mapped, operator),
    op.FlatMap: lambda operator: partial(rows.flat_mapped, operator),
    op.MapBatches: lambda operator: partial(rows.batch_mapped, operator),
    op.Concat: _handing_on,
    op.Route: rows.routing,
    op.Repartition: _handing_on,
    op.WithRegime: _handing_on,
}


Runner: TypeAlias = GroupRunner | ProcessRunner | LookupRunner | SharedLookupRunner


@dataclass(frozen=True, slots=True)
class Gathering:
    """Both forms of an operator that looks at more rows than one."""

    stream: Callable[[Any, Mapping[str, int], int, Partitioners | None], Runner]
    """From the operator, the numbers of its tables, the task's first shard, and the check of where keys lie."""
    batch: Callable[[Any], Exchange]


GATHERING: Mapping[type[op.Operator], Gathering] = {
    op.Group: Gathering(
        stream=lambda group, tables, first_shard, partitioners: GroupRunner(group, tables, partitioners),
        batch=group_exchange,
    ),
    op.Processing: Gathering(stream=ProcessRunner, batch=ProcessExchange),
    op.Lookup: Gathering(
        stream=lambda lookup, tables, first_shard, partitioners: LookupRunner(lookup, tables, partitioners),
        batch=LookupExchange,
    ),
    op.SharedLookup: Gathering(
        stream=lambda lookup, tables, first_shard, partitioners: SharedLookupRunner(lookup), batch=LookupExchange
    ),
}
