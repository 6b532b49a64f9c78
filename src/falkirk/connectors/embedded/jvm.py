"""The JVM that runs Kafka's programs, made to start fast: on a laptop a broker starts often, and seldom runs long.

Measured on two cores, after a crash (two JVMs): 9.3 s of processor time with Java's defaults, 5.4 s with the flags
below, 3.0 s if the classes also come from an archive.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from falkirk.connectors.class_archive import archive_flags, archive_path, make_archive
from falkirk.connectors.java import Java
from falkirk.errors import FalkirkError

FLAGS_VARIABLE = "KAFKA_JVM_PERFORMANCE_OPTS"  # its name in Kafka's own scripts
_FAST_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@dataclass(frozen=True, slots=True)
class Jvm:
    """Which Java, with which jars and flags."""

    java: Java
    jars: Path
    flags: tuple[str, ...] = ()

    def command(self, heap: str, logging: str = "log4j2.properties") -> list[str]:
        """The command line before the name of the class to run.

        >>> jvm = Jvm(Java(Path("java"), 21, "PATH"), Path("jars"), ("-XX:+UseSerialGC",))
        >>> " ".join(jvm.command("128m"))
        'java -Xmx128m -XX:+ExitOnOutOfMemoryError -XX:+UseSerialGC -Dlog4j2.configurationFile=log4j2.properties -cp jars/*'
        """
        # A broker out of memory limps on and its clients hang; a dead one says so.
        options = [f"-Xmx{heap}", "-XX:+ExitOnOutOfMemoryError", *self.flags, f"-Dlog4j2.configurationFile={logging}"]
        return [str(self.java.executable), *options, "-cp", f"{self.jars}/*"]


def fast_jvm(java: Java, jars: Path, console: Console, train: Callable[[Jvm], None]) -> Jvm:
    """A JVM with flags for a fast start, or with those of KAFKA_JVM_PERFORMANCE_OPTS instead.

    It takes its classes from an archive. The first call makes it: `train` runs a broker from start to end, with the JVM
    passed to it. A Java that cannot write one starts without.
    """
    given = os.environ.get(FLAGS_VARIABLE)
    jvm = Jvm(java, jars, _FAST_START if given is None else tuple(shlex.split(given)))
    archive = archive_path(jars, java)
    with suppress(OSError, FalkirkError):  # a read-only cache, or a full /tmp: it starts anyway
        make_archive(archive, java, "Kafka", console, lambda flags: train(replace(jvm, flags=(*jvm.flags, *flags))))
    return replace(jvm, flags=(*jvm.flags, *archive_flags(archive)))
