from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S


def falkirk(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "falkirk", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.slow
@pytest.mark.kafka
def test_start_status_and_stop_from_the_command_line(tmp_path: Path) -> None:
    def kafka(command: str, *more: str) -> subprocess.CompletedProcess[str]:
        return falkirk("kafka", command, "--data-dir", str(tmp_path), *more)

    port = "19917"
    try:
        started = kafka("start", "--port", port)
        assert (started.returncode, started.stdout) == (0, f"127.0.0.1:{port}\n"), started.stderr

        again = kafka("start")
        assert (again.returncode, again.stdout) == (0, f"127.0.0.1:{port}\n")
        assert "Kafka already runs (pid " in again.stderr

        elsewhere = kafka("start", "--port", "19918")
        assert elsewhere.returncode == 3
        assert f"Kafka already runs on this data folder, on port {port} and not 19918" in elsewhere.stderr

        status = kafka("status")
        assert status.returncode == 0
        for line in ("running   yes, pid ", f"address   127.0.0.1:{port}", "version   4.3.0", "topics    0"):
            assert line in status.stdout
    finally:
        stopped = kafka("stop")
    assert (stopped.returncode, stopped.stderr) == (0, "stopped\n")
    assert kafka("stop").stderr == "it was not running\n"
    status = kafka("status")
    assert (status.returncode, status.stdout.splitlines()[0]) == (3, "running   no")


@pytest.mark.parametrize("port", ["0", "65536", "many"])
def test_a_port_that_is_none_is_refused(tmp_path: Path, port: str) -> None:
    answer = falkirk("kafka", "start", "--data-dir", str(tmp_path), "--port", port)
    assert answer.returncode == 2
    assert "Invalid value for '--port'" in answer.stderr
