"""Windows of time, as users write them in `group_by`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from falkirk.blame import user_line
from falkirk.durations import DurationLike, duration_text
from falkirk.errors import DefinitionError
from falkirk.stream.definition.event_time import millis
from falkirk.wording import counted

START, END = "window_start", "window_end"
"""The columns that windows add."""
MOST = 20_000
"""Windows that one row may be in. It becomes a row for each, all of which a step has in memory."""


@dataclass(frozen=True, slots=True)
class Window:
    """Windows of one size, in milliseconds. A row with time t is in each window with start ≤ t < start + size."""

    column: str
    size: int
    every: int
    """From one window's start to the next one's."""
    offset: int

    def __str__(self) -> str:
        size, every, offset = (_text(n) for n in (self.size, self.every, self.offset))
        words = f"tumbling {size}" if self.size == self.every else f"hopping {size} every {every}"
        return f"{words} of {self.column}{f', offset {offset}' if self.offset else ''}"


@dataclass(frozen=True, slots=True)
class Session:
    """Sessions: rows of a group belong together as long as no pause between them is longer than the gap, in milliseconds."""

    column: str
    gap: int

    def __str__(self) -> str:
        return f"sessions of {self.column}, gap {_text(self.gap)}"


@dataclass(frozen=True, slots=True)
class CountWindow:
    """Windows of so many rows. A row with the number n in its group, from 0 on, is in each with start ≤ n < start + size."""

    size: int
    every: int
    """From one window's start to the next one's. The first one starts with row 0."""

    def __str__(self) -> str:
        return f"windows of {counted(self.size, 'row')}{f' every {self.every:,}' if self.every != self.size else ''}"


def tumbling(column: str, size: DurationLike, *, offset: DurationLike | None = None) -> Window:
    """Windows of one size, one after another, for `group_by`: each row is in one window.

    `column` holds the time: a datetime, or an integer of milliseconds since 1970. Windows begin at multiples of `size`
    since 1970 in UTC, or `offset` later. Rows get the columns `window_start` and `window_end`, which are columns of the
    group. A row with a null time is in no window. Raises DefinitionError. See docs/operators/event-time.md.

    >>> import falkirk as fk
    >>> flow = fk.Flow("totals")
    >>> orders = flow.source("orders", value=fk.Json({"usd": int, "at": int}), time="at", late="0s")
    >>> hourly = orders.group_by(fk.tumbling("at", "1h")).agg(usd=fk.sum("usd"))
    >>> hourly.sink("hourly", key="window_start", value=fk.Json())
    >>> rows = [{"usd": 3, "at": 60_000}, {"usd": 4, "at": 3_599_999}, {"usd": 5, "at": 3_600_000}]
    >>> fk.testing.run(flow, {"orders": rows}, step_rows=3).sinks["hourly"].rows
    [{'window_start': 0, 'window_end': 3600000, 'usd': 7}, {'window_start': 3600000, 'window_end': 7200000, 'usd': 5}]
    """
    where = f"tumbling ({user_line()})"
    length = millis(size, "size", where)
    return Window(_column(column, where), length, length, _offset(offset, where) % length)


def hopping(column: str, size: DurationLike, every: DurationLike, *, offset: DurationLike | None = None) -> Window:
    """Windows of one size that overlap, for `group_by`: one begins `every` so often, and a row is in all that hold its
    time.

    Otherwise as `fk.tumbling`. Raises DefinitionError, also if `every` is longer than `size`, or so short that a row is in
    more than 20,000 windows.

    >>> import falkirk as fk
    >>> flow = fk.Flow("totals")
    >>> orders = flow.source("orders", value=fk.Json({"usd": int, "at": int}), time="at", late="0s")
    >>> moving = orders.group_by(fk.hopping("at", "2s", every="1s")).agg(usd=fk.sum("usd"))
    >>> moving.sink("moving", key="window_start", value=fk.Json())
    >>> fk.testing.run(flow, {"orders": [{"usd": 3, "at": 1_500}]}).sinks["moving"].rows
    [{'window_start': 0, 'window_end': 2000, 'usd': 3}, {'window_start': 1000, 'window_end': 3000, 'usd': 3}]
    """
    where = f"hopping ({user_line()})"
    length, step = millis(size, "size", where), millis(every, "every", where)
    if step > length:
        raise DefinitionError(
            f"every={every!r} is longer than size={size!r}, so that some rows would be in no window",
            where=where,
            hint="filter these rows first, or make the windows longer",
        )
    _check_overlap(length, step, where, f'over("id", order_by={column!r}, range={_text(length)!r})')
    return Window(_column(column, where), length, step, _offset(offset, where) % step)


def session(column: str, gap: DurationLike) -> Session:
    """Sessions, for `group_by`: rows of a group, one after another by their time, with no pause longer than `gap`.

    `column` holds the time: a datetime, or an integer of milliseconds since 1970. A session has the columns
    `window_start`, the time of its first row, and `window_end`, the time of its last row plus `gap`. A row between two
    sessions can make them one: the rows of both are then replaced by one row. A row with a null time is in no session.
    Raises DefinitionError. See docs/operators/event-time.md.

    >>> import falkirk as fk
    >>> flow = fk.Flow("visits")
    >>> clicks = flow.source("clicks", value=fk.Json({"user": str, "at": int}), time="at", late="1h")
    >>> visits = clicks.group_by("user", fk.session("at", gap="30m")).agg(clicks=fk.len())
    >>> visits.sink("visits", key=["user", "window_start"], value=fk.Json())
    >>> minute = 60_000
    >>> rows = [{"user": "ada", "at": at * minute} for at in (10, 60, 35)]
    >>> app = fk.testing.run(flow, {"clicks": rows}, step_rows=1)
    >>> [row and row["clicks"] for row in app.sinks["visits"].rows]
    [1, 1, 3, None]
    >>> app.sinks["visits"].table
    {('ada', 600000): {'user': 'ada', 'window_start': 600000, 'window_end': 5400000, 'clicks': 3}}
    """
    where = f"session ({user_line()})"
    return Session(_column(column, where), millis(gap, "gap", where))


def count_window(size: int, every: int | None = None) -> CountWindow:
    """Windows of `size` rows of a group, for `group_by`: one begins every `every` rows. Without `every`, one begins where the
    other ends.

    Rows of a group are numbered from 0 on, in the order in which they are read. `window_start` is the number of a window's
    first row, and `window_end` that of its last row plus 1. A window is complete when its last row has come. The count of
    each group is kept for ever. Raises DefinitionError. See docs/operators/event-time.md.

    >>> import falkirk as fk
    >>> flow = fk.Flow("sensors")
    >>> readings = flow.source("readings", key="sensor", value=fk.Json({"sensor": str, "value": int}))
    >>> means = readings.group_by("sensor", fk.count_window(2)).agg(mean=fk.mean("value"))
    >>> means.final().sink("means", value=fk.Json())
    >>> rows = [{"sensor": "a", "value": value} for value in (10, 20, 60, 80, 5)]
    >>> [(row["window_start"], row["mean"]) for row in fk.testing.run(flow, {"readings": rows}).sinks["means"].rows]
    [(0, 15.0), (2, 70.0)]
    """
    where = f"count_window ({user_line()})"
    step = size if every is None else every
    options: dict[str, Any] = {"size": size, "every": step}
    for option, given in options.items():
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise DefinitionError(f"{option}={given!r} is not a number of rows", where=where, hint="1 or more")
    if step > size:
        raise DefinitionError(
            f"every={step} is more than size={size}, so that some rows would be in no window",
            where=where,
            hint="make the windows longer",
        )
    _check_overlap(size, step, where, f'over("id", order_by="at", rows={size - 1})')
    return CountWindow(size, step)


def _check_overlap(size: int, every: int, where: str, instead: str) -> None:
    """Raises DefinitionError if a row is in too many windows."""
    if (windows := -(-size // every)) > MOST:
        raise DefinitionError(
            f"each row would be in {windows:,} windows, and {MOST:,} is the limit",
            where=where,
            hint=f"make every= longer; a total of the rows up to each row is {instead}",
        )


def _column(column: object, where: str) -> str:
    if not isinstance(column, str):
        raise DefinitionError(
            f"{column!r} is not a column name", where=where, hint="compute it with with_columns first, then name it"
        )
    return column


def _offset(offset: DurationLike | None, where: str) -> int:
    return 0 if offset is None else millis(offset, "offset", where, least=0)


def _text(length: int) -> str:
    return duration_text(timedelta(milliseconds=length))
