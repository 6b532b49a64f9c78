"""Who a worker is: stable across restarts, from a UUID kept in the state directory.

The instance id (static membership) and the transactional id derive from it: a process started again under them gets its
tasks back at once, and ends what its predecessor left open.
"""

from __future__ import annotations

import os
import socket
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from falkirk.errors import DiskError


@dataclass(frozen=True, slots=True)
class Identity:
    """One worker of one state directory."""

    name: str
    folder: Path
    host: str


def identity(state_dir: Path, app: str, slot: int) -> Identity:
    """The identity of worker `slot`. Raises DiskError where the directory cannot be written."""
    path = state_dir / "identity"
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            made = path.with_suffix(f".{os.getpid()}")
            made.write_text(uuid.uuid4().hex[:12])
            with suppress(FileExistsError):  # the first of several workers that start at once wins
                os.link(made, path)
            made.unlink()
        word = path.read_text().strip()
        folder = state_dir / app / f"worker-{slot}"
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DiskError(
            f"cannot use the state directory: {error.strerror}",
            where=str(error.filename or state_dir),
            hint="free some space, or choose another with --state-dir",
        ) from error
    return Identity(f"{word}-{slot}", folder, socket.gethostname())
