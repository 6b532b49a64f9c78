"""What a test sends and what it gets back: records, and sinks full of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import polars as pl

from falkirk.checkpoint.steps import Maker
from falkirk.stream.process import moment
from falkirk.stream.records import Headers, Message
from falkirk.stream.views import View


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


@dataclass(frozen=True, slots=True)
class Sink:
    """All that a sink has written."""

    records: tuple[Record, ...]
    """In the order of steps, those of one step partition by partition."""
    schema: Mapping[str, pl.DataType]

    @property
    def rows(self) -> list[Any]:
        """The values of all records: dicts, and None for tombstones."""
        return [record.value for record in self.records]

    @property
    def frame(self) -> pl.DataFrame:
        """The same as a frame, without the tombstones."""
        rows = [record.value for record in self.records if isinstance(record.value, Mapping)]
        return pl.DataFrame(rows, schema=dict(self.schema))

    @property
    def table(self) -> dict[Any, Any]:
        """What a reader has who keeps the last row of each key: tombstones take rows away. Keys that are lists are tuples."""
        found: dict[Any, Any] = {}
        for record in self.records:
            key = tuple(record.key) if isinstance(record.key, list) else record.key
            if record.value is None:
                found.pop(key, None)
            else:
                found[key] = record.value
        return found


def sink_of(view: View, messages: Sequence[Message]) -> Sink:
    """What a sink's records say."""
    records = []
    for message, row in zip(messages, view.rows(messages), strict=True):
        value = message.value() if row.unreadable else None if row.values is None else dict(row.values)
        records.append(
            Record(
                key=row.key,
                value=value,
                timestamp=moment(row.timestamp),
                headers=list(message.headers() or ()),
                partition=row.partition,
                offset=row.offset,
                maker=row.maker,
            )
        )
    return Sink(tuple(records), {name: view.schema.get(name, pl.Binary()) for name in view.columns})
