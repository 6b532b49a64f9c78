"""Records that no epoch has read and that are deleted: what is on record when a person leaves them out. No broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from falkirk.checkpoint.driver import run
from falkirk.checkpoint.epochs import Completed, EpochRecord, Epochs, Opened, OutputEnds, catch_up, encode, propose
from falkirk.checkpoint.ids import Epoch, InputPartition, Millis, Offset, TopicPartition
from falkirk.checkpoint.ports import LogRecord, Ranges, Read
from falkirk.checkpoint.records import Range
from falkirk.errors import ConfigError
from falkirk.runtime.messages.deleted import Gone, leave_out, unread_and_gone

PLACE = TopicPartition("epochs", 0)
BIDS, ASKS = (InputPartition("", "bids", "id", p) for p in range(2))
OUTPUTS = (OutputEnds("totals", "id", (Offset(7),)),)


class Log:
    """One partition. `before` is called before each record is appended."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.before: Callable[[EpochRecord], None] = lambda _: None

    async def append(self, partition: TopicPartition, record: EpochRecord) -> None:
        self.before(record)
        self.records.append(encode(record))

    async def start(self, partitions: list[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        return {PLACE: Offset(0)}

    async def end(self, partitions: list[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        return {PLACE: Offset(len(self.records))}

    async def read_committed(self, ranges: Ranges) -> Mapping[TopicPartition, Read]:
        start, end = ranges[PLACE]
        records = [LogRecord(Offset(n), None, self.records[n]) for n in range(start, end)]
        return {PLACE: Read(records=records, position=end)}


def opened(epoch: int, *reads: Range, clock: int = 1) -> Opened:
    return Opened(Epoch(epoch), Millis(clock), reads, OUTPUTS, "f", "a driver")


@pytest.fixture
def log() -> Log:
    """Epoch 0 has read bids up to 3, and asks up to 9."""
    log, epochs = Log(), Epochs()
    run(propose(log, PLACE, epochs, opened(0, Range(BIDS, Offset(0), Offset(3)), Range(ASKS, Offset(0), Offset(9)))))
    run(propose(log, PLACE, epochs, Completed(Epoch(0), Millis(2), OUTPUTS, 5)))
    return log


def known(log: Log) -> Epochs:
    epochs = Epochs()
    run(catch_up(log, PLACE, epochs))
    return epochs


def test_the_next_epoch_goes_on_behind_what_is_gone_and_is_due_when_it_was(log: Log) -> None:
    epochs = known(log)
    gone = unread_and_gone(epochs, {BIDS: Offset(5), ASKS: Offset(2)})
    assert gone == [Gone(BIDS, Offset(3), Offset(5))]
    assert leave_out(log, PLACE, epochs, gone, Millis(90), "ann@host") == 1
    after = known(log)
    assert (after.open, after.next, after.read) == (False, 2, {BIDS: 5, ASKS: 9})
    assert after.complete is not None
    assert (after.complete.clock, after.complete.driver, after.shown) == (1, "ann@host", {"totals": OUTPUTS[0]})
    assert not unread_and_gone(after, {BIDS: Offset(5), ASKS: Offset(2)})


def test_whoever_opens_an_epoch_first_counts_and_nobody_else_ends_it(log: Log) -> None:
    mine = opened(1, Range(BIDS, Offset(5), Offset(8)), clock=50)

    def driver(record: EpochRecord) -> None:
        log.before = lambda _: None
        log.records.append(encode(mine))

    log.before = driver
    with pytest.raises(ConfigError, match="epoch 1 was opened by a driver meanwhile"):
        leave_out(log, PLACE, known(log), [Gone(BIDS, Offset(3), Offset(5))], Millis(90), "ann@host")
    after = known(log)
    assert (after.opened, after.open) == (mine, True)


def test_two_who_leave_out_the_same_are_both_right(log: Log) -> None:
    gone, both = [Gone(BIDS, Offset(3), Offset(5))], [known(log), known(log)]
    assert [leave_out(log, PLACE, one, gone, Millis(90), "ann@host") for one in both] == [1, 1]
    assert known(log).next == 2
