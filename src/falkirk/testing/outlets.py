"""What sinks outside Kafka would write. Steps log the rows for them (`falkirk.stream.operators.sinks.outlet`), and under test
nobody publishes what is logged, so the log has all of it.

    log of a sink of files or a table ──▶ a record for each row
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from falkirk.checkpoint.steps import HEADER, maker
from falkirk.stream.access.producing import Record
from falkirk.stream.dataflow.batch import TS, WEIGHT
from falkirk.stream.dataflow.packing import unpacked
from falkirk.stream.dataflow.process import moment
from falkirk.stream.dataflow.records import Message
from falkirk.stream.definition.outlets import GONE, WEIGHT_COLUMN, FilesPlan
from falkirk.stream.operators.sinks.outlet import OutletSink
from falkirk.stream.stages.plan import Plan
from falkirk.testing.records import Sink


def outlets_of(plan: Plan) -> dict[str, OutletSink]:
    """The sinks outside Kafka, by the topic of the log."""
    found: dict[str, OutletSink] = {}
    for stage in plan.planned:
        sinks = {o.id: o for o in stage.operators if isinstance(o, OutletSink)}
        found |= {output.topic: sinks[output.id] for output in stage.outputs if output.outlet is not None}
    return found


def logged(sink: OutletSink, messages: Sequence[Message]) -> Sink:
    """A sink with the rows that its log has. In a table with a key, a row that is gone is a tombstone. A row of files that
    takes another back has a weight of −1."""
    weight = {WEIGHT_COLUMN: pl.Int64()} if sink.changes and isinstance(sink.plan, FilesPlan) else {}
    return Sink(tuple(record for m in messages for record in _rows(sink, m)), {**sink.schema, **weight})


def _rows(sink: OutletSink, message: Message) -> Iterator[Record]:
    columns = () if isinstance(sink.plan, FilesPlan) else sink.plan.key
    headers = list(message.headers() or ())
    for row in unpacked(message.value() or b"", f"the log of {sink.id}").iter_rows(named=True):
        millis, gone = row.pop(TS), row.pop(GONE, False)
        if WEIGHT in row:
            row[WEIGHT_COLUMN] = row.pop(WEIGHT)
        key = [row[column] for column in columns]
        yield Record(
            key=key[0] if len(key) == 1 else key or None,
            value=None if gone else row,
            timestamp=moment(millis),
            headers=headers,
            partition=message.partition(),
            offset=message.offset(),
            maker=maker(dict(headers).get(HEADER) or b""),
        )
