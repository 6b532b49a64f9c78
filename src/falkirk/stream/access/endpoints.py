"""What can be looked at of a flow: its topics, and what their records say.

    view        records are read by
    source      the source's formats: all of its columns, used or not; of a table too
    sink        the sink's formats, with the schema of what it is given
    edge        rows of Arrow batches: several to a record, or none
    (a topic)   nothing is known of it: keys and values as they are

What cannot be read is shown as such: who looks wants to see just that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec
import polars as pl

from falkirk.blame import did_you_mean
from falkirk.checkpoint.bundles import parts_made
from falkirk.checkpoint.publishing import HEADER as EPOCH
from falkirk.checkpoint.steps import HEADER as STEP
from falkirk.checkpoint.steps import Maker, maker
from falkirk.errors import ConfigError, DefinitionError, StateError
from falkirk.stream.batch.stage import BatchStage
from falkirk.stream.dataflow.batch import TS, WEIGHT
from falkirk.stream.dataflow.packing import is_mark, unpacked
from falkirk.stream.dataflow.records import Message
from falkirk.stream.definition.pattern import Pattern, Topics
from falkirk.stream.formats import Format, Json, Key, Raw
from falkirk.stream.operators.sinks.sink import Sink
from falkirk.stream.operators.sinks.sink_changes import record_schema
from falkirk.stream.operators.sources.source import Source
from falkirk.stream.operators.sources.table import TableSource
from falkirk.stream.stages.plan import Plan
from falkirk.stream.stages.stage import PhysicalStage

Kind = Literal["source", "table", "sink", "edge", "topic"]


@dataclass(frozen=True, slots=True)
class Row:
    """A record, or a row of an edge's."""

    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970."""
    key: Any
    """As the key's format reads it; a list for a key of several columns; bytes where there is no format."""
    values: Mapping[str, Any] | None
    """By column; None: a tombstone, or unreadable."""
    unreadable: str = ""
    """Why the record cannot be read."""
    raw: bytes | None = None
    """Its value then."""
    weight: int = 1
    """−1: a row that is taken back."""
    maker: Maker | None = None
    """The step that wrote it."""
    epoch: int | None = None
    """The epoch of a batch part that wrote it."""


@dataclass(frozen=True, slots=True)
class View:
    """A topic, and how its records are read.

    >>> from falkirk.testing.memory import Record
    >>> view = View("bids", "source", "bids", Key("id"), Json({"id": int}), schema={"id": pl.Int64()})
    >>> [(row.key, row.values) for row in view.rows([Record(0, 0, b"7", b'{"id":7}'), Record(0, 1, b"7", None)])]
    [(7, {'id': 7}), (7, None)]
    >>> [row.unreadable for row in view.rows([Record(0, 2, b"x", b'{"id":7}'), Record(0, 3, b"7", b"no")])]
    ['key is not Int64 as text: x', 'not a JSON object: no']
    """

    name: str
    kind: Kind
    topic: str
    key: Key | None = None
    value: Format | None = field(default_factory=Raw)
    """None: batches of an edge."""
    columns: tuple[str, ...] = ("value",)
    schema: Mapping[str, pl.DataType] = field(default_factory=dict)
    """Of all columns, the key's among them."""
    stage: str = ""
    """The batch part that writes it; "" if none does."""
    topics: Topics = ""
    """All that its source reads; a pattern's view is of each topic that the pattern matches."""
    mark: str = ""
    """The field that tells the records of its sink from those of another sink of the topic: see `shows`."""

    def shows(self, row: Row) -> bool:
        """Whether the record is one of its own. Receipts and answers of an HTTP source are in one topic.

        >>> view = View("orders.answers", "sink", "orders-answers", columns=("rows",), mark="rows")
        >>> [view.shows(Row(0, 0, 0, "r1", values)) for values in ({"rows": []}, {"rows": None}, None)]
        [True, False, True]
        """
        return self.mark not in self.columns or row.values is None or row.values[self.mark] is not None

    def rows(self, messages: Sequence[Message]) -> list[Row]:
        """In the order of the messages."""
        if self.value is None:
            return [row for message in messages for row in self._batch(message)]
        values = [m.value() for m in messages]
        decoded = self.value.decode(values)
        bad, frame = dict(decoded.bad), iter(decoded.frame.iter_rows(named=True))
        found = [None if i in bad else next(frame) for i in range(len(messages))]
        keys, bad_keys = self._keys([m.key() for m in messages])
        reasons = {**{i: why for i, why in bad.items() if values[i] is not None}, **bad_keys}
        return [
            self._row(m, key, None if i in reasons else row, reasons.get(i, ""))
            for i, (m, key, row) in enumerate(zip(messages, keys, found, strict=True))
        ]

    def _keys(self, keys: list[bytes | None]) -> tuple[Sequence[Any], dict[int, str]]:
        """Keys as they are read, and why some cannot be: those as they are."""
        if self.key is None or not self.key.columns:
            return keys, {}
        decoded = self.key.decode(keys, self.schema)
        bad, rows = dict(decoded.bad), decoded.frame.iter_rows()
        read: list[Any] = []
        for i, key in enumerate(keys):
            row = None if i in bad else next(rows)
            read.append(key if row is None else list(row) if self.key.array else row[0])
        return read, bad

    def _batch(self, message: Message) -> Iterator[Row]:
        try:
            parts = [
                (made, unpacked(value, ""))
                for made, value in parts_made(message.headers(), message.value())
                if not is_mark(value)
            ]
        except (StateError, msgspec.DecodeError) as error:
            yield self._row(message, message.key(), None, str(error).splitlines()[0])
            return
        for made, frame in parts:
            for row in frame.iter_rows(named=True):
                millis, weight = row.pop(TS, None), row.pop(WEIGHT, 1)
                shown = self._row(message, message.key(), row, millis=millis, weight=weight)
                yield replace(shown, maker=made)

    def _row(
        self,
        message: Message,
        key: Any,
        values: Mapping[str, Any] | None,
        unreadable: str = "",
        *,
        millis: int | None = None,
        weight: int = 1,
    ) -> Row:
        headers = dict(message.headers() or ())
        made, epoch = headers.get(STEP), headers.get(EPOCH)
        return Row(
            partition=message.partition(),
            offset=message.offset(),
            timestamp=message.timestamp()[1] if millis is None else millis,
            key=key,
            values=values,
            unreadable=unreadable,
            raw=message.value() if unreadable else None,
            weight=weight,
            maker=None if made is None else maker(made),
            epoch=int(epoch) if epoch is not None and epoch.isdigit() else None,
        )


