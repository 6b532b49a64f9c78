"""What epochs make of their records, and when the next is due."""

from __future__ import annotations

from datetime import timedelta

import pytest

from falkirk.checkpoint.epochs import (
    Abandoned,
    Completed,
    EpochRecord,
    EpochRequest,
    Epochs,
    Opened,
    decoded,
    division,
    encode,
    fresh,
)
from falkirk.checkpoint.ids import Epoch, InputPartition, Millis, Offset
from falkirk.checkpoint.records import Range
from falkirk.errors import StateError

P0, P1 = InputPartition("", "bids", "id", 0), InputPartition("", "bids", "id", 1)
MINUTE = timedelta(minutes=1)


def opened(epoch: int, clock: int = 0, ends: tuple[int, int] = (0, 0), fingerprint: str = "f") -> Opened:
    read = tuple(Range(p, Offset(0), Offset(end)) for p, end in zip((P0, P1), ends, strict=True))
    return Opened(Epoch(epoch), Millis(clock), read, (), fingerprint)


def completed(epoch: int) -> Completed:
    return Completed(Epoch(epoch), Millis(0), (), 0)


def folded(*records: EpochRecord) -> Epochs:
    epochs = Epochs()
    for offset, record in enumerate(records):
        epochs.admit(Offset(offset), record)
    return epochs


def test_an_epoch_opens_only_when_the_one_before_has_ended() -> None:
    assert folded(opened(0), opened(1)).opened == opened(0)
    assert folded(opened(0), completed(0), opened(2)).opened == opened(0)
    assert folded(opened(0), completed(0), opened(1)).opened == opened(1)
    assert folded(opened(0), completed(0), opened(1, clock=1), opened(1, clock=2)).opened == opened(1, clock=1)


def test_what_was_trimmed_lies_before_an_opening_that_counted() -> None:
    epochs = folded(opened(7), completed(7))
    assert (epochs.next, epochs.complete) == (8, opened(7))


def test_the_first_end_counts_and_that_of_another_epoch_does_not() -> None:
    gone = Abandoned(Epoch(0), Millis(0), "asked")
    assert folded(opened(0), gone, completed(0)).ended == gone
    assert folded(opened(0), completed(0), gone).ended == completed(0)
    assert folded(opened(0), completed(0), opened(1), completed(0)).open


def test_an_abandoned_epoch_leaves_the_complete_one_in_its_place() -> None:
    epochs = folded(opened(0), completed(0), opened(1), Abandoned(Epoch(1), Millis(0), "asked"))
    assert (epochs.complete, [c.opening for c in epochs.kept], epochs.next) == (opened(0), [0], 2)


def test_asking() -> None:
    ask, abandon = EpochRequest("open", Millis(0)), EpochRequest("abandon", Millis(0))
    assert not folded(abandon).abandon, "nothing is open"
    assert folded(opened(0), abandon).abandon
    assert not folded(opened(0), abandon, completed(0)).abandon, "it was too late"
    assert folded(opened(0), ask, completed(0)).asked, "asked for while one was open: another follows"
    assert not folded(ask, opened(0)).asked


@pytest.mark.parametrize(
    ("records", "every", "now", "new", "fingerprint", "due"),
    [
        ([], MINUTE, 0, 0, "f", True),
        ([], None, 0, 9, "f", False),
        ([], 10, 0, 9, "f", False),
        ([], 10, 0, 10, "f", True),
        ([opened(0)], MINUTE, 10**9, 9, "f", False),
        ([opened(0), completed(0)], MINUTE, 59_999, 9, "f", False),
        ([opened(0), completed(0)], MINUTE, 60_000, 9, "f", True),
        ([opened(0), completed(0)], MINUTE, 60_000, 0, "f", False),
        ([opened(0), completed(0)], MINUTE, 60_000, 0, "another", True),
        ([opened(0), completed(0), EpochRequest("open", Millis(0))], MINUTE, 0, 0, "f", True),
        ([opened(0), completed(0), EpochRequest("open", Millis(0))], None, 0, 0, "f", True),
    ],
)
def test_when_an_epoch_is_due(
    records: list[EpochRecord], every: timedelta | int | None, now: int, new: int, fingerprint: str, due: bool
) -> None:
    assert folded(*records).due(Millis(now), every, new, fingerprint) is due


def test_the_end_is_reached_by_an_epoch_that_has_read_all_of_it_with_the_present_definition() -> None:
    target = {P0: Offset(3), P1: Offset(4)}
    assert not folded().reaches(target, "f")
    assert not folded(opened(0, ends=(3, 4))).reaches(target, "f")
    assert not folded(opened(0, ends=(3, 3)), completed(0)).reaches(target, "f")
    assert folded(opened(0, ends=(3, 4)), completed(0)).reaches(target, "f")
    assert not folded(opened(0, ends=(3, 4)), completed(0)).reaches(target, "g")


def test_an_epoch_reads_all_or_what_is_new_since_the_last_complete_one() -> None:
    starts, ends = {P0: Offset(5), P1: Offset(0)}, {P0: Offset(90), P1: Offset(20)}
    epochs = folded(
        opened(0, ends=(50, 20)), completed(0), opened(1, ends=(80, 20)), Abandoned(Epoch(1), Millis(0), "")
    )
    assert division(epochs, "whole", starts, ends) == (
        Range(P0, Offset(5), Offset(90)),
        Range(P1, Offset(0), Offset(20)),
    )
    assert division(epochs, "new", starts, ends) == (
        Range(P0, Offset(50), Offset(90)),
        Range(P1, Offset(20), Offset(20)),
    )
    assert division(Epochs(), "new", starts, ends) == division(Epochs(), "whole", starts, ends)
    assert (fresh(epochs, ends, starts), fresh(Epochs(), ends, starts)) == (40, 105)


def test_records_are_json_and_others_are_refused() -> None:
    for record in (
        opened(3),
        completed(3),
        Abandoned(Epoch(3), Millis(1), "asked"),
        EpochRequest("abandon", Millis(2)),
    ):
        assert decoded(encode(record), Offset(0)) == record
    with pytest.raises(StateError, match="offset 7 of the epochs topic"):
        decoded(b"{}", Offset(7))
