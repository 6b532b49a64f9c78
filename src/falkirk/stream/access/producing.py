"""Rows as the records that a producer would write: by the formats of the source that reads them.

Requests of an HTTP source with `reduce=` are written as a gateway would write them: their rows are reduced, and there is no
record of a request of which nothing is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

import polars as pl

from falkirk.blame import did_you_mean, in_brief
from falkirk.checkpoint.ids import name_of
from falkirk.checkpoint.steps import Maker
from falkirk.durations import millis_since_1970
from falkirk.errors import ConfigError, FalkirkError
from falkirk.state.shards import murmur2_of
from falkirk.stream.dataflow.records import Headers
from falkirk.stream.definition.fitting import Unfit, frame_of_frame, frame_of_rows
from falkirk.stream.definition.pattern import reads
from falkirk.stream.definition.requests import ROWS
from falkirk.stream.formats import Format, Registering
from falkirk.stream.formats.debezium import Debezium
from falkirk.stream.formats.types import described
from falkirk.stream.operators.sources.reduction import Misfit, Reduction, Request
from falkirk.stream.operators.sources.requests import HttpSource
from falkirk.stream.operators.sources.source import Source
from falkirk.stream.operators.sources.table import TableSource
from falkirk.stream.stages.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record of a topic, to be sent, or as a sink has it.

    >>> Record(key="7", value={"auction": 7, "price": 120}).value
    {'auction': 7, 'price': 120}
    """

    key: Any = None
    """What the key's format reads: a scalar, or a list for a key of several columns. Sent: that, or bytes, or text; None
    with a row as the value: the row's own."""
    value: Any = None
    """A row, as a dict; None is a tombstone. Sent: that, or bytes, or text. What cannot be read back is bytes."""
    timestamp: datetime | None = None
    """Sent without one: the clock's."""
    headers: Headers | tuple[()] = ()
    partition: int | None = None
    """Sent without one: where Java's producers would put the key; those without a key go round."""
    offset: int | None = None
    """Not to be sent."""
    maker: Maker | None = None
    """The task, step and sequence number that wrote it; not to be sent."""


Rows: TypeAlias = pl.DataFrame | Iterable[Mapping[str, Any] | Record | tuple[Any, Any]]
"""What can be sent."""


_NOT_READ = ("source", "transaction", "ts_ms", "ts_us", "ts_ns")
"""What else is in an envelope of Debezium. Sources do not read it."""


class Sent(NamedTuple):
    """A record to write."""

    key: bytes | None
    value: bytes | None
    millis: int
    headers: Headers
    partition: int | None


def placed(record: Sent, topic: str, partitions: int, unkeyed: Counter[str]) -> int:
    """The partition of a record: its own, or where Java's producers would put its key; those without a key go round."""
    if record.partition is not None:
        return record.partition
    if record.key is not None:
        return (murmur2_of(record.key) & 0x7FFFFFFF) % partitions
    unkeyed[topic] += 1
    return (unkeyed[topic] - 1) % partitions


def sources_of(plan: Plan) -> dict[str, Source]:
    """All sources and tables of a flow, by name."""
    found = [source for stage in plan.planned for source in stage.sources]
    found += [source for batch in plan.batches for source in batch.sources]
    return {source.id: source for source in [*found, *(table.source for table in plan.shared)]}


def source_named(plan: Plan, name: str) -> Source:
    """The source or table of this name, or else of this topic. Raises ConfigError."""
    sources = sources_of(plan)
    named = [s for s in sources.values() if s.id == name] or [s for s in sources.values() if reads(s.topics, name)]
    if not named:
        raise ConfigError(f"the flow has no source or table called {name!r}", hint=did_you_mean(str(name), sources))
    return named[0]


def topic_of(source: Source, name: str) -> str:
    """The topic that is meant by the name of a source, or of a topic of its. Raises ConfigError."""
    if isinstance(source.topics, str):
        return source.topics
    if not reads(source.topics, name):
        raise ConfigError(
            f"source {source.id!r} reads several topics: {source.topic}", hint="send to one of them, by its name"
        )
    return name


