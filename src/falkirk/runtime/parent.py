"""A child that outlives its supervisor would hold tasks that nobody restarts: it dies with it, from its first moment on."""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import select
import signal
import sys


def command(module: str, *arguments: str) -> list[str]:
    """The command line of a child that runs the module's `main`.

    >>> command("falkirk.runtime.process", "app:flow")[1:]
    ['-m', 'falkirk.runtime.parent', 'falkirk.runtime.process', 'app:flow']
    """
    return [sys.executable, "-m", "falkirk.runtime.parent", module, *arguments]


def main() -> None:
    """Run a module's `main`, in a process that dies with its parent.

    Before the module is imported, not after: that takes a second, and several on a busy machine.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the supervisor's to answer
    die_with_parent()
    module = sys.argv.pop(1)
    # What modules are made of stays: looking for what of it may go takes a tenth of the time in which they are imported.
    gc.disable()
    imported = importlib.import_module(module)
    gc.enable()
    imported.main()


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


if __name__ == "__main__":
    main()
