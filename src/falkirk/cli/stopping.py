"""Ctrl-C and SIGTERM: the first ends cleanly, the second at once.

    our first line of code ──listen──▶ Told is raised: nothing is under way, so what was begun is undone, and the process ends
                           ──stop_on_signals──▶ an event is set: the workers leave cleanly

Before our first line, while Python itself starts, a signal has the system's default effect.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

CODES = {"run": 0, "dev": 0, "worker": 0, "rebuild": 0, "driver": 0, "backfill": 1}
"""Commands that work until they are stopped, and how they end then. A stopped backfill is not complete."""


class Told(BaseException):
    """Stopped before there was anything to leave. Not an Exception: no code is to take it for its own failure."""


_told = threading.Event()
"""Whether it was stopped. An exception raised during a module's import, or in a callback from C, may be swallowed there."""


def listen() -> None:
    """Raise Told on SIGTERM or SIGINT, until `stop_on_signals` is called; a second one ends the process at once."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        if _told.is_set():
            os._exit(128 + number)
        _told.set()
        raise Told

    _answer(on_signal)
    report = sys.unraisablehook

    def without_told(unraisable: sys.UnraisableHookArgs) -> None:
        """A callback from C has swallowed Told, which is known to be set: nobody wants to read of it."""
        if unraisable.exc_type is not Told:
            report(unraisable)

    sys.unraisablehook = without_told


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
    if (_told.is_set() or stop.is_set()) and not called:
        leave()
    return stop


def _answer(on_signal: Callable[[int, FrameType | None], None]) -> None:
    signal.signal(signal.SIGINT, on_signal)
    signal.signal(signal.SIGTERM, on_signal)
