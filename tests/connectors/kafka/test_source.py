"""A reader of inputs hands over the records of a partition in the order of their offsets, or stops."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.connectors.kafka.reading.source import check_order
from falkirk.errors import SourceError
from falkirk.testing.memory import Record

BIDS = TopicPartition("bids", 0)


def check(offsets: Sequence[int]) -> None:
    check_order(BIDS, Offset(20), [Record(0, offset, None, b"v") for offset in offsets])


@pytest.mark.parametrize("offsets", [[20], [20, 21, 22], [25, 26], [20, 22, 30], [21, 23]])
def test_records_whose_offsets_rise_pass(offsets: list[int]) -> None:
    check(offsets)


@pytest.mark.parametrize(
    ("offsets", "back", "read"),
    [
        pytest.param([0], 0, 20, id="before the position"),
        pytest.param([19, 20, 21], 19, 20, id="just before it, and on"),
        pytest.param([0, 1, 40], 0, 20, id="and beyond it"),
        pytest.param([20, 22, 0, 1], 0, 23, id="within a run"),
        pytest.param([20, 0, 1, 60], 0, 21, id="within a run that goes on beyond"),
        pytest.param([20, 21, 21], 21, 22, id="the same twice"),
    ],
)  # fmt: skip
def test_records_that_go_back_are_refused(offsets: list[int], back: int, read: int) -> None:
    with pytest.raises(SourceError, match=f"went back to offset {back}, after the app had read it up to offset {read}"):
        check(offsets)
