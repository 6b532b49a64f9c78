"""The tutorial is run as it is written, on a Kafka of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.ports import free_port
from tests.waiting import PATIENCE_S

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial" / "index.md"

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TUTORIAL.read_text(), re.MULTILINE | re.DOTALL)


def test_the_commands_of_the_tutorial_kill_a_worker_and_lose_nothing(tmp_path: Path) -> None:
    [flow] = blocks("python")
    [promised] = re.findall(r"^\[4000.*\]$", TUTORIAL.read_text(), re.MULTILINE)
    (tmp_path / "app.py").write_text(flow)
    port = str(free_port())
    script = "set -euo pipefail\n" + "\n".join(blocks("sh"))
    script = script.replace("falkirk kafka start", f"falkirk kafka start --port {port}").replace("9092", port)
    paths = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # The Kafka of a user who runs this test stays alone.
    environment = os.environ | {"PATH": paths, "XDG_DATA_HOME": str(tmp_path / "data")}
    try:
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_S,
            check=False,
        )
        log = tmp_path / "run.log"
        said = done.stdout + done.stderr + (log.read_text() if log.exists() else "")
        assert done.returncode == 0, said
        assert promised in done.stdout, said
        assert "killed by signal 9" in said
    finally:
        subprocess.run(["falkirk", "kafka", "stop"], env=environment, check=False)
