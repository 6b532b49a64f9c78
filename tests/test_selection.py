"""`make test` and `make proof` together run every test."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def collected(*selection: str) -> set[str]:
    """The ids of the tests that pytest would run."""
    command = [sys.executable, "-m", "pytest", *selection, "-p", "no:cacheprovider", "-n0", "--collect-only", "-q"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {line for line in done.stdout.splitlines() if "::" in line}


def selections(target: str) -> list[list[str]]:
    """The arguments of every pytest that this target of the Makefile runs."""
    environment = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}
    said = subprocess.run(["make", "-n", target], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return [shlex.split(line.partition(" -m pytest ")[2]) for line in said.stdout.splitlines() if " -m pytest " in line]


@pytest.mark.slow
@pytest.mark.timeout(900)  # everything is collected five times, by one process beside others
def test_every_test_is_run_by_make_test_or_by_make_proof() -> None:
    everything = collected()
    files = {Path(found).relative_to(ROOT).as_posix() for found in (ROOT / "tests").rglob("test_*.py")}
    assert files - {test.partition("::")[0] for test in everything} == set()
    test, proof = (set[str]().union(*(collected(*one) for one in selections(name))) for name in ("test", "proof"))
    assert test
    assert proof
    assert everything - test - proof == set()
