"""How the process of a worker, a driver or a gateway ends, whatever threads are still in it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.waiting import PATIENCE_S

PROCESS = """
import threading
from falkirk.cli.ending import last_act
from falkirk.errors import SourceError

threading.Thread(target=threading.Event().wait).start()
print("begun")
with last_act():
    {act}
print("not reached")
"""


@pytest.mark.parametrize(
    ("act", "code", "says"),
    [
        ("pass", 0, ""),
        ("raise SourceError('bids are gone', hint='restore them')", 4, "error: bids are gone\n  to do: restore them\n"),
        ("1 / 0", 70, "ZeroDivisionError: division by zero\n"),
    ],
)
def test_it_ends_with_the_code_of_its_error_which_is_printed_last(act: str, code: int, says: str) -> None:
    command = [sys.executable, "-c", PROCESS.format(act=act)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert (ended.returncode, ended.stdout) == (code, "begun\n")
    assert ended.stderr.endswith(says)
    assert bool(ended.stderr) == bool(says)
    assert ("Traceback" in ended.stderr) == (code == 70)
