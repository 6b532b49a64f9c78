"""A worker's identity: stable across restarts, from a UUID kept in the state directory.

The instance id (static membership) and the transactional id derive from it: a restarted process gets its tasks back at once
with them, and aborts what its predecessor left open.
"""

from __future__ import annotations

import errno
import fcntl
import getpass
import os
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from falkirk.checkpoint.ids import Nonce
from falkirk.errors import DiskError, IdentityError


@dataclass(frozen=True, slots=True)
class Identity:
    """One worker of one state directory."""

    name: str
    folder: Path
    host: str

    def member(self, group: str) -> str:
        """Its instance id in the app with this group. Its transactional ids begin with that."""
        return f"{group}.{self.name}"


def identity(state_dir: Path, app: str, slot: int) -> Identity:
    """The identity of worker `slot`. Raises DiskError if the directory cannot be written."""
    folder = state_dir / app / f"worker-{slot}"
    with _words(state_dir):
        folder.mkdir(parents=True, exist_ok=True)
    return Identity(f"{word(state_dir)}-{slot}", folder, host_name())


def word(state_dir: Path) -> str:
    """Distinguishes a state directory from all others. Raises DiskError if it cannot be written."""
    path = state_dir / "identity"
    with _words(state_dir):
        state_dir.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            made = path.with_suffix(f".{os.getpid()}")
            made.write_text(uuid.uuid4().hex[:12])
            with suppress(FileExistsError):  # the first of several workers that start at once wins
                os.link(made, path)
            made.unlink()
        return path.read_text().strip()


def host_name() -> str:
    """This machine's name for people."""
    return socket.gethostname()


def person() -> str:
    """The person who gives a command, and the host."""
    try:
        return f"{getpass.getuser()}@{host_name()}"
    except (KeyError, OSError):  # a container's user may have no name
        return f"{os.getuid()}@{host_name()}"


@contextmanager
def hold(path: Path, who: str, *, patience: float = 0.0) -> Iterator[None]:
    """Be the only process that is `who`: the kernel releases the lock when this one ends, however it ends.

    Raises IdentityError if another holds it for longer than `patience` seconds, DiskError if it cannot be written.
    """
    with _words(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("a+")
    with lock:
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise IdentityError(
                        f"{who} runs already, with pid {path.read_text().strip() or 'unknown'}",
                        where=str(path.parent),
                        hint="stop that one first, or give this one a separate state directory with --state-dir",
                    ) from None
                time.sleep(0.02)
        with _words(path):
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
        yield


def hold_app(folder: Path, app: str) -> AbstractContextManager[None]:
    """Be the only process that runs an app, or ends it, in its folder of a state directory. Raises as `hold` does."""
    return hold(folder / "lock", f"app {app!r}")


@contextmanager
def _words(place: Path) -> Iterator[None]:
    """Turns an OSError into a DiskError."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise DiskError(
            f"cannot use the state directory: {error.strerror}",
            where=str(error.filename or place),
            hint=f"{'free some space, or ' if full else ''}choose another with --state-dir",
        ) from error


def fresh_nonce() -> Nonce:
    """A word that no other ownership has."""
    return Nonce(token_hex(8))
