"""What take-overs took outlives the worker that measured it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from falkirk.checkpoint.ids import TaskId
from falkirk.checkpoint.planning import Cost, Rates, Replay, Seconds
from falkirk.runtime.worker.upkeep.rates import RateBook

STATS, PRESUMED = TaskId("stats", 0), Cost(0.01, 0.0)
TOOK = Seconds(0.2, 0.1, 0.0, 3.0)


def test_the_next_worker_of_a_folder_knows_what_the_last_one_measured(tmp_path: Path) -> None:
    RateBook(tmp_path).note(STATS, TOOK, 0, Replay(100, 0), PRESUMED)
    after = RateBook(tmp_path)
    assert after.of("bids") == Rates()
    assert after.of("stats").expect(0, Replay(50, 0), PRESUMED).replay == pytest.approx(1.5, rel=0.01)
    assert after.taken == {}


def test_rates_that_cannot_be_read_or_kept_stop_nothing(tmp_path: Path) -> None:
    for damage in (b"", b"{", b'{"stats": 7}', b"\xff"):
        (tmp_path / "rates.json").write_bytes(damage)
        assert RateBook(tmp_path).stages == {}
    book = RateBook(tmp_path / "gone")
    taken = book.note(STATS, TOOK, 0, Replay(100, 0), PRESUMED)
    assert (taken.took, taken.expected.replay) == (TOOK, 1.0)
    assert book.of("stats").replay.count == 1
    assert not os.path.lexists(tmp_path / "gone")