def encoded(source: Source, rows: Rows, clock: int) -> list[Sent]:
    """Records of these rows. Raises ConfigError where one does not fit the source.

    >>> import falkirk as fk
    >>> flow = fk.Flow("example")
    >>> flow.source("bids", key="auction", value=fk.Json({"auction": int})).sink("out", value=fk.Json())
    >>> source = source_named(flow.plan(), "bids")
    >>> [(sent.key, sent.value) for sent in encoded(source, [{"auction": 7}, ("8", b"no JSON")], 0)]
    [(b'7', b'{"auction":7}'), (b'8', b'no JSON')]
    """
    if isinstance(rows, pl.DataFrame):
        if isinstance(source.value, Debezium):
            rows = rows.drop(_NOT_READ, strict=False)
        return [sent for sent in _of_frame(source, rows, [Record()] * rows.height, clock) if sent is not None]
    if isinstance(rows, (str, bytes, Mapping, Record)):
        raise ConfigError(f"source {source.id!r} is sent a list of rows, not {rows!r:.60}", hint="put it into a list")
    if isinstance(rows, pl.LazyFrame) or hasattr(rows, "__dataframe__") or hasattr(rows, "__arrow_c_stream__"):
        raise ConfigError(
            f"source {source.id!r} is sent a Polars frame or a list of rows, not {_named(type(rows))}",
            hint="pl.from_pandas(…), pl.from_arrow(…) and .collect() make a Polars frame",
        )
    if not isinstance(rows, Iterable):
        raise ConfigError(f"source {source.id!r} is sent a list of rows, not {rows!r:.60}", hint="[] sends nothing")
    records = [_record(source, row) for row in rows]
    made = iter(_of_frame(source, _frame(source, records), [r for r in records if isinstance(r.value, Mapping)], clock))
    every: list[Sent | None] = [next(made) if isinstance(r.value, Mapping) else _raw(source, r, clock) for r in records]
    return [sent for sent in every if sent is not None]


def _named(kind: type) -> str:
    return f"{kind.__module__.partition('.')[0]}.{kind.__name__}"


def _record(source: Source, row: Any) -> Record:
    record = None
    if isinstance(row, Record):
        record = row
    elif isinstance(row, Mapping):
        record = Record(value=row)
    elif isinstance(row, tuple) and len(row) == 2:
        record = Record(key=row[0], value=row[1])
    if record is not None:
        if isinstance(source.value, Debezium) and isinstance(record.value, Mapping):
            return replace(record, value={c: part for c, part in record.value.items() if c not in _NOT_READ})
        return record
    raise ConfigError(
        f"{row!r:.60} is not a valid record for source {source.id!r}",
        hint="send rows as dicts, pairs of key and value, or fk.testing.Record(…)",
    )


def reduction_of(source: Source) -> Reduction | None:
    """What a gateway does with the rows of requests before it writes them."""
    return source.reduction if isinstance(source, HttpSource) else None


def written_as(source: Source) -> Format:
    """The format that writes what a source reads: a registered schema belongs to a topic."""
    value, schema = source.value, source.value.schema
    assert schema is not None
    return value.for_sink(name_of(source.topic), schema) if isinstance(value, Registering) else value


def columns_of(source: Source) -> dict[str, pl.DataType]:
    """What a row may have: the columns of value and key, and that of the timestamp. A request that a gateway reduces has its
    rows as the client sends them."""
    assert source.value.schema is not None
    if (reduction := reduction_of(source)) is not None:
        fields = [pl.Field(name, dtype) for name, dtype in (reduction.body.schema or {}).items()]
        return {**source.value.schema, ROWS: pl.List(pl.Struct(fields))}
    own = {c: source.schema[c] for c, what in source.metadata.items() if what == "timestamp"}
    keys = {c: source.schema[c] for c in source.key.columns} if isinstance(source, TableSource) else {}
    return {**keys, **source.value.schema, **own}


def _frame(source: Source, records: Sequence[Record]) -> pl.DataFrame:
    rows = {i: r.value for i, r in enumerate(records, 1) if isinstance(r.value, Mapping)}
    columns = columns_of(source)
    if unknown := next((c for row in rows.values() for c in row if c not in columns), None):
        raise ConfigError(f"source {source.id!r} has no column {unknown!r}", hint=did_you_mean(unknown, columns))
    try:
        return frame_of_rows(list(rows.values()), list(rows), columns)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise _misfit(source, error) from error


