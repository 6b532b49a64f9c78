from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from falkirk.connectors.java import find_java
from falkirk.connectors.spark import fast_start
from falkirk.errors import ConfigError


def test_without_an_archive_nothing_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FALKIRK_CACHE", str(tmp_path))
    monkeypatch.setenv(fast_start.OPTIONS, "-Xss4m")
    fast_start.use(find_java())
    assert fast_start.os.environ[fast_start.OPTIONS] == "-Xss4m"
    assert fast_start.flags(find_java()) == ()


def test_flags_are_added_once_to_those_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FALKIRK_CACHE", str(tmp_path / "a folder"))
    (tmp_path / "a folder").mkdir()
    fast_start._archive(find_java()).write_bytes(b"classes")
    monkeypatch.setenv(fast_start.OPTIONS, "-Xss4m")
    for _ in range(2):
        fast_start.use(find_java())
    assert shlex.split(fast_start.os.environ[fast_start.OPTIONS]) == ["-Xss4m", *fast_start.flags(find_java())]
    assert fast_start.flags(find_java())[0] == f"-XX:SharedArchiveFile={fast_start._archive(find_java())}"


def test_an_archive_that_cannot_be_read_is_not_spoken_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a JVM prints would come between a script's output and its reader."""
    monkeypatch.setenv("FALKIRK_CACHE", str(tmp_path))
    fast_start._archive(find_java()).write_bytes(b"no archive")
    java = find_java().executable
    done = subprocess.run(
        [java, *fast_start.flags(find_java()), "-version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    assert "warning" not in done.stderr


def test_a_spark_that_hangs_is_an_error_and_leaves_neither_a_process_nor_an_archive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FALKIRK_CACHE", str(tmp_path))
    monkeypatch.setattr(fast_start, "PATIENCE", 0.2)
    with pytest.raises(ConfigError, match=r"Spark has not run its first jobs within 0\.2 s"):
        fast_start.prepare(Console(quiet=True))
    assert not fast_start.archive_flags(fast_start._archive(find_java()))
    assert not [p for p in psutil.Process().children() if "falkirk.connectors.spark.training" in p.cmdline()]
