"""Durations and sizes as people write them: "100ms", "64MiB"."""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction
from typing import TypeAlias

from falkirk.errors import ConfigError

DurationLike: TypeAlias = str | timedelta
SizeLike: TypeAlias = str | int

_MICROSECONDS = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}
_BINARY = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
_DECIMAL = {"TB": 10**12, "GB": 10**9, "MB": 10**6, "kB": 10**3}
_BYTES = {**_DECIMAL, **_BINARY, "B": 1}


def parse_duration(value: DurationLike, *, where: str = "") -> timedelta:
    """A timedelta from a number and its unit: us, ms, s, m, h or d. A timedelta stays as it is.

    Raises ConfigError for a text that is not a duration greater than zero; `where` names the setting.

    >>> parse_duration("1.5s")
    datetime.timedelta(seconds=1, microseconds=500000)
    >>> parse_duration("5 min", where="--every")
    Traceback (most recent call last):
    falkirk.errors.ConfigError: '5 min' is not a duration
      where: --every
      to do: write a number and us, ms, s, m, h or d: "100ms"
    """
    if isinstance(value, timedelta):
        duration = value
    else:
        microseconds = _amount(value, _MICROSECONDS, "duration", "100ms", where)
        try:
            duration = timedelta(microseconds=int(microseconds))
        except OverflowError:
            raise ConfigError(
                f"{value!r} is too long", where=where, hint="write fewer than 1,000,000,000 days"
            ) from None
    if duration <= timedelta():
        raise ConfigError(f"{value!r} is not greater than zero", where=where, hint='write a duration such as "100ms"')
    return duration


def duration_text(duration: timedelta) -> str:
    """The shortest text that `parse_duration` reads back as `duration`, in one unit.

    >>> duration_text(timedelta(minutes=90)), duration_text(timedelta(milliseconds=100))
    ('90m', '100ms')
    """
    microseconds = duration // timedelta(microseconds=1)
    unit, scale = next((u, s) for u, s in _MICROSECONDS.items() if microseconds % s == 0)
    return f"{microseconds // scale}{unit}"


def parse_size(value: SizeLike, *, where: str = "") -> int:
    """Bytes, from a number and its unit: B, KiB, MiB, GiB, TiB, or kB, MB, GB, TB in powers of ten. An int is bytes.

    Raises ConfigError for what is no size, or none greater than zero; `where` names the setting.

    >>> parse_size("64MiB"), parse_size("1.5kB"), parse_size(10)
    (67108864, 1500, 10)
    """
    size = value if type(value) is int else int(_amount(value, _BYTES, "size", "64MiB", where))
    if size <= 0:
        raise ConfigError(f"{value!r} is not greater than zero", where=where, hint='write a size such as "64MiB"')
    return size


def _amount(value: object, units: dict[str, int], kind: str, example: str, where: str) -> Fraction:
    """The number in `value` times its unit, exactly."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]+)", value) if isinstance(value, str) else None
    if match is None or match[2] not in units:
        known = list(reversed(units))
        hint = f'write a number and {", ".join(known[:-1])} or {known[-1]}: "{example}"'
        raise ConfigError(f"{value!r} is not a {kind}", where=where, hint=hint)
    return Fraction(match[1]) * units[match[2]]
