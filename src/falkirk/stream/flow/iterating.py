"""`stream.iterate(body)`: calls the body once with a stream of its own, and moves what it builds into a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import narwhals as nw

from falkirk.blame import user_line
from falkirk.errors import DefinitionError
from falkirk.stream import operators as op
from falkirk.stream.definition.expressions import evaluate
from falkirk.stream.definition.functions import checked_function
from falkirk.stream.definition.names import default_id
from falkirk.stream.formats.rows import RowT_co
from falkirk.stream.formats.types import described
from falkirk.stream.operators.loops.iterate import ALL
from falkirk.stream.operators.loops.rows import check_columns

if TYPE_CHECKING:
    from falkirk.stream.flow.streams import Stream


def iterate(
    self: Stream[RowT_co],
    body: Callable[[Stream[RowT_co]], Stream[Any]],
    *,
    max_iterations: int = 1000,
    id: str | None = None,  # noqa: A002
    version: int = 1,
) -> Stream[RowT_co]:
    """Apply `body` to the rows again and again, until they stay the same: X(0) is this stream, and X(i + 1) = body(X(i)). The
    result is kept up to date: when rows come or are taken back, only what depends on them is computed again.

    `body` is called once, with a stream, and returns a stream with the same columns. It can use other streams of the flow,
    and the operators filter, select, with_columns, map, flat_map, map_batches, explode, concat, unique, join, and group_by
    with len, sum, mean, min and max. If rows still change after `max_iterations`, the app stops.

    All rows are in one task. State: all rows that the operators of the body see, by iteration. `id` names it. Raise `version`
    if a Python function in the body gives other rows. Raises DefinitionError.

    >>> import falkirk as fk
    >>> flow = fk.Flow("example")
    >>> links = flow.source("links", value=fk.Json({"node": int, "to": int}))
    >>> def further(near):
    ...     two = near.join(links, left_on="to", right_on="node", suffix="_2").select("node", to="to_2")
    ...     return links.concat(two).unique()
    >>> links.iterate(further, id="near").sink("near", key=["node", "to"], value=fk.Json())
    >>> rows = [{"node": 1, "to": 2}, {"node": 2, "to": 3}]
    >>> list(fk.testing.run(flow, {"links": rows}).sinks["near"].table)
    [(1, 2), (2, 3), (1, 3)]
    """
    from falkirk.stream.flow.streams import Stream

    line = user_line()
    name = id or default_id(self._op.id, "iterate")
    where = f"iterate {name!r} ({line})"
    checked_function(body, where)
    if type(max_iterations) is not int or max_iterations < 1:
        raise DefinitionError(
            f"max_iterations={max_iterations!r} is not a number of iterations", where=where, hint="max_iterations=100"
        )
    before, graph = self._op, self._graph
    _check_outside([before], where)  # before the operators of the body say it in their words
    variable = op.LoopVariable(
        id=name, line=line, inputs=(), schema=before.schema, changes=True, unique=None, root=name, regime=before.regime
    )
    built, inside = graph.apart(variable, lambda: body(Stream(graph, variable)))
    result = _checked(built, before, graph, inside, where)
    needed = _upstream(result, inside)
    kept = tuple(o for o in inside if o in needed)
    outside = dict.fromkeys((before, *(i for o in kept for i in o.inputs if i is not variable and i not in kept)))
    _check_outside(outside, where)
    made = op.Iterate(
        id=name, line=line, inputs=tuple(_to_one_task(graph, one, line, where) for one in outside),
        schema=before.schema, changes=True, unique=result.unique, root=name, regime=before.regime, variable=variable,
        outside=tuple(outside), body=kept, result=result, max_iterations=max_iterations, version=version,
    )  # fmt: skip
    made.wiring  # noqa: B018  # it checks the operators of the body
    return Stream(graph, graph.add(made, exchange=True))


def _check_outside(operators: Iterable[op.Operator], where: str) -> None:
    for one in operators:
        check_columns(one.schema, f"{one.kind} {one.id!r}, which flows into {where}")


def _checked(built: Any, before: op.Operator, graph: op.Graph, inside: list[op.Operator], where: str) -> op.Operator:
    """The operator that the body ends with. Raises DefinitionError."""
    from falkirk.stream.flow.streams import Stream

    if not isinstance(built, Stream):
        raise DefinitionError(
            f"the body gives {built!r}, not a stream", where=where, hint="lambda rows: rows.join(…).select(…).unique()"
        )
    result: op.Operator = built._op
    if built._graph is not graph:
        raise DefinitionError("the body gives a stream of another flow", where=where, hint="use streams of one flow")
    if result not in inside:
        raise DefinitionError(
            "the body gives a stream that does not follow from the rows it was given",
            where=where,
            hint="the rows of an iteration are made of those before: lambda rows: rows.join(…)…",
        )
    if result.schema != before.schema:
        raise DefinitionError(
            f"the body gives {described(result.schema)}, and the loop begins with {described(before.schema)}",
            where=where,
            hint="end the body with a select of the same columns, in the same order and with the same types",
        )
    if lost := next((o for o in inside if o.role != "operator"), None):
        raise DefinitionError(
            f"a {lost.role} cannot be inside a loop", where=lost.where, hint="write the result of iterate(…)"
        )
    return result


def _upstream(result: op.Operator, inside: list[op.Operator]) -> set[op.Operator]:
    """The operators of the body that the result needs."""
    needed, waiting = set[op.Operator](), [result]
    while waiting:
        operator = waiting.pop()
        if operator in inside and operator not in needed:
            needed.add(operator)
            waiting += operator.inputs
    return needed


def _to_one_task(graph: op.Graph, before: op.Operator, line: str, where: str) -> op.Operator:
    """The stream with a column that has one value: by it, an exchange brings all rows to one task."""
    given = (nw.lit(0).alias(ALL),)
    schema = evaluate(given, before.schema, "with_columns", where)
    marked = op.WithColumns(
        id=before.id, line=line, inputs=(before,), schema=schema, changes=before.changes, unique=before.unique,
        partitioned=before.partitioned, root=before.root, regime=before.regime, time=before.time, exprs=given,
    )  # fmt: skip
    graph.add_hidden(marked)
    return marked
