"""Ctrl-C and SIGTERM: the first ends cleanly, the second at once.

    our first line of code ──listen──▶ StopRequested is raised: no work is in progress, so the process cleans up and ends
                           ──stop_on_signals──▶ an event is set: the workers leave cleanly

Before our first line, while Python itself starts, a signal has the system's default effect.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

CODES = {"run": 0, "dev": 0, "worker": 0, "rebuild": 0, "driver": 0, "serve": 0, "backfill": 1}
"""Commands that work until they are stopped, and how they end then. A stopped backfill is not complete."""


class StopRequested(BaseException):
    """A stop signal came before any work began. Not an Exception: no code may mistake it for its own failure."""


_requested = threading.Event()
"""Whether it was stopped. An exception raised during a module's import, or in a callback from C, may be swallowed there."""


def came_of_stop(error: BaseException | None) -> bool:
    """Whether an exception came of a stop signal. Before 3.12, Python makes a RuntimeError of what is raised while a class
    tells its attributes their names, so that it may come in the middle of an import as an error of the imported module.

    >>> error = RuntimeError("Error calling __set_name__")
    >>> error.__cause__ = StopRequested()
    >>> came_of_stop(error), came_of_stop(RuntimeError())
    (True, False)
    """
    return error is not None and (isinstance(error, StopRequested) or came_of_stop(error.__cause__))


def listen() -> None:
    """Raise StopRequested on SIGTERM or SIGINT until `stop_on_signals` is called. A second signal ends the process."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        if _requested.is_set():
            os._exit(128 + number)
        _requested.set()
        raise StopRequested

    _answer(on_signal)
    report = sys.unraisablehook

    def without_stop(unraisable: sys.UnraisableHookArgs) -> None:
        """Report nothing when a callback from C swallows StopRequested: `_requested` is set already."""
        if unraisable.exc_type is not StopRequested:
            report(unraisable)

    sys.unraisablehook = without_stop


def stop_on_signals(leaving: Callable[[], None] = lambda: None, stop: threading.Event | None = None) -> threading.Event:
    """An event set by SIGTERM or SIGINT, which also call `leaving`; the second one ends the process at once, and loses only
    time. With `stop`, which an earlier call has returned, that event is set. Signals before this call count too."""
    stop, called = stop or threading.Event(), False

    def leave() -> None:
        nonlocal called
        called = True
        stop.set()
        leaving()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            os._exit(128 + number)
        leave()

    _answer(on_signal)
    if (_requested.is_set() or stop.is_set()) and not called:
        leave()
    return stop


@contextmanager
def interruptible(words: str) -> Iterator[None]:
    """Around what Ctrl-C may interrupt, and what leaves something behind then: these words say what."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write(f"\n{words}\n")
        raise


def half_deleted(command: str, app: str, target: str = "") -> str:
    """These words, where topics of an app are being deleted. `target`: what the command is given, if not the app's name."""
    again = f"falkirk {command} {target or app}"
    return f"if anything is deleted, {app} cannot run before {again} has finished: give it again"


def _answer(on_signal: Callable[[int, FrameType | None], None]) -> None:
    signal.signal(signal.SIGINT, on_signal)
    signal.signal(signal.SIGTERM, on_signal)
