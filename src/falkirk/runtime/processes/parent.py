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

    >>> command("falkirk.runtime.processes.process", "app:flow")[1:]
    ['-m', 'falkirk.runtime.processes.parent', 'falkirk.runtime.processes.process', 'app:flow']
    """
    return [sys.executable, "-m", "falkirk.runtime.processes.parent", module, *arguments]


def main() -> None:
    """Run a module's `main`, in a process that dies with its parent.

    This is set up before the module is imported: the import takes a second, and several on a busy machine.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor handles Ctrl-C
    signal.signal(
        signal.SIGTERM, lambda *_: os._exit(0)
    )  # there is nothing to leave yet; the module sets its own handler
    die_with_parent()
    module = sys.argv.pop(1)
    # Objects of imported modules stay: a search for garbage among them takes a tenth of the import time.
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
    # The parent may have ended before the kernel knew: then nobody holds the other end of our standard input. A parent with
    # pid 1 proves nothing: in a container, the supervisor may have it.
    hung_up = select.poll()
    hung_up.register(0, 0)
    if hung_up.poll(0):
        os._exit(1)


if __name__ == "__main__":
    main()
