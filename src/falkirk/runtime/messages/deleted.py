"""Records that were deleted before any epoch of a batch part read them (`history="new"`), and how a person leaves them out.

    the newest complete epoch read up to n      first offset of the partition > n    ⇒    the next epoch is not opened

An epoch that read from n on could never be completed, and neither could any after it. To leave the records out is a
decision, so it is an epoch of its own on record: it reads nothing, and begins and ends where the partition begins now. The
next epoch goes on from there.

    completed(n) · opened(n+1): [first, first) · completed(n+1) · opened(n+2): [first, …)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from falkirk.checkpoint.driver import run
from falkirk.checkpoint.epochs import Completed, EpochLog, Epochs, Opened, catch_up, propose
from falkirk.checkpoint.ids import Epoch, InputPartition, Millis, Offset, TopicPartition
from falkirk.checkpoint.records import Range
from falkirk.errors import ConfigError, SourceError
from falkirk.wording import counted, listed


class Gone(NamedTuple):
    """Offsets of one partition that no epoch has read, and that do not exist any more: start ≤ offset < end."""

    partition: InputPartition
    start: Offset
    end: Offset

    def __str__(self) -> str:
        place = self.partition.place
        return f"{place.topic}[{place.partition}] offsets {self.start} to {self.end - 1}"


def unread_and_gone(epochs: Epochs, first: Mapping[InputPartition, Offset]) -> list[Gone]:
    """What the newest complete epoch has left and is deleted. `first`: the first offset of each partition.

    >>> bids, epochs = InputPartition("", "bids", "id", 0), Epochs()
    >>> opened = Opened(Epoch(0), Millis(0), (Range(bids, Offset(0), Offset(3)),), (), "f")
    >>> epochs.admit(Offset(0), opened), epochs.admit(Offset(1), Completed(Epoch(0), Millis(0), (), 0))
    (True, True)
    >>> [str(gone) for gone in unread_and_gone(epochs, {bids: Offset(5)})], unread_and_gone(epochs, {bids: Offset(3)})
    (['bids[0] offsets 3 to 4'], [])
    """
    return [
        Gone(partition, at, first[partition])
        for partition, at in sorted(epochs.read.items())
        if at < first.get(partition, at)
    ]


def gone_of(opened: Opened, first: Mapping[InputPartition, Offset]) -> list[Gone]:
    """What an epoch is to read and is deleted. `first`: the first offset of each partition."""
    return [
        Gone(r.partition, r.start, min(r.end, first[r.partition]))
        for r in opened.division
        if r.start < min(r.end, first.get(r.partition, r.start))
    ]


def gone_error(app: str, stage: str, gone: Sequence[Gone]) -> SourceError:
    """Why no epoch can be opened."""
    return SourceError(
        f"records were deleted before an epoch of {stage!r} read them: {offsets(gone)}",
        where=listed(gone),
        hint=f"what was deleted is lost. To go on with what is left: {skipping(app, stage)}; and let the topic's retention "
        "outlast the time between two epochs",
    )


def skipping(app: str, stage: str) -> str:
    """The command that leaves out what is deleted."""
    return f"falkirk epoch {app} {stage} --skip-deleted"


def offsets(gone: Iterable[Gone]) -> str:
    """How many."""
    return counted(sum(one.end - one.start for one in gone), "offset")


def check_history(stage: str, epochs: Epochs) -> None:
    """Raises ConfigError if a record can not be left out: no epoch has begun to read, one is open, or each reads all."""
    if epochs.open and epochs.opened is not None:
        raise ConfigError(
            f"epoch {epochs.opened.epoch} of {stage!r} is open",
            hint="wait until it is complete; if it cannot be completed, end it first, with --abandon",
        )
    if epochs.complete is None:
        raise ConfigError(
            f"no epoch of {stage!r} is complete", hint="the first one reads what is there: nothing is in its way"
        )
    if len(epochs.kept) > 1 and not epochs.kept[-1].adds:  # those before it may be of another history=
        raise ConfigError(
            f"the newest epoch of {stage!r} has read the whole history, and not what is new",
            hint='the next one reads what is there: nothing is in its way. If the flow has history="new" only since then, '
            "run an epoch over the whole history once more",
        )


def leave_out(
    log: EpochLog, openings: TopicPartition, epochs: Epochs, gone: Sequence[Gone], now: Millis, who: str
) -> Epoch:
    """Put it on record, and return the epoch's number. Raises ConfigError if a driver, or another person, was first."""
    newest = epochs.kept[-1]
    ends = {**epochs.read, **{one.partition: one.end for one in gone}}
    division = tuple(Range(partition, at, at) for partition, at in sorted(ends.items()))
    # It writes nothing, so what is visible in its outputs stays what the newest epoch has left there. Nor does it begin
    # another interval of `every=`: the next epoch is due when it would have been.
    was = newest.opened
    opened = Opened(epochs.next, was.clock, division, was.outputs, was.fingerprint, who, adds=True)
    completed = Completed(opened.epoch, now, newest.completed.outputs, 0)
    run(propose(log, openings, epochs, opened))
    if epochs.opened == opened and epochs.open:
        run(propose(log, openings, epochs, completed))
    run(catch_up(log, openings, epochs))
    if opened not in (complete.opened for complete in epochs.kept):
        raise ConfigError(
            f"epoch {opened.epoch} was opened by {epochs.opened.driver if epochs.opened else 'another'} meanwhile",
            hint="give the command again, if the error is still there",
        )
    return opened.epoch
