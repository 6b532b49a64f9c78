"""How long to wait for a transaction: as long as its records are acknowledged, and within its time-out.

    last sign    the latest of: records were sent, one was acknowledged, the end of a delay that the broker has announced
    given up     at last sign + patience, or if it cannot be done within BUDGET of the transaction's time-out

A broker with a quota answers a write at once, says for how long it will not read from this connection, and then answers
nothing for that time. Over a slow line acknowledgements are far apart. A transaction given up for that is tried again with
fewer records (`Why.SLOW`). After SMALLER such failures in a row, fewer do not seem to help: then patience and time-out
double each time, up to LONGEST. They stay so until a transaction commits that would have done with the first ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import ThrottleEvent

from falkirk.cadence import Cadence
from falkirk.checkpoint.ports import Unknown, Why
from falkirk.connectors.kafka.client.config import logger
from falkirk.wording import counted

PATIENCE = 15.0
"""Seconds without a sign of progress after which a transaction's outcome is unknown."""

STUCK = 7.0
"""The same, for a call that should return within 5, if all records are acknowledged."""

BUDGET = 0.8
"""Part of the transaction's time-out: after it the end is too late."""

LONGEST = 900.0
"""Seconds: the longest time-out of a transaction that brokers allow by default (transaction.max.timeout.ms)."""

SMALLER = 2
"""Slow attempts that are given up before the next one gets more time."""

SETTLED = 10.0
"""Seconds after which a transaction's pace says how long the rest takes."""

SAID = 5.0
"""Seconds after which a transaction is logged."""

EVERY = 30.0
"""Seconds between two lines about the same."""


class Delivery:
    """The progress of one log's transactions."""

    def __init__(self, timeout: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`timeout`: seconds, of a transaction."""
        self._clock, self._timeout = clock, timeout
        self._longest = max(timeout, LONGEST)
        self._slow = 0
        self._open = False
        self._sent = self._left = 0
        self._began = self._sign = clock()
        self._silence = 0.0
        self._until = self._announced = float("-inf")
        self._log = Cadence(SAID, EVERY)
        self._delays = 0.0
        self._broker = ""

    @property
    def timeout(self) -> float:
        """Seconds: the transaction time-out of the next producer."""
        return min(self._longest, self._timeout * self._factor)

    def shorten(self) -> bool:
        """The broker refuses that time-out: never again one longer than the first. Returns whether it was longer."""
        was, self._longest = self.timeout, self._timeout
        return was > self._timeout

    @property
    def _factor(self) -> int:
        return 1 << max(0, self._slow - SMALLER)

    def begin(self) -> None:
        """A transaction begins."""
        self._open, self._began = True, self._clock()
        self._sign, self._silence, self._sent, self._left = self._began, 0.0, 0, 0

    def sent(self, records: int) -> None:
        """So many more records were sent."""
        self._sent += records
        self._left = self._sent
        self._sign = self._clock()

    def committed(self) -> None:
        """The transaction is over. If it needed more than the first patience and time-out, the next one keeps what it had."""
        now = self._clock()
        self._shows(now)
        self._open = False
        if self._silence <= PATIENCE and now - self._began <= BUDGET * self._timeout:
            self._slow = 0

    def throttled(self, event: ThrottleEvent) -> None:
        """A broker says how long it reads nothing more from this producer; librdkafka says 0 when that is over."""
        if not event.throttle_time:
            return
        now = self._clock()
        self._until, self._announced = now + event.throttle_time, now
        self._broker = f"broker {event.broker_id} ({event.broker_name})"
        self._delays += event.throttle_time
        if self._log.due(now):
            logger.warning(
                "%s delays this worker's writes, which are over its quota: by %.1f s now, %.1f s since this was last said",
                self._broker, event.throttle_time, self._delays,
            )  # fmt: skip
            self._delays = 0.0

    def waits(self) -> str:
        """What writing waits for, in words; "" if nothing unusual. Any thread may ask."""
        now, found = self._clock(), []
        if self._open and now - self._began >= SAID:
            found.append(f"{self._what(self._left)} acknowledged, for {now - self._began:.0f} s")
        return "; ".join([*found, *self._delays_in_words(now)])

    def _delays_in_words(self, now: float) -> list[str]:
        if now - self._announced >= SETTLED and now >= self._until:
            return []
        left = self._until - now
        return [f"{self._broker} delays writes, which are over the quota{f': {left:.1f} s more' if left > 0 else ''}"]

    def given_up(self, left: int, patience: float = PATIENCE) -> Unknown | None:
        """Whether to stop waiting with so many records not acknowledged yet; and why. `patience`: for when all are."""
        now = self._clock()
        if left < self._left:
            self._left = left
            self._shows(now)
        spent, allowed = now - self._began, BUDGET * self.timeout
        if self._log.due(now, self._began):
            logger.warning("writing waits for %s", self.waits())
        patience = PATIENCE * self._factor if left else patience
        if now - max(self._sign, self._until) > patience:
            return self._end(left, f"nothing was acknowledged in the last {patience:.0f} s", slow=left > 0)
        late = spent > allowed or self._until - self._began > allowed
        # Its pace up to the last sign: what was sent since then is acknowledged as a whole, perhaps soon.
        if not late and left < self._sent and (paced := self._sign - self._began) > SETTLED:
            late = paced * self._sent > allowed * (self._sent - left)
        if late:
            return self._end(left, f"it takes longer than the {self.timeout:.0f} s that a transaction has", slow=True)
        return None

    def _shows(self, now: float) -> None:
        """A sign of progress."""
        self._silence = max(self._silence, now - max(self._sign, self._until))
        self._sign = now

    def _end(self, left: int, why: str, *, slow: bool) -> Unknown:
        now = self._clock()
        waited = f"waited {now - self._began:.0f} s for {self._what(left)} acknowledged"
        self._open = False
        if slow and self._timeout * self._factor < LONGEST:
            self._slow += 1  # not further: patience is bounded too
        words = "; ".join([f"{waited}, and {why}", *self._delays_in_words(now)])
        return Unknown(words, Why.SLOW if slow else Why.TRANSIENT)

    def _what(self, left: int) -> str:
        if left:
            return f"{left:,} of {counted(self._sent, 'record')} to be"
        return f"the end of a transaction of {counted(self._sent, 'record')} to be"
