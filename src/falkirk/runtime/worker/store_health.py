"""Whether the checkpoint store answers: one worker's tasks find it out together, and each decides how long to wait.

    answers ──a request fails, or takes too long──▶ away since …, and why ──another one is answered──▶ answers

A request may hang for as long as a dead mount does. So no request is made in the thread that waits for it: that thread checks
regularly whether waiting is still useful. A request that hangs is left alone, and no other is made until it ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from falkirk.cadence import Cadence
from falkirk.checkpoint.ids import TaskId
from falkirk.connectors.kafka.client.config import logger
from falkirk.errors import AwayError, StateError
from falkirk.state.store import GoOn

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds after which a request that is answered at once or not at all counts as failed."""

PATIENCE_WITH_DATA = 30.0
"""Seconds between two signs of life of a download, on any line."""

AGAIN = 2.0
"""Seconds between two requests while the store is away."""

REMIND = 60.0
"""Seconds between two lines of the log about one outage."""

LOOK = 0.02
"""Seconds between two checks whether waiting is still useful."""


@dataclass(frozen=True, slots=True)
class Outage:
    """Since when a store has been away, and why."""

    since: datetime
    error: AwayError

    def __str__(self) -> str:
        where = f" ({self.error.where})" if self.error.where else ""
        return f"unavailable since {self.since:%Y-%m-%d %H:%M:%SZ}: {self.error.what}{where}"


class LifeSign:
    """A sign of life that a long request gives."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def give(self) -> None:
        """Something has come."""
        self.last = time.monotonic()


class StoreHealth:
    """Whether the checkpoint store answers, for one worker. Any thread may ask."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._turn = threading.Lock()
        self._outage: Outage | None = None
        self._tried = -AGAIN
        self._warnings = Cadence(0, REMIND)
        self._hanging: set[Future[Any]] = set()
        self._waiting: set[TaskId] = set()

    def waits(self, task: TaskId) -> str | None:
        """What a task waits for and since when, in words; None if it does not wait."""
        outage = self._outage
        if task not in self._waiting:
            return None
        return f"the checkpoint store, {outage}" if outage is not None else "the checkpoint store"

    def ask(self, call: Callable[[], T], go_on: GoOn, sign: LifeSign | None = None) -> T:
        """The result of a request. Raises its exception; AwayError if it takes too long, and at once if the store was found
        to be away a moment ago; the exception of `go_on`."""
        with self._trial():
            patience, sign = (PATIENCE, LifeSign()) if sign is None else (PATIENCE_WITH_DATA, sign)
            sign.give()
            answer = in_thread(call)
            while not answer.done():
                go_on()
                if time.monotonic() - sign.last > patience:
                    with self._turn:
                        self._hanging.add(answer)
                    raise AwayError(
                        f"the checkpoint store has not answered for {patience:.0f} s",
                        where=self._where,
                        hint="nothing is lost; Falkirk tries again",
                    )
                wait_for(answer, LOOK)
            return answer.result()

    def insist(self, task: TaskId, call: Callable[[], T], go_on: GoOn, sign: LifeSign | None = None) -> T:
        """The result of a request, as soon as the store answers. Raises its other exceptions, and those of `go_on`."""
        try:
            while True:
                try:
                    return self.ask(call, go_on, sign)
                except AwayError:
                    if task not in self._waiting:
                        self._waiting.add(task)
                        logger.warning("task %s waits for %s", task, self.waits(task), extra={"task": str(task)})
                go_on()
                time.sleep(LOOK)
        finally:
            self._waiting.discard(task)

    def make(self, call: Callable[[], T]) -> T:
        """The same in the caller's thread, which waits as long as it takes."""
        with self._trial():
            return call()

    @contextmanager
    def _trial(self) -> Iterator[None]:
        """A request: all tasks learn from it whether the store answers."""
        with self._turn:
            self._hanging = {request for request in self._hanging if not request.done()}
            if self._outage is not None and (self._hanging or time.monotonic() - self._tried < AGAIN):
                error = self._outage.error
                raise AwayError(error.what, where=error.where, hint=error.hint)
            self._tried = time.monotonic()
        try:
            yield
        except AwayError as error:
            self._lost(error)
            raise
        except StateError:
            self._answered()
            raise
        self._answered()

    def _lost(self, error: AwayError) -> None:
        with self._turn:
            self._outage = Outage(datetime.now(UTC) if self._outage is None else self._outage.since, error)
            if not self._warnings.due(time.monotonic()):
                return
        logger.warning("the checkpoint store is %s; retrying; nothing is lost (%s)",
                       self._outage, error.hint, extra={"where": error.where, "hint": error.hint})  # fmt: skip

    def _answered(self) -> None:
        with self._turn:
            outage, self._outage, self._warnings = self._outage, None, Cadence(0, REMIND)
        if outage is not None:
            logger.warning("the checkpoint store answers again; it was %s", outage)


def in_thread(call: Callable[[], T]) -> Future[T]:
    """Run it in a thread that does not block the end of the process, as a pool's would."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001  # it is raised again where the result is asked for
            future.set_exception(error)

    threading.Thread(target=run, name="falkirk-request", daemon=True).start()
    return future


def wait_for(future: Future[Any], seconds: float) -> bool:
    """Whether it is done, after at most this long."""
    try:
        future.exception(seconds)
    except TimeoutError:
        return False
    return True
