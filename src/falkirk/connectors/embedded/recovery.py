"""After a crash: make the controller give up the crashed broker before the new one starts.

The controller takes the crashed broker for alive until its session ends. A broker that starts in that time leads its
partitions by the old metadata, then loses them while the controller changes its mind, and leads them again. In between,
its transaction coordinator takes a partition without a leader for a deleted one (KAFKA-20734), and ends a transaction
whose commit marker it never wrote there: no read_committed reader passes that partition again. So

    the broker starts  ⇒  the metadata says that no broker is alive

A controller alone, with a session of a tenth of a second, makes this true. For the same reason the session of the
running node never ends (settings.py): if it ended in a pause, the node would lose its leaders likewise.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from falkirk.connectors.embedded.process import spawn

ACTIVE = "Becoming the active controller"
FENCING = "because its session has timed out"
COMMITTED = "Processed maybeFenceStaleBroker"
SILENCE_S = 3.0  # thirty sessions: an active controller that is silent until then had no broker to give up
STOP_TIMEOUT_S = 10.0


def crashed(data: Path) -> bool:
    """Whether the node with the files in `data` ran, and did not stop cleanly."""
    return (data / "__cluster_metadata-0").exists() and not (data / ".kafka_cleanshutdown").exists()


def fence_crashed_broker(controller: list[str], folder: Path, console: Path) -> bool:
    """Run the command `controller` in `folder` until no broker is alive; False if it ended before that.

    It logs what it does to the file `console`, which is empty now.
    """
    child, pid = spawn(controller, folder, console, detached=False)
    try:
        return _wait_until_fenced(child, console)
    finally:
        if child.poll() is None:
            os.kill(pid, signal.SIGTERM)
            try:
                child.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.kill(pid, signal.SIGKILL)
                child.wait()
        assert child.stdin is not None
        child.stdin.close()


def has_fenced(said: str) -> bool:
    """Whether the controller that said this gave a broker up, and committed that. Uncommitted, it can be lost.

    >>> has_fenced(f"{COMMITTED} in 9 us\\nFencing broker 1 at epoch 7 {FENCING}.\\n")
    False
    >>> has_fenced(f"Fencing broker 1 at epoch 7 {FENCING}.\\n{COMMITTED} in 900 us\\n")
    True
    """
    return COMMITTED in said.partition(FENCING)[2]


def _wait_until_fenced(child: subprocess.Popen[bytes], console: Path) -> bool:
    silent_since = None
    while child.poll() is None:
        said = console.read_text(errors="replace")
        if has_fenced(said):
            return True
        if FENCING not in said and ACTIVE in said:
            silent_since = silent_since or time.monotonic()
            if time.monotonic() > silent_since + SILENCE_S:
                return True
        time.sleep(0.02)
    return False
