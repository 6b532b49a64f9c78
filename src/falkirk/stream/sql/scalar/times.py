"""Functions of dates and timestamps, and intervals. Timestamps are moments in UTC."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import narwhals as nw
import polars as pl
from sqlglot import exp

from falkirk.stream.formats import types as fk
from falkirk.stream.sql.scalar.values import Build, Handler, Value, literal, need
from falkirk.stream.sql.text import Text

_UNITS = {
    "MILLISECOND": "ms", "SECOND": "s", "MINUTE": "m", "HOUR": "h", "DAY": "d", "WEEK": "w", "MONTH": "mo",
    "QUARTER": "q", "YEAR": "y",
}  # fmt: skip
_FIXED = {
    "MILLISECOND": 1,
    "SECOND": 1_000,
    "MINUTE": 60_000,
    "HOUR": 3_600_000,
    "DAY": 86_400_000,
    "WEEK": 604_800_000,
}
"""Milliseconds of the units that have always the same length."""


def interval_of(node: exp.Interval, text: Text) -> tuple[int, str]:
    """Number and unit. Raises DefinitionError.

    >>> from sqlglot import parse_one
    >>> interval_of(parse_one("interval '5' minutes"), Text("", ""))
    (5, 'MINUTE')
    """
    unit = str(node.args.get("unit") or "").upper().removesuffix("S")
    try:
        number = int(node.this.name)
    except (ValueError, AttributeError):
        raise text.error(node, "an interval is a whole number of one unit", "interval '90' minute") from None
    if unit not in _UNITS:
        raise text.error(node, f"an interval has no unit {unit.lower()!r}", f"there are: {', '.join(_UNITS).lower()}")
    return number, unit


def duration_of(node: exp.Expr | None, text: Text, what: str) -> timedelta:
    """A length of time that is always the same. Raises DefinitionError."""
    if isinstance(node, exp.Interval):
        number, unit = interval_of(node, text)
        if unit in _FIXED:
            return timedelta(milliseconds=number * _FIXED[unit])
    raise text.error(node, f"{what} is an interval of a fixed length", "interval '1' hour")


def shifted(build: Build, node: exp.Add | exp.Sub) -> Value | None:
    """A time plus or minus an interval, or the time between two; None if there is no time in it."""
    left, right = node.left, node.right
    if isinstance(left, exp.Interval) and isinstance(node, exp.Add):
        left, right = right, left
    if isinstance(right, exp.Interval):
        number, unit = interval_of(right, build.text)
        at = need(build, left, "time", "+ interval")
        sign = "-" if isinstance(node, exp.Sub) != (number < 0) else ""
        moment = at.expr if isinstance(at.dtype, pl.Datetime) else at.expr.cast(fk.Datetime)
        number, unit = (number * 7, "DAY") if unit == "WEEK" else (number, unit)  # Narwhals has no week
        return build.typed(node, moment.dt.offset_by(f"{sign}{abs(number)}{_UNITS[unit]}"))
    a, b = build(left), build(right)
    if isinstance(node, exp.Sub) and a.family == b.family == "time":
        if a.dtype == b.dtype == pl.Date():
            return build.typed(node, (a.expr - b.expr).dt.total_minutes() // (24 * 60))
        later, earlier = of_one_unit([moment_of(a), moment_of(b)])
        return build.typed(node, later.expr - earlier.expr)
    if {a.family, b.family} == {"time", "number"}:
        hint = "at + interval '1' day; to_timestamp(seconds) makes a time of a number"
        raise build.text.error(node, "a time and a number cannot be added", hint)
    return None


def moment_of(value: Value) -> Value:
    """A date becomes the moment at which it begins."""
    return Value(value.expr.cast(fk.Datetime), pl.Datetime("ms", "UTC")) if value.dtype == pl.Date() else value


def of_one_unit(values: Sequence[Value]) -> list[Value]:
    """Timestamps that meet, in milliseconds if these hold all of them: beside milliseconds, Polars cuts microseconds off.

    Nulls, and dates among dates, stay as they are.
    """
    moments = [value for value in values if isinstance(value.dtype, pl.Datetime)]
    if len({value.dtype for value in moments}) < 2 and all(value.dtype != pl.Date() for value in values):
        return [*values]
    if not moments:
        return [*values]
    fine = any(value.dtype == _MICROS and not _whole(value.literal) for value in moments)
    wanted: Any = fk.DatetimeMicros if fine else fk.Datetime
    dtype = _MICROS if fine else pl.Datetime("ms", "UTC")
    return [v if v.dtype in (dtype, pl.Null()) else Value(v.expr.cast(wanted), dtype, v.literal) for v in values]


_MICROS = pl.Datetime("us", "UTC")


def _whole(moment: object) -> bool:
    """Whether it is a constant of whole milliseconds: a constant is in microseconds, and takes the unit of what it meets."""
    return isinstance(moment, datetime) and moment.microsecond % 1_000 == 0


def parsed(value: str, dtype: pl.DataType, node: exp.Expr, text: Text) -> Value:
    """A constant of SQL's form, such as 2026-01-31 or 2026-01-31 10:00:00. Raises DefinitionError."""
    try:
        if dtype == pl.Date():
            return literal(date.fromisoformat(value.strip()))
        moment = datetime.fromisoformat(value.strip())
    except ValueError as error:
        raise text.error(node, f"{value!r} is not a {'date' if dtype == pl.Date() else 'timestamp'}",
                         "write '2026-01-31', or '2026-01-31 10:00:00' (UTC unless it has a zone)") from error  # fmt: skip
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return Value(nw.lit(moment, dtype=fk.DatetimeMicros), _MICROS, moment)


