"""What can prevent a broker's start, found before or after it failed, and said in clear words."""

from __future__ import annotations

import errno
import shutil
import socket
import tempfile
from pathlib import Path

import psutil

from falkirk.connectors.embedded.settings import HOST
from falkirk.errors import ClusterError, DiskError, FalkirkError

NEEDED_BYTES = 256 * 1024 * 1024  # with less, the first topics and their indexes already fill the disk
_FULL = {errno.ENOSPC, errno.EDQUOT}


def disk_error(error: OSError, folder: Path, what: str) -> DiskError:
    """The DiskError for an OSError: full, or not writable."""
    if error.errno in _FULL:
        return DiskError(
            f"{what}: the disk is full", where=str(folder), hint="free some space, or choose another folder"
        )
    reason = error.strerror or str(error)
    return DiskError(
        f"{what}: {reason}", where=str(error.filename or folder), hint="choose a folder that you can write"
    )


def check_folder(folder: Path) -> None:
    """Make `folder`; raise DiskError if it is not writable or has no room for a broker."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"x")
            probe.flush()
    except OSError as error:
        raise disk_error(error, folder, "Kafka's data folder cannot be written") from error
    free = shutil.disk_usage(folder).free
    if free < NEEDED_BYTES:
        raise DiskError(
            f"the disk is full: {free >> 20} MiB are free, and Kafka needs {NEEDED_BYTES >> 20} MiB to start",
            where=str(folder),
            hint="free some space, or choose another data folder",
        )


def check_port(port: int) -> None:
    """Raise ClusterError, naming the listener, if the broker cannot listen on `port`."""
    if not port_is_free(port):
        raise ClusterError(
            f"port {port} is taken by {_listener(port)}",
            where=f"{HOST}:{port}",
            hint="stop it, or choose another port (--port)",
        )


def port_is_free(port: int) -> bool:
    """Whether a server could listen on this port of the loopback address now."""
    with socket.socket() as attempt:
        # As Kafka does: connections of the last broker in TIME_WAIT do not block the port.
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((HOST, port))
            attempt.listen()
        except OSError:
            return False
    return True


def death(console: Path, log: Path, log_start: int, *, mute: bool = False) -> FalkirkError:
    """Why a broker died at its start, or stayed mute: from its output and its log (after byte `log_start`)."""
    lines = [*_lines(console, 0), *_lines(log, log_start)]
    text = "\n".join(lines)
    # Without stack frames, which would push the exceptions' messages out of the tail.
    tail = "\n    ".join([line for line in lines if not line.startswith("\tat ")][-12:]) or "(it wrote nothing)"
    where = f"{log}, whose end is\n    {tail}"
    if mute:
        hint = "is the machine very busy? The end of its log tells what it was doing"
        return ClusterError("the Kafka broker was started and does not answer", where=where, hint=hint)
    if "No space left on device" in text:
        return DiskError("the Kafka broker died at its start: the disk is full", where=where, hint="free some space")
    if "Address already in use" in text:
        hint = "another process took the port in this moment: start again, or choose another port (--port)"
        return ClusterError("the Kafka broker died at its start: its port is taken", where=where, hint=hint)
    if "OutOfMemoryError" in text or "Could not reserve enough space" in text:
        hint = "give it another heap (--heap 1g), or free some memory"
        return ClusterError("the Kafka broker died at its start: out of memory", where=where, hint=hint)
    return ClusterError("the Kafka broker died at its start", where=where, hint="the end of its log tells the cause")


def _listener(port: int) -> str:
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,) and connection.pid:
                process = psutil.Process(connection.pid)
                return f"{process.name()} (pid {process.pid}: {' '.join(process.cmdline())[:120]})"
    except psutil.Error:
        pass  # not every system lets a user list the others' connections
    return "another process, which this user may not see"


def _lines(path: Path, start: int) -> list[str]:
    if not path.exists():
        return []
    with path.open("rb") as log:
        log.seek(start if start <= path.stat().st_size else 0)  # it is shorter if it was rotated since
        return log.read().decode(errors="replace").splitlines()
