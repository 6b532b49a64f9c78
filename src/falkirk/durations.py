"""Durations and sizes as people write them: "100ms", "1h30m", "64MiB"."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import TypeAlias

from falkirk.errors import ConfigError, FalkirkError

DurationLike: TypeAlias = str | timedelta
SizeLike: TypeAlias = str | int

_MICROSECONDS = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}
_PARTS = re.compile("".join(rf"(?:(?P<{unit}>[0-9]+(?:\.[0-9]+)?){unit})?" for unit in _MICROSECONDS))
AS_TEXT = 'numbers and us, ms, s, m, h or d: "100ms", "1h30m", "7d"'
ACCEPTED = f"write a timedelta, or {AS_TEXT}"
_BINARY = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
_DECIMAL = {"TB": 10**12, "GB": 10**9, "MB": 10**6, "kB": 10**3}
_BYTES = {**_DECIMAL, **_BINARY, "B": 1}


def duration(
    value: DurationLike, name: str = "", *, where: str = "", error: type[FalkirkError] = ConfigError
) -> timedelta:
    """A timedelta from numbers and their units: us, ms, s, m, h or d, the greatest first. A timedelta stays as it is.

    `name` is the parameter's name, and `where` its place. Raises `error` for what is not a duration greater than zero.

    >>> duration("1.5s"), duration("1h30m")
    (datetime.timedelta(seconds=1, microseconds=500000), datetime.timedelta(seconds=5400))
    >>> duration("5 min", "every", where="app.py:4")
    Traceback (most recent call last):
    falkirk.errors.ConfigError: every='5 min' is not a duration
      where: app.py:4
      to do: write a timedelta, or numbers and us, ms, s, m, h or d: "100ms", "1h30m", "7d"
    """
    shown = f"{name}={value!r}" if name else repr(value)
    try:
        found = value if isinstance(value, timedelta) else timedelta(microseconds=int(_microseconds(value)))
    except OverflowError:
        raise error(f"{shown} is too long", where=where, hint="write fewer than 1,000,000,000 days") from None
    except ValueError:
        raise error(f"{shown} is not a duration", where=where, hint=ACCEPTED) from None
    if found <= timedelta():
        raise error(f"{shown} is not a duration greater than zero", where=where, hint=ACCEPTED)
    return found


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def millis_since_1970(at: datetime) -> int:
    """A moment as Kafka's timestamps have it. (`at.timestamp() * 1000` is a float, which may be a millisecond less.)

    >>> millis_since_1970(datetime(2004, 5, 6, 7, 8, 9, 1_000, tzinfo=UTC))
    1083827289001
    """
    return (at - _EPOCH) // timedelta(milliseconds=1)


def _microseconds(value: object) -> Fraction:
    """Their number, exactly. Raises ValueError."""
    found = _PARTS.fullmatch(value) if isinstance(value, str) else None
    if not found or not found[0]:
        raise ValueError(value)
    return sum(
        (Fraction(number) * _MICROSECONDS[unit] for unit, number in found.groupdict().items() if number), Fraction()
    )


def duration_text(duration: timedelta) -> str:
    """A duration for people. The function `duration` reads the text back.

    >>> duration_text(timedelta(minutes=90)), duration_text(timedelta(milliseconds=1100))
    ('1h30m', '1s100ms')
    """
    left, text = duration // timedelta(microseconds=1), ""
    for unit, size in _MICROSECONDS.items():
        count, left = divmod(left, size)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def parse_size(value: SizeLike, *, where: str = "") -> int:
    """Bytes, from a number and its unit: B, KiB, MiB, GiB, TiB, or kB, MB, GB, TB in powers of ten. An int is bytes.

    Raises ConfigError for what is no size, or none greater than zero; `where` names the setting.

    >>> parse_size("64MiB"), parse_size("1.5kB"), parse_size(10)
    (67108864, 1500, 10)
    """
    size = value if type(value) is int else int(_bytes(value, where))
    if size <= 0:
        raise ConfigError(f"{value!r} is not greater than zero", where=where, hint='write a size such as "64MiB"')
    return size


def _bytes(value: object, where: str) -> Fraction:
    """Their number, exactly."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]+)", value) if isinstance(value, str) else None
    if match is None or match[2] not in _BYTES:
        known = list(reversed(_BYTES))
        hint = f'write a number and {", ".join(known[:-1])} or {known[-1]}: "64MiB"'
        raise ConfigError(f"{value!r} is not a size", where=where, hint=hint)
    return Fraction(match[1]) * _BYTES[match[2]]
