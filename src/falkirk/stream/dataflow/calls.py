"""Calls of a user's async function, in an event loop of their own.

    thread of the step                     thread of the loop
    answers(rows) ──────────rows──────────▶ function(row), up to `concurrency` at a time ──▶ service
       waits                                   no answer in time, or an error: a pause, another attempt
       ◀──answers, in the order of rows─────

A task has a loop for each operator that calls, begun by its first call. The function's clients belong to that loop: they are
opened in it, serve all calls of the task, and are closed at its end.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from falkirk.blame import FAILURES
from falkirk.stream.dataflow.circuit import Cancellation
from falkirk.stream.dataflow.task_counts import CallCounts

LONGEST_PAUSE = 30.0
"""Seconds between two attempts, at most."""

CLOSING = 2.0
"""Seconds that the end of a worker waits until clients are closed."""

_UNOPENED: tuple[type[BaseException], ...] = (asyncio.CancelledError, *FAILURES)
"""What the opening of clients may raise. Nobody else cancels it."""

_ending: list[threading.Thread] = []
"""The threads of loops that close their clients."""

Call = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class CallPlan:
    """What is called, and how."""

    function: Any
    """An async function of a row, or something that makes an object to call: see `makes_callers`."""
    concurrency: int
    timeout: float
    """Seconds."""
    retries: int
    backoff: float
    """Seconds before the second attempt; twice as long before each further one."""
    retry_on: tuple[type[Exception], ...]


class Unanswered(NamedTuple):
    """In place of an answer: the error of the last attempt."""

    error: BaseException


class OpeningError(Exception):
    """The object to call could not be made."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


def makes_callers(function: Any) -> bool:
    """Whether it is a class, or a `partial` of one: each task then makes an object, and calls that.

    >>> makes_callers(partial(dict, a=1)), makes_callers(print)
    (True, False)
    """
    while isinstance(function, partial):
        function = function.func
    return isinstance(function, type)


def pauses(backoff: float, dice: random.Random) -> Iterator[float]:
    """How long to wait before each further attempt: twice as long each time, less up to a half at random.

    >>> [0.5 * full <= pause <= full for full, pause in zip((1, 2, 4), pauses(1, random.Random("id")))]
    [True, True, True]
    """
    while True:
        yield backoff * dice.uniform(0.5, 1.0)
        backoff = min(2 * backoff, LONGEST_PAUSE)


class Caller:
    """The calls of one operator in one task. One step at a time asks."""

    def __init__(self, plan: CallPlan, seed: str) -> None:
        """`seed`: of the lengths of pauses, which change no answer."""
        self._plan, self._dice = plan, random.Random(seed)
        self._counts = Counts()
        self._loop: Loop | None = None
        self._end: Callable[[], object] = lambda: None

    def answers(
        self, rows: Sequence[Mapping[str, Any]], cancellation: Cancellation | None = None, *, all_of_them: bool = True
    ) -> list[Any]:
        """An answer for each row, in their order. If not `all_of_them`, the first failure ends the calls that are under way,
        and the answers of other rows may be missing. Raises OpeningError, and CancelledError if the step is cancelled."""
        if self._loop is None or not self._loop.thread.is_alive():
            self._loop = Loop(self._plan)
            self._end = weakref.finalize(self, self._loop.end)
        asked: Future[list[Any]] = self._loop.submit(self._plan, rows, self._counts, self._dice, all_of_them)
        if cancellation is not None:
            cancellation.attach(asked)
        return asked.result()

    def counts(self) -> CallCounts:
        """What was done since the last such question."""
        return self._counts.take()

    def close(self) -> None:
        """End the calls that are under way, and close clients, without waiting for that. Later calls begin again."""
        loop, self._loop = self._loop, None
        if loop is not None:
            self._end()
            _ending.append(loop.thread)


def wait_for_ends() -> None:
    """Wait until those that were closed have closed their clients, but not for long."""
    deadline = time.monotonic() + CLOSING
    while _ending:
        _ending.pop().join(max(0.0, deadline - time.monotonic()))


