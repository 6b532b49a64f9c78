"""The clock of a test, and warnings: of rows that are dated after it, since a test may not look at its dead letters; and of
streams that nothing uses."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from datetime import datetime
from weakref import WeakSet

from falkirk.blame import user_line
from falkirk.checkpoint.ids import Millis
from falkirk.durations import millis_since_1970
from falkirk.errors import ConfigError
from falkirk.stream.flow.flow import Flow
from falkirk.stream.operators.sources.source import TOO_FAR_AHEAD
from falkirk.stream.stages.plan import USE_IT, Plan
from falkirk.wording import counted


def clock_of(now: datetime) -> Millis:
    """A clock that shows this time. Raises ConfigError for a time without a zone.

    >>> from datetime import UTC
    >>> clock_of(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    1000
    """
    if not isinstance(now, datetime):
        raise ConfigError(f"now={now!r} is not a datetime", hint="datetime(2026, 5, 1, tzinfo=UTC)")
    if now.tzinfo is None:
        raise ConfigError(f"now={now!r} has no zone", hint="add tzinfo=datetime.UTC")
    return Millis(millis_since_1970(now))


def warned_of_dates(letters: Sequence[bytes | None], now: datetime) -> bool:
    """Warn if rows became dead letters because their time is after the clock, which stands still. Whether there were any."""
    ahead = sum(TOO_FAR_AHEAD.encode() in (letter or b"") for letter in letters)
    if ahead:
        text = (
            f"{counted(ahead, 'row')} became dead letters: the time is {TOO_FAR_AHEAD}, which stands at {now:%Y-%m-%d %H:%M} "
            "UTC in this test. Let it begin later, fk.testing.run(…, now=datetime(…)), or move it with app.advance(…)"
        )
        _warn(text)
    return bool(ahead)


def warn_of_unused(flow: Flow, plan: Plan) -> None:
    """Warn of streams that the flow defines and that nothing uses: once, also in a test that runs the flow many times."""
    if flow not in _warned:
        _warned.add(flow)
        for words in plan.unused:
            _warn(f"{words}: {USE_IT}")


_warned: WeakSet[Flow] = WeakSet()


def _warn(text: str) -> None:
    path, line = user_line().rsplit(":", 1)
    warnings.warn_explicit(text, UserWarning, path, int(line))
