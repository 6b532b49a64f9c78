"""The table of a sink. One that exists is compared with the flow's columns, and never altered."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import polars as pl

from falkirk.connectors.delta.client import TablePlace
from falkirk.errors import AwayError, ConfigError
from falkirk.stream.definition.outlets import DeltaPlan, delta_type
from falkirk.stream.formats.types import type_name

FORGETS = "delta.setTransactionRetentionDuration"
"""The setting of a table after whose time it forgets how far its writers are."""


class Difference(NamedTuple):
    """What does not fit, and what to do."""

    what: str
    fix: str


class Tables:
    """The table of one sink."""

    def __init__(self, place: TablePlace, plan: DeltaPlan) -> None:
        self.place, self.plan = place, plan

    def compare(self) -> Any:
        """The table; None if there is none. Raises ConfigError if it does not fit the flow, and AwayError."""
        table = self.place.open()
        if table is None:
            return None
        with self.place.in_words():
            found = [*self._settings(table), *differences(self.plan, columns_of(table), _required(table))]
        if found:
            raise ConfigError(
                f"table {self.plan.url} does not fit the flow: {'; '.join(each.what for each in found)}",
                where=self.place.where,
                hint="; ".join(dict.fromkeys(each.fix for each in found)),
            )
        return table

    def create(self) -> Any:
        """The table, created if there is none. Raises AwayError."""
        columns = {name: written_as(dtype) for name, dtype in self.plan.columns.items()}
        return self.place.create(self.place.library.Schema.from_arrow(arrow(pl.DataFrame(schema=columns)).schema))

    def check(self) -> str:
        """Whether it could be written, in words. Raises ConfigError and AwayError."""
        there = self.compare() is not None
        folder = self.place.folder
        if folder is not None:
            while not folder.exists():
                folder = folder.parent
            if not os.access(folder, os.W_OK | os.X_OK):
                raise AwayError("the folder cannot be written to", where=str(folder), hint="give the user the right to")
        return f"{self.place.where}: {'its columns fit' if there else 'it is created with the first rows'}"

    def _settings(self, table: Any) -> Iterator[Difference]:
        settings = table.metadata().configuration
        if FORGETS in settings:
            yield Difference(
                f"{FORGETS} is set, so that it forgets how far the app has written", f"unset {FORGETS} of the table"
            )
        if self.plan.key and settings.get("delta.appendOnly") == "true":
            yield Difference("it accepts no updates", "set delta.appendOnly of the table to false")
        for name in table.metadata().partition_columns:
            if self.plan.columns.get(name) == pl.Binary():
                # The library writes other bytes than it reads back, so that a merge would not find the row of a key.
                yield Difference(
                    f"column {name!r} is Binary, and it is partitioned by it", "partition the table by another column"
                )


def differences(plan: DeltaPlan, there: pl.Schema, required: set[str]) -> Iterator[Difference]:
    """What does not fit in a table with these columns. `required`: those that hold no null.

    >>> from datetime import timedelta
    >>> plan = DeltaPlan("t", (), pl.Schema({"n": pl.UInt8(), "s": pl.String()}), timedelta(seconds=1))
    >>> for each in differences(plan, pl.Schema({"n": pl.Int64(), "at": pl.Date()}), {"at"}):
    ...     print(each.what)
    column 'n' is Int64, and the flow's needs Int16
    it has no column 's'
    column 'at' must not be null, and the flow does not have it
    """
    for name, dtype in plan.columns.items():
        wanted = written_as(dtype)
        if name not in there:
            yield Difference(f"it has no column {name!r}", "add the column: DeltaTable(…).alter.add_columns(…)")
        elif there[name] != wanted:
            yield Difference(
                f"column {name!r} is {type_name(there[name])}, and the flow's needs {type_name(wanted)}",
                f"cast {name!r} in the flow, or name another table",
            )
    for name in there:
        if name not in plan.columns and name in required:
            yield Difference(
                f"column {name!r} must not be null, and the flow does not have it", f"add {name!r} to the stream"
            )


def columns_of(table: Any) -> pl.Schema:
    """The columns of a table."""
    import pyarrow as pa  # only a flow with such a sink waits for it

    frame = pl.from_arrow(pa.schema(table.schema().to_arrow()).empty_table())
    assert isinstance(frame, pl.DataFrame)
    return frame.schema


def _required(table: Any) -> set[str]:
    return {field.name for field in table.schema().fields if not field.nullable}


def written_as(dtype: pl.DataType) -> pl.DataType:
    """The type in the table of a column of the flow."""
    made = delta_type(dtype)
    assert made is not None, dtype
    return made


def arrow(frame: pl.DataFrame) -> Any:
    """A frame as the library takes it."""
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())
