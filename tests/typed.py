"""What mypy says of a program that a user might write.

A line that ends in `# E: CODE` is one that mypy must refuse with this error code; it must accept every other line.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def check(program: str, folder: Path) -> None:
    """Raises AssertionError, with mypy's output, unless mypy refuses exactly the lines that are marked."""
    file = folder / "program.py"
    file.write_text(program)
    # The project's own settings: they are strict, and `make lint` has filled the cache.
    mypy = [sys.executable, "-m", "mypy", "--no-error-summary", "--show-error-codes", str(file)]
    done = subprocess.run(mypy, cwd=ROOT, capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    refused = {(int(line), code) for line, code in re.findall(r"program\.py:(\d+): error: .*\[([\w-]+)\]", done.stdout)}
    marked = enumerate(program.splitlines(), 1)
    wanted = {(line, found[1]) for line, text in marked if (found := re.search(r"# E: ([\w-]+)$", text))}
    assert refused == wanted, (
        f"refused, but not marked: {refused - wanted}; accepted: {wanted - refused}\n{done.stdout}"
    )
