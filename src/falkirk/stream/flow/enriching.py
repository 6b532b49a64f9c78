"""`stream.enrich`: columns that a user's async function gives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from falkirk.blame import user_line
from falkirk.durations import DurationLike, duration
from falkirk.errors import DefinitionError
from falkirk.stream import operators as op
from falkirk.stream.dataflow.calls import CallPlan
from falkirk.stream.definition.functions import checked_async
from falkirk.stream.definition.on_error import OnError, checked_on_error
from falkirk.stream.formats.rows import Row, SchemaLike
from falkirk.stream.formats.types import schema_of

if TYPE_CHECKING:
    from falkirk.stream.flow.streams import Stream

RowT = TypeVar("RowT")


def enrich(
    stream: Stream[RowT],
    function: Callable[[RowT], Awaitable[Mapping[str, Any]]] | type[Any] | partial[Any],
    *,
    returns: SchemaLike,
    concurrency: int = 100,
    timeout: DurationLike = "5s",
    retries: int = 3,
    backoff: DurationLike = "100ms",
    retry_on: type[Exception] | tuple[type[Exception], ...] = Exception,
    id: str | None = None,  # noqa: A002
    on_error: OnError | None = None,
) -> Stream[Row]:
    """Add columns that an async function gives for each row, for example from a service that it calls. Rows keep their order.

    The function gets a dict and returns a dict with the columns of `returns`. Falkirk records the answers in the step's
    transaction: after a crash, no call is made again for a committed step. If a step is not committed, its calls are made
    again, so the service may see a call more than once.

    In each task, up to `concurrency` calls run at a time. A call that takes longer than `timeout`, or raises one of
    `retry_on`, is tried again up to `retries` times. The pause before that is `backoff`, and doubles each time. `on_error`
    applies to rows that have no answer then.

    To share a client between calls, pass a class: each task makes an object and calls it with each row. If the class has
    `__aenter__` and `__aexit__`, the task opens the object first, calls what `__aenter__` returns, and closes it at its end.

    `id` names the operator in metrics. Raises DefinitionError for a stream that can take rows back.

    >>> import falkirk as fk
    >>> async def score(row):
    ...     return {"score": row["price"] / 100}  # in earnest: await client.get(…)
    >>> flow = fk.Flow("example")
    >>> bids = flow.source("bids", value=fk.Json({"price": int}))
    >>> bids.enrich(score, returns={"score": float}).sink("scored", value=fk.Json())
    >>> fk.testing.run(flow, {"bids": [{"price": 120}, {"price": 90}]}).sinks["scored"].rows
    [{'price': 120, 'score': 1.2}, {'price': 90, 'score': 0.9}]
    """
    from falkirk.stream.flow.streams import Stream

    line, before = user_line(), stream._op
    name = id or name_of(function)
    where = f"enrich {name!r} ({line})"
    checked_async(function, where)
    if before.changes:
        raise DefinitionError(
            "rows of this stream can be taken back, and another call might not give what was added",
            where=where,
            hint="enrich the rows before they are grouped or joined; or each window once, with .final()",
        )
    for option, value, least in (("concurrency", concurrency, 1), ("retries", retries, 0)):
        if type(value) is not int or value < least:
            raise DefinitionError(f"{option}={value!r} is not a number of at least {least}", where=where)
    kinds = retry_on if isinstance(retry_on, tuple) else (retry_on,)
    if not all(map(_is_exception, kinds)):
        raise DefinitionError(
            f"retry_on={retry_on!r} is not a class of exceptions", where=where, hint="retry_on=(TimeoutError, OSError)"
        )
    plan = CallPlan(
        function,
        concurrency,
        duration(timeout, "timeout", where=where, error=DefinitionError).total_seconds(),
        retries,
        duration(backoff, "backoff", where=where, error=DefinitionError).total_seconds(),
        kinds,
    )
    added = schema_of(returns)
    made = op.Enrich(
        id=name, line=line, inputs=(before,), schema=pl.Schema({**before.schema, **added}), root=before.root,
        regime=before.regime, time=None if before.time in added else before.time, calls=plan, added=added,
        on_error=checked_on_error(on_error, where),
    )  # fmt: skip
    return Stream(stream._graph, stream._graph.add(made))


def _is_exception(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Exception)


def name_of(function: Any) -> str:
    """What a function, or a class, is called."""
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)
