"""Records as JSON: for lines that a program reads, and for subscribers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from falkirk.stream.access.endpoints import Row, plain


def as_object(row: Row, *, raw: bool = False) -> dict[str, Any]:
    """A row as an object. Fields that do not apply are left out. `raw`: of a topic without formats, whose value is bytes.

    A value of None is a tombstone, unless the row is unreadable: then it is the text or the bytes that were found.

    >>> as_object(Row(0, 7, 1500, 4, {"n": 1}))
    {'partition': 0, 'offset': 7, 'timestamp': '1970-01-01T00:00:01.500Z', 'key': 4, 'value': {'n': 1}}
    >>> as_object(Row(0, 8, 1500, 4, None))["value"] is None
    True
    """
    value = row.raw if row.unreadable else row.values
    if raw and row.values is not None:
        value = row.values["value"]
    found = {
        "partition": row.partition,
        "offset": row.offset,
        "timestamp": in_words(row.timestamp),
        "key": plain(row.key),
        "value": plain(value),
    }
    if row.maker is not None:
        found |= row.maker._asdict()
    more = {"epoch": row.epoch, "weight": None if row.weight == 1 else row.weight, "unreadable": row.unreadable or None}
    return found | {name: it for name, it in more.items() if it is not None}


def as_text(value: Any) -> str:
    """A value for people: JSON, but text, times and the like without quotes.

    >>> as_text("eu"), as_text(datetime(2026, 1, 1, tzinfo=UTC)), as_text([1, "a"]), as_text(None)
    ('eu', '2026-01-01T00:00:00Z', '[1,"a"]', '–')
    """
    shown = msgspec.to_builtins(plain(value))
    if isinstance(shown, str):
        return shown
    return "–" if shown is None else msgspec.json.encode(shown).decode()


def in_words(millis: int) -> str:
    """A time in milliseconds since 1970. One that is in no calendar, such as microseconds that were taken for milliseconds,
    stays a number.

    >>> in_words(1500), in_words(1_767_225_600_000_000)
    ('1970-01-01T00:00:01.500Z', '1767225600000000')
    """
    try:
        at = datetime.fromtimestamp(millis / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(millis)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