def views_of(plan: Plan) -> list[View]:
    """All that can be looked at of a flow, upstream first."""
    found: dict[tuple[Kind, str], View] = {}

    def add(source: Source) -> None:
        kind: Kind = "table" if isinstance(source, TableSource) else "source"
        columns = tuple(source.value.schema or ())
        view = View(
            name=source.id,
            kind=kind,
            topic=source.topic,
            key=source.key,
            value=source.value,
            columns=columns,
            schema=source.schema,
            stage="",
            topics=source.topics,
        )
        if isinstance(source.topics, tuple):
            found.update({(kind, topic): replace(view, name=topic, topic=topic) for topic in source.topics})
        else:
            found[kind, source.id] = view

    for stage in plan.planned_parts:
        for source in stage.sources:
            add(source)
        for sink in (o for o in stage.operators if isinstance(o, Sink)):
            value, batch = _read_back(sink), stage.id if isinstance(stage, BatchStage) else ""
            columns = tuple(value.schema or ())
            found["sink", sink.id] = View(
                name=sink.id,
                kind="sink",
                topic=sink.topic,
                key=sink.key,
                value=value,
                columns=columns,
                schema=sink.schema,
                stage=batch,
                mark=sink.mark,
            )
        for edge in stage.edges_out if isinstance(stage, PhysicalStage) else ():
            found["edge", edge.id] = View(edge.id, "edge", edge.topic, None, None, edge.columns)
    for table in plan.shared:
        add(table.source)
    return list(found.values())


_FIRST: Sequence[Kind] = ("sink", "table", "source", "edge", "topic")
"""Of views with one name: what a flow publishes is what people mean, rather than what it keeps for itself."""


def views_named(views: Sequence[View], name: str) -> list[View]:
    """The views of this name, or KIND:NAME; what is most likely meant first. Raises ConfigError if there is none.

    >>> views = [View("a", "table", "t"), View("a", "sink", "t")]
    >>> [view.kind for view in views_named(views, "a")], [view.kind for view in views_named(views, "table:a")]
    (['sink', 'table'], ['table'])
    """
    found = [v for v in views if name in (v.name, f"{v.kind}:{v.name}")] or [v for v in views if v.topic == name]
    found = found or list(filter(None, [view_of(views, name)]))
    if not found:
        raise ConfigError(
            f"the flow has no source, table, sink or edge {name!r}", hint=did_you_mean(name, {v.name for v in views})
        )
    return sorted(found, key=lambda view: _FIRST.index(view.kind))


def view_of(views: Sequence[View], topic: str) -> View | None:
    """The view of a topic, by its name or by a pattern.

    >>> [view] = [View("orders", "source", "/orders-.*/", topics=Pattern("orders-.*"))]
    >>> view_of([view], "orders-eu").topic, view_of([view], "orders")
    ('orders-eu', None)
    """
    named = next((v for v in views if v.topic == topic), None)
    matching = (v for v in views if isinstance(v.topics, Pattern) and v.topics.matches(topic))
    return named or next((replace(v, name=topic, topic=topic) for v in matching), None)


def plain(value: Any) -> Any:
    """A value as JSON has it: bytes are text where they are UTF-8, else {"base64": …}.

    >>> plain([b"a", b"\\xff", {"n": 1}])
    ['a', {'base64': '/w=='}, {'n': 1}]
    """
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": msgspec.to_builtins(value)}
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def _read_back(sink: Sink) -> Format:
    """The sink's format, with a schema to read by. What JSON of some type cannot be read back by is shown as it is."""
    if sink.value.schema is not None:
        return sink.value
    try:
        return Json({name: _as_read(dtype) for name, dtype in record_schema(sink.mode, sink.schema).items()})
    except DefinitionError:
        return Raw()


def _as_read(dtype: pl.DataType) -> pl.DataType:
    """The type that a source would give a column that expressions have made."""
    if isinstance(dtype, pl.Datetime):
        return pl.Datetime("ms" if dtype.time_unit == "ms" else "us", "UTC")
    return pl.String() if isinstance(dtype, pl.Duration | pl.Time | pl.Null) else dtype
