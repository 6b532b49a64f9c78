"""What users say of event time, checked."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

import polars as pl

from falkirk.durations import DurationLike, duration, duration_text
from falkirk.errors import DefinitionError
from falkirk.stream.definition.keys import check_column

_MILLI = timedelta(milliseconds=1)
_PER_MILLI = {"ms": 1, "us": 1_000, "ns": 1_000_000}


class Lateness(NamedTuple):
    """What a source allows, in milliseconds."""

    late: int
    idle: int | None
    """After this time without records, a partition holds back no watermark; None: it always does."""

    def __str__(self) -> str:
        late, idle = (None if n is None else duration_text(timedelta(milliseconds=n)) for n in self)
        return f"up to {late} late{f', idle after {idle}' if idle else ''}"


def check_time(column: str, schema: pl.Schema, where: str) -> None:
    """Raises DefinitionError unless the column can hold an event time."""
    check_column(column, schema, where)
    if not (isinstance(schema[column], pl.Datetime) or schema[column].is_integer()):
        raise DefinitionError(
            f"column {column!r} is {schema[column]}, and is to say when something happened",
            where=where,
            hint="use a datetime (fk.Datetime), or an integer of milliseconds since 1970",
        )


def checked_lateness(
    late: DurationLike | None, idle: DurationLike | None, time: str | None, where: str
) -> Lateness | None:
    """A source's lateness; None: it has no watermark. Raises DefinitionError."""
    if late is None:
        if idle is not None:
            raise DefinitionError("idle= is about the watermark, and late= gives one", where=where, hint='late="30s"')
        return None
    if time is None:
        raise DefinitionError("late= is about event time, and time= says where that is", where=where, hint='time="at"')
    silence = None if idle is None else millis(idle, "idle", where)
    return Lateness(millis(late, "late", where, least=0), silence)


def per_milli(dtype: pl.DataType) -> int:
    """How many units of a column of times make a millisecond. Integers are milliseconds.

    >>> per_milli(pl.Datetime("us")), per_milli(pl.Int64())
    (1000, 1)
    """
    return _PER_MILLI[dtype.time_unit] if isinstance(dtype, pl.Datetime) else 1


def millis(given: DurationLike, name: str, where: str, *, least: int = 1) -> int:
    """A duration in whole milliseconds. Raises DefinitionError.

    >>> millis("1.5s", "late", ""), millis("0s", "late", "", least=0)
    (1500, 0)
    """
    text = given.strip("0.") if isinstance(given, str) else given
    if least == 0 and text in ("ms", "s", "m", "h", "d", timedelta()):
        return 0
    found = duration(given, name, where=where, error=DefinitionError)
    if found % _MILLI:
        raise DefinitionError(f"{name}={given!r} is not in whole milliseconds", where=where)
    return found // _MILLI