def _interval(build: Build, node: exp.Interval) -> Value:
    return literal(duration_of(node, build.text, "an interval by itself"))


def _dow(x: nw.Expr) -> nw.Expr:
    return x.dt.weekday() % 7


_FIELDS: Mapping[str, Callable[[nw.Expr], nw.Expr]] = {
    "YEAR": lambda x: x.dt.year(),
    "QUARTER": lambda x: (x.dt.month() + 2) // 3,
    "MONTH": lambda x: x.dt.month(),
    "DAY": lambda x: x.dt.day(),
    "HOUR": lambda x: x.dt.hour(),
    "MINUTE": lambda x: x.dt.minute(),
    "SECOND": lambda x: x.dt.second(),
    "DOW": _dow,
    "DAYOFWEEK": _dow,
    "ISODOW": lambda x: x.dt.weekday(),
    "DAYOFWEEKISO": lambda x: x.dt.weekday(),
    "DOY": lambda x: x.dt.ordinal_day(),
    "DAYOFYEAR": lambda x: x.dt.ordinal_day(),
}


def _extract(build: Build, node: exp.Extract) -> Value:
    return _field(build, node, node.expression, node.name.upper())


def _field(build: Build, node: exp.Expr, of: exp.Expr, name: str) -> Value:
    at = need(build, of, "time", f"extract({name.lower()})")
    if name == "EPOCH":
        return build.typed(node, moment_of(at).expr.dt.timestamp("us") / 1_000_000)
    if name not in _FIELDS:
        raise build.text.error(
            node, f"there is no field {name.lower()!r}", f"there are: {', '.join([*_FIELDS, 'EPOCH']).lower()}"
        )
    at = at if isinstance(at.dtype, pl.Datetime) or name in ("YEAR", "MONTH", "DAY", "QUARTER") else moment_of(at)
    return build.typed(node, _FIELDS[name](at.expr).cast(nw.Int64))


def _named(name: str) -> Handler:
    return lambda build, node: _field(build, node, node.this, name)


def _truncate(build: Build, node: exp.Expr) -> Value:
    unit = str(node.args["unit"].name).upper()
    if unit not in _UNITS:
        raise build.text.error(
            node, f"date_trunc has no unit {unit.lower()!r}", f"there are: {', '.join(_UNITS).lower()}"
        )
    at = moment_of(need(build, node.this, "time", "date_trunc"))
    if unit == "WEEK":  # weeks begin on Monday
        day = at.expr.dt.truncate("1d")
        monday = day - (day.dt.weekday().cast(nw.Int64) - 1) * nw.lit(timedelta(days=1))
        return build.typed(node, monday)
    return build.typed(node, at.expr.dt.truncate(f"1{_UNITS[unit]}"))


def _difference(build: Build, node: exp.Expr) -> Value:
    """How many borders of the unit lie between two times, as in DuckDB."""
    unit = str(node.args["unit"].name if node.args.get("unit") else "DAY").upper()
    if unit not in ("MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY"):
        raise build.text.error(
            node, f"date_diff has no unit {unit.lower()!r}", "there are: millisecond, second, minute, hour, day"
        )
    later, earlier = (
        moment_of(need(build, side, "time", "date_diff")).expr.dt.truncate(f"1{_UNITS[unit]}").dt.timestamp("ms")
        for side in (node.this, node.expression)
    )
    return build.typed(node, (later - earlier) // _FIXED[unit])


def _from_number(build: Build, node: exp.UnixToTime) -> Value:
    """to_timestamp(seconds), epoch_ms(milliseconds); epoch_ms(timestamp) is the number again."""
    of, scale = node.this, node.args.get("scale")
    millis = scale is not None and scale.name == "3"
    if scale is not None and not millis:
        hint = "to_timestamp(seconds) or epoch_ms(milliseconds)"
        raise build.text.error(node, "make_timestamp is not supported", hint)
    value = build(of)
    if value.family == "number":
        # A small integer does not hold its milliseconds, and 1.001 * 1000 is a little less than 1001.
        wide = value.settled().cast(nw.Int64) if value.dtype.is_integer() else value.settled()
        number = wide if millis else wide * 1000
        number = number.round(0) if value.dtype.is_float() else number
        return build.typed(node, number.cast(nw.Int64).cast(fk.Datetime))
    if not millis:
        raise build.text.error(of, "to_timestamp takes seconds since 1970", "strptime(text, format), or epoch_ms(…)")
    return build.typed(node, moment_of(need(build, of, "time", "epoch_ms")).expr.dt.timestamp("ms"))


def _now(build: Build, node: exp.Expr) -> Value:
    raise build.text.error(
        node,
        "the current time is not a function of the row: a step that is run again would give something else",
        'use a column: metadata=["timestamp"] of a source has the time of each record',
    )


HANDLERS: Mapping[type[exp.Expr], Handler] = {
    exp.Interval: _interval,
    exp.Extract: _extract,
    exp.Year: _named("YEAR"),
    exp.Quarter: _named("QUARTER"),
    exp.Month: _named("MONTH"),
    exp.Day: _named("DAY"),
    exp.Hour: _named("HOUR"),
    exp.Minute: _named("MINUTE"),
    exp.Second: _named("SECOND"),
    exp.DayOfWeek: _named("DOW"),
    exp.DayOfYear: _named("DOY"),
    exp.TimestampTrunc: _truncate,
    exp.DateTrunc: _truncate,
    exp.DateDiff: _difference,
    exp.TimestampDiff: _difference,
    exp.UnixToTime: _from_number,
    exp.TimeToUnix: _named("EPOCH"),
    exp.CurrentTimestamp: _now,
    exp.CurrentDate: _now,
    exp.CurrentTime: _now,
}
