"""Wall time, and whether this host's can be trusted.

Steps are dated by the clock of the host that runs them, and clock(n+1) ≥ clock(n) across hosts. So one step by a host that is
two hours ahead would stop a task's time for two hours, no matter where it continues. A worker therefore compares its clock
with the broker's before it takes a task, and from time to time. In between it watches for jumps:

    ahead = result of the last comparison + how far the wall clock has moved against the monotonic one since

    |ahead| ≤ bound     sound
    else, by a jump     in doubt: no step is dated until the clocks are compared again, at once
    else                ClockError: the worker hands its tasks over
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from time import time_ns

from falkirk.cadence import Cadence
from falkirk.checkpoint.ids import Millis
from falkirk.connectors.kafka.app_topics.clocks import Reading, read_clock
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.durations import duration_text
from falkirk.errors import ClockError, UnreachableError

logger = logging.getLogger("falkirk.clock")

EVERY = 60.0
"""Seconds between two comparisons."""

SAY_EVERY = 30.0
"""Seconds between two warnings that the clocks cannot be compared."""


class WallClock:
    """`falkirk.checkpoint.ports.Clock`."""

    def now(self) -> Millis:
        """Milliseconds since 1970, UTC."""
        return Millis(time_ns() // 1_000_000)


class Timekeeper:
    """Compares this host's clock with the broker's, in its own thread: a cluster that does not answer blocks nothing else."""

    def __init__(self, read: Callable[[], Reading | None], bound_ms: int) -> None:
        """`read` compares the clocks: None if that is impossible, UnreachableError if no broker answers."""
        self._read, self._bound = read, bound_ms
        self._known: tuple[int | None, int] | None = None
        """`ahead` by the last comparison, and the difference of this host's two clocks then."""
        self._failed: Exception | None = None
        self._last = Millis(0)
        self._closed = False
        self._wake = threading.Event()
        threading.Thread(target=self._keep, name="falkirk-timekeeper", daemon=True).start()

    def ahead_ms(self) -> int | None:
        """By how much this host's clock is ahead of the broker's, at least; None if unknown."""
        return self._ahead(time_ns())

    def now(self) -> Millis | None:
        """The time, if it may date a step; None if that is not known yet. Raises ClockError if the clock is off by more than
        the bound, and FalkirkError if the broker refuses to answer."""
        if self._failed is not None:
            raise self._failed
        wall = time_ns()  # check the value that is returned: the clock may jump at any moment
        if self._known is None:
            return None
        ahead = self._ahead(wall)
        if ahead is not None and abs(ahead) > self._bound:
            self._wake.set()
            return None
        self._last = Millis(wall // 1_000_000)
        return self._last

    def latest(self) -> Millis:
        """The time, or else the last value of `now`: for a step that must not wait, nor end a hand-over of tasks because the
        clock is off."""
        try:
            now = self.now()
        except ClockError:
            return self._last
        return self._last if now is None else now

    def _ahead(self, wall: int) -> int | None:
        ahead, apart = self._known or (None, 0)
        return None if ahead is None else ahead + _apart(wall) - apart

    def close(self) -> None:
        """Stop comparing."""
        self._closed = True
        self._wake.set()

    def _keep(self) -> None:
        began, warnings = time.monotonic(), Cadence(SAY_EVERY, SAY_EVERY)
        while not self._closed:
            self._wake.clear()
            try:
                reading = self._read()
                check_clock(reading, self._bound)
            except UnreachableError as error:
                now = time.monotonic()
                if warnings.due(now, since=began):
                    words = "this host's clock could not be compared with the broker's clock for %.0f s: %s"
                    logger.warning(words, now - began, error)
                self._wake.wait(0.2)
                continue
            except Exception as error:  # noqa: BLE001  # raised by `now`: nothing may end this thread in silence
                self._failed = error
                return
            self._known = (None if reading is None else reading.ahead), _apart(time_ns())
            self._wake.wait(EVERY)
            began = time.monotonic()


def timekeeper(cluster: Cluster, control: str, who: str, bound_ms: int) -> Timekeeper:
    """For the app with this control topic."""
    return Timekeeper(lambda: read_clock(cluster, control, who), bound_ms)


def check_clock(reading: Reading | None, bound_ms: int) -> None:
    """Raises ClockError if this host's clock is off by more than the bound.

    >>> check_clock(Reading(-59_000, 61_000), 60_000)
    >>> check_clock(Reading(7_200_000, 7_200_012), 60_000)
    Traceback (most recent call last):
    falkirk.errors.ClockError: this host's clock is 2:00:00 ahead of the broker's, but only up to 1m is allowed
      to do: set this host's clock (is its NTP service running?), or the broker's if it is wrong; or raise --clock-bound
    """
    if reading is not None and abs(reading.ahead) > bound_ms:
        raise ClockError(
            f"this host's clock is {ahead_words(reading.ahead)}, but only up to "
            f"{duration_text(timedelta(milliseconds=bound_ms))} is allowed",
            hint="set this host's clock (is its NTP service running?), or the broker's if it is wrong; or raise "
            "--clock-bound",
        )


def ahead_words(millis: int) -> str:
    """How far a clock is off.

    >>> ahead_words(0), ahead_words(90_500), ahead_words(-250)
    ("equal to the broker's, as far as measured", "0:01:30.500 ahead of the broker's", "250 ms behind the broker's")
    """
    if millis == 0:
        return "equal to the broker's, as far as measured"
    span = timedelta(milliseconds=abs(millis))
    shown = f"{abs(millis)} ms" if abs(millis) < 1000 else str(span).removesuffix("000")
    return f"{shown} {'ahead of' if millis > 0 else 'behind'} the broker's"


def _apart(wall: int) -> int:
    """The wall clock less the monotonic one, in milliseconds: it changes when the wall clock is set, or the host slept."""
    return (wall - time.monotonic_ns()) // 1_000_000
