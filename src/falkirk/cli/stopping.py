"""Ctrl-C and SIGTERM: a clean end first, an end at once then."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType


def stop_on_signals(leaving: Callable[[], None] = lambda: None, stop: threading.Event | None = None) -> threading.Event:
    """Set by SIGTERM or SIGINT, and `leaving` called; the second one ends the process at once, and loses nothing but time.
    With `stop`, which an earlier call has returned, that one is set."""
    stop = stop or threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()
        leaving()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    return stop
