"""An archive of the classes that a Java program loads (JEP 350): a JVM that takes them from there starts in half the time.

    the archive exists  ⇔  a JVM has written all of it, or was found to write none (then it is empty)

A JVM reads only what the same build of Java has written, from the same jars.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import platformdirs
from rich.console import Console

from falkirk.connectors.java import Java
from falkirk.errors import FalkirkError


def cache_folder() -> Path:
    """The user's cache of jars and archives: FALKIRK_CACHE, else the platform's own cache folder."""
    return Path(os.environ.get("FALKIRK_CACHE") or platformdirs.user_cache_path("falkirk"))


def archive_path(jars: Path, java: Java) -> Path:
    """Where the archive of a folder's jars is, for this build of Java: beside the folder."""
    home = java.executable.resolve().parent.parent
    release = home / "release"
    told = release.read_bytes() if release.exists() else str(home).encode()
    return jars.with_name(f"{jars.name}-java{java.major}-{hashlib.sha256(told).hexdigest()[:8]}.jsa")


def archive_flags(archive: Path) -> tuple[str, ...]:
    """The flags with which a JVM takes its classes from the archive; none if there is none."""
    try:
        return (f"-XX:SharedArchiveFile={archive}",) if archive.stat().st_size > 0 else ()
    except OSError:
        return ()


def make_archive(archive: Path, program: str, console: Console, train: Callable[[str], None]) -> None:
    """Make the archive, unless it exists: `train` runs the program from start to end, in a JVM with a flag that it is given.

    Of two processes at once one makes it, and the other waits. A failure leaves no archive, and nothing else behind: a
    JVM starts without it, too.
    """
    partial = archive.with_suffix(".part")
    try:
        if archive.exists():
            return
        archive.parent.mkdir(parents=True, exist_ok=True)
        with archive.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if archive.exists():
                return
            console.print(f"Preparing fast starts of {program}, once for this user …")
            partial.unlink(missing_ok=True)
            train(f"-XX:ArchiveClassesAtExit={partial}")
            partial.touch()  # empty: this Java writes none, so do not try again
            partial.rename(archive)
    except (OSError, FalkirkError):  # a read-only cache, or a full /tmp
        return