class Counts:
    """What the calls of one operator in one task have done. The loop counts, and others ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = CallCounts()

    def add(self, *, calls: int = 0, retries: int = 0, failures: int = 0, seconds: float = 0.0) -> None:
        """Add some."""
        with self._lock:
            self._now += CallCounts(calls, retries, failures, seconds)

    def take(self) -> CallCounts:
        """All since the last such question."""
        with self._lock:
            taken, self._now = self._now, CallCounts()
            return taken


class Loop:
    """An event loop in a thread of its own, and what is called there. It must not know its `Caller`, whose end ends it."""

    def __init__(self, plan: CallPlan) -> None:
        self._begun = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._closing: asyncio.Event
        self._call: asyncio.Future[Call]
        self.thread = threading.Thread(target=asyncio.run, args=(self._live(plan),), name="calls", daemon=True)
        self.thread.start()
        self._begun.wait()

    def submit(
        self, plan: CallPlan, rows: Sequence[Mapping[str, Any]], counts: Counts, dice: random.Random, all_of_them: bool
    ) -> Future[list[Any]]:
        """Call for these rows."""
        return asyncio.run_coroutine_threadsafe(self._answers(plan, rows, counts, dice, all_of_them), self._loop)

    def end(self) -> None:
        """End it. Any thread may."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._closing.set)

    async def _live(self, plan: CallPlan) -> None:
        """One coroutine opens and closes the clients, as some libraries demand."""
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        self._call = self._loop.create_future()
        self._begun.set()
        if not makes_callers(plan.function):
            self._call.set_result(plan.function)
            await self._closing.wait()
            return
        try:
            made, call = await _opened(plan)
        except _UNOPENED as error:  # raised where the answers are awaited
            self._call.set_exception(OpeningError(error))
            await self._closing.wait()
            return
        self._call.set_result(call)
        try:
            await self._closing.wait()
        finally:
            if hasattr(made, "__aexit__"):
                await made.__aexit__(None, None, None)

    async def _answers(
        self, plan: CallPlan, rows: Sequence[Mapping[str, Any]], counts: Counts, dice: random.Random, all_of_them: bool
    ) -> list[Any]:
        call = await asyncio.shield(self._call)
        answers: list[Any] = [None] * len(rows)
        todo = iter(enumerate(rows))

        async def work() -> None:
            for i, row in todo:
                answers[i] = await _answer(plan, call, row, counts, dice)
                if isinstance(answers[i], Unanswered) and not all_of_them:
                    raise _Enough

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(plan.concurrency, len(rows))):
                    group.create_task(work())
        except* _Enough:
            pass
        return answers


class _Enough(Exception):
    """A row has no answer, and the others need none then."""


async def _opened(plan: CallPlan) -> tuple[Any, Call]:
    """An object of the user's, and what to call: with `async with`, if it can be used so."""
    waits = pauses(plan.backoff, random.Random(0))
    for attempt in range(plan.retries + 1):
        made = plan.function()
        if not hasattr(made, "__aenter__"):
            return made, made
        try:
            async with asyncio.timeout(plan.timeout):
                return made, await made.__aenter__()
        except plan.retry_on:
            if attempt == plan.retries:
                raise
            await asyncio.sleep(next(waits))
    raise AssertionError


async def _answer(plan: CallPlan, call: Call, row: Mapping[str, Any], counts: Counts, dice: random.Random) -> Any:
    """The answer for one row, after as many attempts as it may take."""
    waits = pauses(plan.backoff, dice)
    for attempt in range(plan.retries + 1):
        began = time.monotonic()
        try:
            async with asyncio.timeout(plan.timeout) as limit:
                return await call(row)
        except asyncio.CancelledError as error:
            # Only if it is not this call that was cancelled, but something that the function awaited.
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            failed: BaseException = RuntimeError(f"the function was cancelled from within: {error!r}")
        except FAILURES as error:
            failed = TimeoutError(f"no answer within {plan.timeout:g} s") if limit.expired() else error
        finally:
            counts.add(calls=1, seconds=time.monotonic() - began)
        if attempt == plan.retries or not isinstance(failed, plan.retry_on):
            break
        counts.add(retries=1)
        await asyncio.sleep(next(waits))
    counts.add(failures=1)
    return Unanswered(failed)
