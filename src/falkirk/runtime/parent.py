"""A child that outlives its supervisor would hold tasks that nobody restarts: it dies with it."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys


def die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the parent ends (Linux; elsewhere the closed pipe tells, a moment later)."""
    if sys.platform != "linux":
        return
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL)
    # The parent may have ended before the kernel knew: then nobody holds the other end of our standard input. That our
    # parent is process 1 says nothing: in a container, the supervisor may be just that.
    hung_up = select.poll()
    hung_up.register(0, 0)
    if hung_up.poll(0):
        os._exit(1)
