"""`make test` and `make proof` together run every test."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

ROOT = Path(__file__).parents[1]

Tests = Mapping[str, Set[str]]
"""Tests by their ids, with the names of their markers."""


def collected() -> Tests:
    """All tests. Collecting takes long, so it is done once, and the selections are computed."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.marks",
        "-p",
        "no:cacheprovider",
        "-n0",
        "--collect-only",
        "-qq",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('["')]
    return {test: frozenset(marks) for test, marks in lines}


def selections(target: str) -> list[list[str]]:
    """The arguments of every pytest that this target of the Makefile runs."""
    environment = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}
    said = subprocess.run(["make", "-n", target], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return [shlex.split(line.partition(" -m pytest ")[2]) for line in said.stdout.splitlines() if " -m pytest " in line]


class Arguments(argparse.ArgumentParser):
    """Those of pytest whose effect on the selection is known here."""

    def __init__(self) -> None:
        super().__init__(allow_abbrev=False)
        self.add_argument("-m", dest="marks", default="")
        self.add_argument("paths", nargs="*")
        for name in ("-n", "--max-worker-restart", "--dist", "--durations"):
            self.add_argument(name)
        self.add_argument("--no-loadscope-reorder", action="store_true")

    def error(self, message: str) -> None:  # type: ignore[override]
        """Another argument may select too: say here what it does."""
        raise ValueError(message)


def selected(tests: Tests, arguments: Sequence[str]) -> set[str]:
    """The tests that pytest runs with these arguments."""
    given = Arguments().parse_args(arguments)
    wanted = Expression.compile(given.marks) if given.marks else None
    return {
        test
        for test, marks in tests.items()
        if (wanted is None or wanted.evaluate(lambda name, /, **_: name in marks))  # noqa: B023  # called at once
        and (not given.paths or any(test.startswith((f"{path}/", f"{path}::")) for path in given.paths))
    }


@pytest.mark.slow
def test_every_test_is_run_by_make_test_or_by_make_proof() -> None:
    everything = collected()
    files = {Path(found).relative_to(ROOT).as_posix() for found in (ROOT / "tests").rglob("test_*.py")}
    assert files - {test.partition("::")[0] for test in everything} == set()
    test, proof = (
        set[str]().union(*(selected(everything, one) for one in selections(name))) for name in ("test", "proof")
    )
    assert test
    assert proof
    assert everything.keys() - test - proof == set()


def test_a_selection_is_made_by_markers_and_folders() -> None:
    tests: Tests = {"tests/a/test_x.py::one": {"slow"}, "tests/a/test_x.py::two": {"kafka"}, "tests/b.py::three": set()}
    assert selected(tests, ["-n", "3"]) == tests.keys()
    assert selected(tests, ["-m", "not slow", "-n", "3", "--dist", "loadfile"]) == tests.keys() - {
        "tests/a/test_x.py::one"
    }
    assert selected(tests, ["-m", "slow or kafka"]) == {"tests/a/test_x.py::one", "tests/a/test_x.py::two"}
    assert selected(tests, ["-m", "not slow", "tests/a", "tests/none"]) == {"tests/a/test_x.py::two"}
    assert selected(tests, ["tests/b.py"]) == {"tests/b.py::three"}


@pytest.mark.parametrize("more", [["-k", "x"], ["--ignore=tests/a"], ["--deselect", "tests/b.py::three"]])
def test_an_argument_that_is_not_known_to_select_nothing_is_refused(more: list[str]) -> None:
    with pytest.raises(ValueError, match="unrecognized arguments"):
        selected({}, ["-m", "slow", *more])
