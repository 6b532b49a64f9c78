"""Fast starts of Spark's JVMs on this host: their classes come from an archive, which `falkirk spark prepare` makes.

Measured on two cores, a session and its first three jobs: 13.0 s, and 13.0 s of processor time in the JVM, without the
archive; 6.8 s and 6.7 s with it. A driver of batch parts, and each executor on this host, starts sooner by as much.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pyspark
from rich.console import Console

from falkirk.connectors.class_archive import archive_flags, archive_path, cache_folder, make_archive
from falkirk.connectors.embedded.trouble import disk_error
from falkirk.connectors.java import Java, find_java
from falkirk.errors import ConfigError

OPTIONS = "SPARK_SUBMIT_OPTS"
"""Spark's variable with flags of the JVM of a session."""

PATIENCE = 1800.0
"""Seconds that the session which makes the archive may take: about 20 on two free cores, and minutes on busy ones."""

QUIET = ("-Xlog:cds*=off", "-Xlog:class+path=off")
"""A JVM whose classpath the user has changed cannot use the archive. It starts without, and need not say so."""


def flags(java: Java) -> tuple[str, ...]:
    """For a JVM of Spark's on this host: nothing changes without an archive."""
    found = archive_flags(_archive(java))
    return (*found, *QUIET) if found else ()


def use(java: Java) -> None:
    """Let the session that this process makes next start fast."""
    given = os.environ.get(OPTIONS, "")
    if "-XX:SharedArchiveFile" not in given and "-XX:ArchiveClassesAtExit" not in given:
        os.environ[OPTIONS] = " ".join(filter(None, [given, *map(shlex.quote, flags(java))]))


def prepare(console: Console) -> bool:
    """Make the archive, once: whether there is one now. Raises ConfigError if there is no Java or Spark does not start here,
    DiskError if the cache cannot be written."""
    java = find_java("Spark")
    archive = _archive(java)
    try:
        make_archive(archive, java, "Spark", console, _train)
    except OSError as error:
        raise disk_error(error, archive.parent, "the cache of Java's classes cannot be written") from error
    return bool(archive_flags(archive))


def _archive(java: Java) -> Path:
    """Named after what a JVM compares: the jars, where they are, and when they were installed."""
    jars = Path(pyspark.__file__).parent / "jars"
    one = min(jars.glob("*.jar"))
    told = hashlib.sha256(f"{one} {one.stat().st_mtime_ns}".encode()).hexdigest()[:8]
    return archive_path(cache_folder() / f"spark-{pyspark.__version__}-{told}", java)


def _train(flags: tuple[str, ...]) -> None:
    """Run a session once, to load its classes."""
    given = os.environ.get(OPTIONS, "")
    # In a process group of its own, so that the JVM which it has started ends with it.
    training = subprocess.Popen(
        [sys.executable, "-m", "falkirk.connectors.spark.training"],
        env={**os.environ, OPTIONS: f"{given} {shlex.join(flags)}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, said = training.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired as error:
        raise ConfigError(
            f"Spark has not run its first jobs within {PATIENCE:g} s", hint="repeat it when the machine has less to do"
        ) from error
    finally:
        if training.poll() is None:
            os.killpg(training.pid, signal.SIGKILL)
            training.wait()
    if training.returncode != 0:
        raise ConfigError("Spark does not start here", where=said.strip().splitlines()[-1] if said else "")
