"""The first thing anybody tries: `falkirk dev` on nothing, a line written, a count read, Ctrl-C."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S

from falkirk.connectors.embedded import EmbeddedKafka

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def test_a_first_flow_by_hand(tmp_path: Path) -> None:
    said = tmp_path / "said"
    command = [sys.executable, "-m", "falkirk", "dev", f"{EXAMPLES / 'word_count.py'}:flow"]
    with said.open("w") as out:
        dev = subprocess.Popen(command, cwd=tmp_path, stdout=out, stderr=out)
    try:
        brokers = waited_for(said, r"Kafka at (\S+)")
        assert "created topic lines" in said.read_text()
        topic(brokers, "write", "lines", said="to be or not to be\n")
        waited_for_topic(tmp_path, brokers, "word-counts", 4)
        dev.send_signal(signal.SIGINT)
        assert dev.wait(PATIENCE_S) == 0, said.read_text()
    finally:
        dev.kill()
        dev.wait()
    assert EmbeddedKafka(tmp_path / ".falkirk" / "kafka").running() is None


def waited_for(said: Path, pattern: str) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while (found := re.search(pattern, said.read_text())) is None:
        assert time.monotonic() < deadline, said.read_text()
        time.sleep(0.1)
    return found[1]


def topic(brokers: str, *arguments: str, said: str) -> None:
    command = [sys.executable, str(EXAMPLES / "topic.py"), *arguments, "--brokers", brokers]
    subprocess.run(command, input=said, text=True, check=True, timeout=PATIENCE_S)


def waited_for_topic(folder: Path, brokers: str, name: str, lines: int) -> None:
    """Until topic.py has read the counts of the line."""
    found = folder / "found"
    with found.open("w") as out:
        command = [sys.executable, "-u", str(EXAMPLES / "topic.py"), "read", name, "--brokers", brokers]
        reader = subprocess.Popen(command, stdout=out)
    deadline = time.monotonic() + PATIENCE_S
    try:
        while len(found.read_text().splitlines()) < lines:
            assert time.monotonic() < deadline, found.read_text()
            time.sleep(0.1)
    finally:
        reader.kill()
        reader.wait()
    assert sorted(found.read_text().splitlines()) == [
        'be\t{"word":"be","count":2}',
        'not\t{"word":"not","count":1}',
        'or\t{"word":"or","count":1}',
        'to\t{"word":"to","count":2}',
    ]
