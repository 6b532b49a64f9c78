"""A child that outlives its supervisor would hold tasks that nobody restarts: it dies with it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys


def die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the parent ends (Linux; elsewhere the closed pipe tells, a moment later)."""
    if sys.platform != "linux":
        return
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() == 1:  # the parent ended before the kernel knew
        os._exit(1)
