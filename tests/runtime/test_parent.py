"""A child ends with its parent, also if the parent was quicker."""

from __future__ import annotations

import subprocess
import sys

CHILD = "from falkirk.runtime.parent import die_with_parent; die_with_parent(); print('lives')"


def test_a_child_whose_parent_lives_lives() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.read() == "lives\n"


def test_a_child_whose_parent_has_ended_already_ends() -> None:
    with subprocess.Popen([sys.executable, "-c", f"input(); {CHILD}"], stdin=subprocess.PIPE) as child:
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.close()
    assert child.returncode == 1