def _of_frame(source: Source, frame: pl.DataFrame, records: Sequence[Record], clock: int) -> list[Sent | None]:
    """None: a gateway would write nothing."""
    columns, value = columns_of(source), source.value.schema
    assert value is not None
    if unknown := [c for c in frame.columns if c not in columns]:
        raise ConfigError(f"source {source.id!r} has no column {unknown[0]!r}", hint=did_you_mean(unknown[0], columns))
    try:
        whole = frame_of_frame(frame, columns)
        reduction = reduction_of(source)
        values = (
            written_as(source).encode(whole.select(value.names()))
            if reduction is None
            else [_reduced(source, reduction, *row) for row in whole.iter_rows()]
        )
        keys = _own_keys(source, whole)
    except (Unfit, pl.exceptions.PolarsError) as error:
        raise _misfit(source, error) from error
    at = next((c for c, what in source.metadata.items() if what == "timestamp"), None)
    times = [None] * whole.height if at is None else whole[at].to_list()
    return [
        None
        if reduction is not None and line is None
        else Sent(
            own if record.key is None else _key(source, record.key),
            line,
            _millis(record.timestamp or time, clock),
            list(record.headers),
            record.partition,
        )
        for record, own, line, time in zip(records, keys, values, times, strict=True)
    ]


def _own_keys(source: Source, rows: pl.DataFrame) -> list[bytes | None]:
    """The key that each row says itself. Without one, changes of a row could overtake each other in other partitions."""
    if isinstance(source.value, Debezium):
        return source.value.keys(rows)
    return [None] * rows.height if source.key is None else source.key.encode(rows)


def _reduced(
    source: Source, reduction: Reduction, request: str, digest: str | None, rows: list[dict[str, Any] | None] | None
) -> bytes | None:
    """The record of a request. Raises ConfigError as a gateway would refuse it."""
    frame = pl.DataFrame([row or {} for row in rows or ()], schema=reduction.body.schema)
    (made,) = reduction.reduced([Request(request, digest or "", reduction.body.encode(frame))])
    if isinstance(made, Misfit):
        raise ConfigError(f"a gateway refuses row {made.row} of request {request!r}: {made.reason}", where=source.where)
    return made.value


def _raw(source: Source, record: Record, clock: int) -> Sent:
    value = record.value.encode() if isinstance(record.value, str) else record.value
    if not isinstance(value, bytes | None):
        raise ConfigError(
            f"{value!r:.60} is not a valid value for source {source.id!r}", hint="send a dict, bytes or text"
        )
    key = None if record.key is None else _key(source, record.key)
    return Sent(key, value, _millis(record.timestamp, clock), list(record.headers), record.partition)


def _key(source: Source, key: Any) -> bytes:
    if isinstance(key, bytes | str):
        return key.encode() if isinstance(key, str) else key
    by, schema = (
        (source.value.key, source.value.row) if isinstance(source.value, Debezium) else (source.key, source.schema)
    )
    if by is not None:
        cells = list(key) if by.array else [key]
        try:
            row = dict(zip(by.columns, cells, strict=True))
            return by.encode(frame_of_rows([row], [1], {c: schema[c] for c in row}))[0] or b""
        except (Unfit, TypeError, ValueError, pl.exceptions.PolarsError, FalkirkError) as error:
            raise _misfit(source, error) from error
    raise ConfigError(
        f"{key!r:.60} is not a valid key for source {source.id!r}, which has no format for keys",
        hint="send bytes or text",
    )


def _millis(at: datetime | None, clock: int) -> int:
    if at is None:
        return clock
    if at.tzinfo is None:
        raise ConfigError(f"timestamp {at} has no zone", hint="add tzinfo=datetime.UTC")
    return millis_since_1970(at)


def _misfit(source: Source, error: Exception) -> ConfigError:
    return ConfigError(
        f"what is sent to source {source.id!r} does not fit its columns: "
        f"{error if isinstance(error, Unfit) else in_brief(error)}",
        where=f"columns {described(columns_of(source))}",
        hint="to try a record that does not decode, send it as it is: (key, b'…')",
    )
