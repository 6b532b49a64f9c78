"""The example of a backfill, as a person runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.examples.test_examples import EXAMPLES, read, run_to_the_end, write
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1800)]


def bid(auction: int, bidder: str, price: int) -> tuple[str, str]:
    return str(auction), f'{{"auction":{auction},"bidder":"{bidder}","price":{price}}}'


def test_a_run_goes_on_from_a_backfill(kafka: str, tmp_path: Path) -> None:
    write(kafka, "old-bids", bid(1, "ann", 10), bid(1, "bob", 8), bid(2, "bob", 5), bid(1, "bob", 12))
    command = [sys.executable, "-m", "falkirk", "backfill", f"{EXAMPLES / 'backfill.py'}:flow", "--brokers", kafka]
    local = ["--state-dir", str(tmp_path), "--spark", "local[2]"]
    said = subprocess.run([*command, *local], capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
    assert said.returncode == 0, said.stderr
    assert "4 input records" in said.stdout

    write(kafka, "old-bids", bid(1, "ann", 11), bid(2, "ann", 6))
    run_to_the_end("backfill.py", kafka, tmp_path)
    leading = [(key, value["bidder"], value["price"]) for key, value in read(kafka, "leading-bids") if value]
    assert sorted(leading) == [("1", "ann", 10), ("1", "bob", 12), ("2", "ann", 6), ("2", "bob", 5)]
    assert dict(read(kafka, "leaders")) == {
        "ann": {"bidder": "ann", "times": 2},
        "bob": {"bidder": "bob", "times": 2},
    }
