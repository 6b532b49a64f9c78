"""The result of a test: sinks full of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from falkirk.blame import did_you_mean
from falkirk.errors import ConfigError
from falkirk.stream.access.endpoints import View
from falkirk.stream.access.producing import Record
from falkirk.stream.dataflow.process import moment
from falkirk.stream.dataflow.records import Message


@dataclass(frozen=True, slots=True)
class Sink:
    """All that a sink has written, in the order of steps.

    >>> sink = Sink((Record(key="a", value={"n": 1}), Record(key="a", value={"n": 2})), {"n": pl.Int64()})
    >>> sink.rows, sink.table
    ([{'n': 1}, {'n': 2}], {'a': {'n': 2}})
    """

    records: tuple[Record, ...]
    """In the order of steps; within a step, partition by partition."""
    schema: Mapping[str, pl.DataType]

    @property
    def rows(self) -> list[Any]:
        """The values of all records: dicts, and None for tombstones."""
        return [record.value for record in self.records]

    @property
    def frame(self) -> pl.DataFrame:
        """The same as a Polars frame, without tombstones."""
        rows = [record.value for record in self.records if isinstance(record.value, Mapping)]
        return pl.DataFrame(rows, schema=dict(self.schema))

    @property
    def table(self) -> dict[Any, Any]:
        """The last row of each key, without keys that a tombstone removed. A key of several columns is a tuple."""
        found: dict[Any, Any] = {}
        for record in self.records:
            key = tuple(record.key) if isinstance(record.key, list) else record.key
            if record.value is None:
                found.pop(key, None)
            else:
                found[key] = record.value
        return found


class Sinks(dict[str, Sink]):
    """Sinks by their names. Raises ConfigError for another name.

    >>> Sinks({"totals": Sink((), {})})["total"]
    Traceback (most recent call last):
    falkirk.errors.ConfigError: the flow has no sink called 'total'
      to do: did you mean 'totals'? there are: totals
    """

    def __missing__(self, name: str) -> Sink:
        raise ConfigError(f"the flow has no sink called {name!r}", hint=did_you_mean(str(name), self))


def sink_of(view: View, messages: Sequence[Message]) -> Sink:
    """A sink with the contents of its records."""
    records = []
    for message, row in zip(messages, view.rows(messages), strict=True):
        if not view.shows(row):
            continue
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
    written = None if view.value is None else view.value.schema  # with the columns of a change, too
    known = {**(written or {}), **view.schema}
    return Sink(tuple(records), {name: known.get(name, pl.Binary()) for name in view.columns})
