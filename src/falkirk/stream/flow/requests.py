"""`flow.http`, requests of an HTTP endpoint as a stream, and `stream.answer`, what they are answered with.

topic of requests ──▶ HttpSource ──▶ deduplicate by request ──▶ without the digest ──▶ the user's operators
                                               └──▶ AnswerSink ◀── the rows of .answer(…), if there is one

With `reduce=`, a record is a request with all rows that the gateway has left, and the rows become a stream last. What the
gateway does must be the same at any gateway, and whenever the request is sent again. So only operators are accepted whose
result is a function of the row alone, and no Python functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import narwhals as nw
import polars as pl

from falkirk.blame import did_you_mean, user_line
from falkirk.durations import DurationLike, duration
from falkirk.errors import DefinitionError
from falkirk.stream import operators as op
from falkirk.stream.definition.functions import checked_function
from falkirk.stream.definition.keys import sink_format
from falkirk.stream.definition.names import check_name
from falkirk.stream.definition.on_error import OnError, checked_on_error
from falkirk.stream.definition.requests import DIGEST, REQUEST, ROWS, RequestsPlan
from falkirk.stream.flow.sources import in_cluster
from falkirk.stream.formats import Json, Key
from falkirk.stream.formats.rows import Row, RowT_co
from falkirk.stream.operators.sinks.answer import AnswerSink, answer_schema
from falkirk.stream.operators.sources.reduction import Reduction
from falkirk.stream.operators.sources.requests import HttpSource

if TYPE_CHECKING:
    from falkirk.stream.flow.flow import Flow
    from falkirk.stream.flow.streams import Stream

_LEAST, _MOST = timedelta(minutes=1), timedelta(days=30)


def http(
    flow: Flow,
    name: str,
    *,
    value: Json,
    reduce: Callable[[Stream[Row]], Stream[Any]] | None = None,
    keep: DurationLike = "1d",
    topic: str | None = None,
    answers: str | None = None,
    partitions: int = 4,
    on_error: OnError | None = None,
) -> Stream[Row]:
    """The requests of an HTTP endpoint, one row for each. `falkirk serve` answers `POST /name` once the step that has read
    the request has committed: with the rows of `.answer(…)`, or with an acknowledgement if the flow has none.

    `value` is the JSON of a request's body. The stream has its columns and `request`, the request's name: the client's
    Idempotency-Key, or one that is made up. For the time `keep`, a request with the same key is not computed again. It gets
    the same answer.

    `reduce` is for sources of many rows. It gets the stream of what clients send, and returns the stream of what is left of
    it, by filter, select, with_columns and explode. A gateway does this before it writes anything to Kafka. A request may
    then have many rows, in a JSON array or as lines of JSON. They are logged together, or not at all. If no row is left,
    nothing is logged, and the request is answered at once.

    Requests are in the topic `topic`, by default `name`, and answers in the topic `answers`, by default `name`-answers. The
    app makes both; that of requests gets so many `partitions`. `on_error` applies to records that do not decode. Raises
    DefinitionError. See docs/how-to/http.md.

    >>> import falkirk as fk
    >>> flow = fk.Flow("shop")
    >>> orders = flow.http("orders", value=fk.Json({"item": str, "usd": int}))
    >>> orders.with_columns(tax=fk.col("usd") * 0.2).select("request", "tax").answer("orders")
    >>> asked = [{"request": "a1", "item": "lamp", "usd": 40}]
    >>> [record.value["rows"] for record in fk.testing.run(flow, {"orders": asked}).sinks["orders.answers"].records]
    [[{'tax': 8.0}]]
    >>> value, late = fk.Json({"carrier": str, "delay": int, "note": str}), fk.col("delay") > 15
    >>> delays = flow.http("delays", value=value, reduce=lambda rows: rows.filter(late).select("carrier", "delay"))
    >>> delays
    <Stream of select 'select': request String, carrier String, delay Int64>
    """
    from falkirk.stream.flow.streams import Stream

    line, graph = user_line(), flow.graph
    where = f"http {name!r} ({line})"
    check_name(name, "source", line)
    body = _checked_body(value, where)
    if graph.regime.recovery.in_epochs:
        raise DefinitionError(
            "a batch part cannot answer requests",
            where=where,
            hint="give the flow another regime: fk.EagerCheckpoint()",
        )
    if partitions < 1:
        raise DefinitionError(
            f"partitions={partitions!r} is not a number of partitions", where=where, hint="give 1 or more"
        )
    kept = duration(keep, "keep", where=where, error=DefinitionError)
    if not _LEAST <= kept <= _MOST:
        raise DefinitionError(f"keep={keep!r} is out of range", where=where, hint='give a time from "1m" to "30d"')
    topics = [in_cluster("", topic or name, where), in_cluster("", answers or f"{topic or name}-answers", where)]
    if topics[0] == topics[1]:
        raise DefinitionError(f"requests and answers would be in one topic, {topics[0]!r}", where=where)
    for other in (o.plan for o in graph.operators if isinstance(o, HttpSource) and o.id != name):
        if shared := {other.topic, other.answers} & set(map(str, topics)):
            raise DefinitionError(
                f"topic {min(shared)!r} is that of HTTP source {other.name!r}, too: the same Idempotency-Key would get the "
                "answer of either",
                where=where, hint="give this one topics of its own: topic=, answers=",
            )  # fmt: skip
    plan = RequestsPlan(name, str(topics[0]), str(topics[1]), kept // timedelta(milliseconds=1), partitions)
    source = HttpSource(
        id=name, line=line, inputs=(), schema=body.schema or pl.Schema(), partitioned=Key(REQUEST), root="",
        regime=graph.regime, topics=plan.topic, key=Key(REQUEST), value=body, start="earliest", metadata={}, checked=True,
        on_error=checked_on_error(on_error, where), plan=plan,
    )  # fmt: skip
    if reduce is not None:
        reduction = _reduction(graph, reduce, value, source, where)
        records = _records(reduction.schema, plan, where)
        source = replace(source, reduction=reduction, value=records, schema=records.schema or pl.Schema())
    asked: Stream[Any] = Stream(graph, graph.add(source))
    # A request without a key has a name of its own: its state would be of no use.
    again = nw.col(DIGEST).is_null() | (nw.col(DIGEST) != "")
    keyed = asked.filter(again)._op
    first = op.Deduplicate(
        id=f"{name}.once", line=line, inputs=(keyed,), schema=keyed.schema, partitioned=keyed.partitioned, root=keyed.root,
        regime=keyed.regime, columns=(REQUEST,), within=plan.keep, version=1, recorded=True,
    )  # fmt: skip
    once: Stream[Any] = Stream(graph, graph.add(first))
    taken = once.concat(asked.filter(nw.col(DIGEST) == ""))
    graph.add(_sink(f"{name}.receipts", line, plan, None, taken._op))
    if source.reduction is not None:
        fields = [nw.col(ROWS).struct.field(name).alias(name) for name in source.reduction.schema]
        return taken.explode(ROWS).select(REQUEST, *fields)
    return taken.select(*(column for column in taken.schema if column != DIGEST))


def answer(stream: Stream[RowT_co], name: str) -> None:
    """Answer the requests of the HTTP source `name` with these rows. A row has the column `request`, which says whom it is
    for; the client gets its other columns.

    If the rows of a request come in the step that reads it, because there are only row-wise operators and lookups before,
    a request without rows is answered with none. Otherwise all rows of a request must come in the same step, and a request
    without rows is not answered. Raises DefinitionError.

    >>> import falkirk as fk
    >>> flow = fk.Flow("shop")
    >>> orders = flow.http("orders", value=fk.Json({"usd": int}))
    >>> orders.filter(fk.col("usd") > 10).answer("orders")
    >>> asked = [{"request": "a1", "usd": 40}, {"request": "a2", "usd": 4}]
    >>> app = fk.testing.run(flow, {"orders": asked})
    >>> {record.key: record.value["rows"] for record in app.sinks["orders.answers"].records}
    {'a1': [{'usd': 40}], 'a2': []}
    """
    line, graph, rows = user_line(), stream._graph, stream._op
    where = f"answer {name!r} ({line})"
    sources = {o.id: o for o in graph.operators if isinstance(o, HttpSource)}
    if (source := sources.get(name)) is None:
        raise DefinitionError(
            f"the flow has no HTTP source {name!r}", where=where,
            hint=did_you_mean(name, sources) if sources else 'define one: flow.http("orders", value=fk.Json({"usd": int}))',
        )  # fmt: skip
    if rows.schema.get(REQUEST) != pl.String():
        raise DefinitionError(
            f"the rows have no column {REQUEST!r} of type String, which says whom they answer", where=where,
            hint=f'keep it: .select("{REQUEST}", …)',
        )  # fmt: skip
    if rows.changes:
        raise DefinitionError(
            "rows of this stream can be taken back, and an answer cannot", where=where,
            hint="look the result up for each request: requests.lookup(flow.table(totals, key=…))",
        )  # fmt: skip
    if rows.batch:
        raise DefinitionError("a batch part cannot answer requests", where=where, hint="write a topic, and read it")
    sinks = [o for o in graph.operators if isinstance(o, AnswerSink) and o.plan is source.plan]
    if others := [sink for sink in sinks if sink.has_rows]:
        raise DefinitionError(
            f"HTTP source {name!r} is answered twice", where=f"{where} and {others[0].line}",
            hint="bring the rows together: .concat(…)",
        )  # fmt: skip
    [receipts] = sinks
    taken = receipts.inputs[0]
    if _in_one_step(graph, taken, rows):
        graph.withdraw(receipts)
        graph.add(_sink(f"{name}.answers", line, source.plan, rows, taken))
        return
    graph.add(_sink(f"{name}.answers", line, source.plan, rows, None))


def _sink(
    name: str, line: str, plan: RequestsPlan, rows: op.Operator | None, requests: op.Operator | None
) -> AnswerSink:
    inputs = tuple(o for o in (rows, requests) if o is not None)
    fields, first = answer_schema(None if rows is None else rows.schema, requests=requests is not None), inputs[0]
    sink_format(Json(), plan.answers, fields, f"answer {plan.name!r} ({line})")
    try:
        value = Json(dict(fields))
    except DefinitionError:
        value = Json()  # it can be written, and not read back
    return AnswerSink(
        id=name, line=line, inputs=inputs, schema=pl.Schema({REQUEST: pl.String(), **fields}),
        partitioned=first.partitioned, root=first.root, regime=first.regime, topic=plan.answers, key=Key(REQUEST),
        plan=plan, has_rows=rows is not None, has_requests=requests is not None, value=value,
    )  # fmt: skip


def _checked_body(value: Any, where: str) -> Json:
    """The format of records: that of bodies, with the fields that a gateway adds. Raises DefinitionError."""
    if not isinstance(value, Json) or value.schema is None:
        raise DefinitionError(
            f"value={value!r} is not the format of a body", where=where, hint='give value=fk.Json({"usd": int})'
        )
    if taken := [column for column in (REQUEST, DIGEST) if column in value.schema]:
        raise DefinitionError(
            f"column {taken[0]!r} is added by Falkirk", where=where, hint="give the field another name"
        )
    schema = {REQUEST: pl.String(), DIGEST: pl.String(), **value.schema}
    return Json(schema, extra=value.extra, missing=value.missing)


def _reduction(
    graph: op.Graph, reduce: Callable[[Stream[Row]], Stream[Any]], value: Json, source: HttpSource, where: str
) -> Reduction:
    """What `reduce` does with the rows of requests. Raises DefinitionError."""
    from falkirk.stream.flow.streams import Stream

    checked_function(reduce, where)
    start = replace(source, value=value, schema=value.schema or pl.Schema(), partitioned=None, key=None, checked=False)
    built: Any
    built, behind = graph.apart(start, lambda: reduce(Stream(graph, start)))
    if wrong := next((o for o in behind if not o.runs_in_gateways), None):
        raise DefinitionError(
            f"a gateway cannot run {wrong.kind}: reduce= of HTTP source {source.id!r} has only operators without state "
            "and without functions in Python",
            where=wrong.where,
            hint="use filter, select, with_columns and explode; the stream of flow.http(…) has all operators",
        )
    result = built._op if isinstance(built, Stream) else None
    if result is not start and result not in behind:
        raise DefinitionError(
            f"reduce= gives {built!r}, and not a stream of the rows that it was given", where=where,
            hint='lambda rows: rows.filter(…).select("origin", "delay")',
        )  # fmt: skip
    operators: list[op.Operator] = []
    while result is not start and result is not None:
        operators.insert(0, result)
        result = result.inputs[0]
    return Reduction(value, tuple(operators))


def _records(rows: pl.Schema, plan: RequestsPlan, where: str) -> Json:
    """The format of requests with these rows. Raises DefinitionError if JSON cannot hold them."""
    if taken := [column for column in (REQUEST, DIGEST) if column in rows]:
        raise DefinitionError(f"column {taken[0]!r} is added by Falkirk", where=where, hint="give it another name")
    sink_format(Json(), plan.topic, rows, where)
    listed = pl.List(pl.Struct([pl.Field(name, dtype) for name, dtype in rows.items()]))
    try:
        return Json({REQUEST: pl.String(), DIGEST: pl.String(), ROWS: listed})
    except DefinitionError as error:
        raise DefinitionError(error.what, where=where, hint="cast the column in reduce=") from error


def _in_one_step(graph: op.Graph, taken: op.Operator, rows: op.Operator) -> bool:
    """Whether the rows of a request come in the step that takes it. They do unless they pass an edge, or an operator that
    may hold them back."""
    return rows.root == taken.root and all(_at_once(o) for o in _between(graph.operators, taken, rows))


def _between(operators: Iterable[op.Operator], first: op.Operator, last: op.Operator) -> list[op.Operator]:
    """The operators on the ways from one operator to another, the last included."""
    behind = {first}
    for operator in operators:
        if not behind.isdisjoint(operator.inputs):
            behind.add(operator)
    before: list[op.Operator] = []
    waiting = [last]
    while waiting:
        operator = waiting.pop()
        if operator is not first and operator in behind and operator not in before:
            before.append(operator)
            waiting += operator.inputs
    return before


def _at_once(operator: op.Operator) -> bool:
    return operator.row_wise or isinstance(operator, op.Lookup | op.Enrich)
