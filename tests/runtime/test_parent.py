"""A child ends with its parent, also if the parent was quicker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

CHILD = "from falkirk.runtime.processes.parent import die_with_parent; die_with_parent(); print('lives')"


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


PARENT = """
import subprocess, sys
from falkirk.runtime.processes.parent import command
print(subprocess.Popen(command("slow"), stdin=subprocess.PIPE).pid, flush=True)
sys.stdin.read()
"""
SLOW = """
import pathlib, time
pathlib.Path("importing").touch()
time.sleep(300)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the closed pipe tells, once it is read")
def test_a_child_whose_imports_take_their_time_ends_with_its_parent(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    python = [sys.executable, "-c", PARENT]
    with subprocess.Popen(python, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        while not (tmp_path / "importing").exists():
            assert child.is_running()
        parent.kill()
    psutil.wait_procs([child], timeout=30)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
