"""The epochs of a batch part, folded from its opening records.

    opened(0) · completed(0) · opened(1) · opened(1)′ · abandoned(1) · asked · opened(2) · …
                                           ▲ by another driver, a moment later: does not count

    opening(n) = the first opened(n) in log order that follows the end of n − 1
    end(n)     = the first completed(n) or abandoned(n) after it

Anyone may append at any time. Only what counts by these rules has an effect, and every reader finds the same. So a driver
appends what it proposes, reads back what counts, and obeys that; a second driver does no harm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, NamedTuple, Protocol

import msgspec

from falkirk.checkpoint.ids import Epoch, InputPartition, Millis, Offset, TopicPartition
from falkirk.checkpoint.ports import Ranges, Read, Unknown
from falkirk.checkpoint.records import Division, Range
from falkirk.errors import StateError

KEPT = 100
"""How many complete epochs are kept, for people and for readers of complete epochs."""


class OutputEnds(msgspec.Struct, frozen=True, array_like=True):
    """Where the partitions of an output ended at some moment."""

    topic: str
    topic_id: str
    ends: tuple[Offset, ...]


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    """What the epoch reads, recorded before it writes anything; and where its outputs ended then."""

    epoch: Epoch
    clock: Millis
    """The only time its operators see."""
    division: Division
    outputs: tuple[OutputEnds, ...]
    fingerprint: str
    """Of the batch part's definition."""
    driver: str = ""
    """Host and process, for people."""
    adds: bool = False
    """Whether its rows are added to those that are there (history="new"). Older records do not say it."""
    stages: tuple[str, ...] = ()
    """Of a backfill: the stages whose states it makes. Empty: an older record, which does not say it."""


class Completed(msgspec.Struct, frozen=True, tag="completed"):
    """Every result partition is published: the whole epoch is below these ends."""

    epoch: Epoch
    clock: Millis
    outputs: tuple[OutputEnds, ...]
    rows: int


class Abandoned(msgspec.Struct, frozen=True, tag="abandoned"):
    """The epoch ends incomplete. Nothing more of it is published; what was published stays."""

    epoch: Epoch
    clock: Millis
    reason: str


class EpochRequest(msgspec.Struct, frozen=True, tag="asked"):
    """A person asks for an epoch, or to abandon the open one."""

    what: Literal["open", "abandon"]
    clock: Millis


EpochRecord = Opened | Completed | Abandoned | EpochRequest

_decoder = msgspec.json.Decoder(Opened | Completed | Abandoned | EpochRequest)


class Complete(NamedTuple):
    """A complete epoch."""

    opened: Opened
    completed: Completed
    opening: Offset
    adds: bool = False
    """Whether it has read no more than what followed the complete epoch before it, so that the rows of both count."""


@dataclass(slots=True)
class Epochs:
    """What the records so far say.

    >>> epochs = Epochs()
    >>> first, second = (Opened(Epoch(0), Millis(t), (), (), "f") for t in (1, 2))
    >>> epochs.admit(Offset(0), first), epochs.admit(Offset(1), second), epochs.open
    (True, False, True)
    >>> epochs.admit(Offset(2), Completed(Epoch(0), Millis(3), (), 0)), epochs.open, epochs.next
    (True, False, 1)
    """

    opened: Opened | None = None
    """The newest, in any state."""
    opening: Offset = Offset(-1)
    """The offset of its record: the epoch's identity for its workers."""
    ended: Completed | Abandoned | None = None
    kept: deque[Complete] = field(default_factory=lambda: deque(maxlen=KEPT))
    """The newest complete epochs. Nobody needs what lies below the opening of the first one."""
    first: Opened | None = None
    """The first known epoch."""
    shown: dict[str, OutputEnds] = field(default_factory=dict)
    """By output: from where on rows may be visible that an epoch over the whole history must replace. They are of the newest
    complete epoch that wrote it, of those before it that it has only added to, and of epochs abandoned after these, or before
    any was complete."""
    asked: bool = False
    """An epoch was asked for after the newest opened."""
    abandon: bool = False
    """The open epoch must be abandoned."""
    read_on: Offset = Offset(-1)
    """Where to read on; −1: at the beginning."""

    @property
    def open(self) -> bool:
        """Is an epoch open?"""
        return self.opened is not None and self.ended is None

    @property
    def next(self) -> Epoch:
        """The number that the next epoch will have."""
        return Epoch(0 if self.opened is None else self.opened.epoch + 1)

    @property
    def complete(self) -> Opened | None:
        """The newest complete epoch."""
        return self.kept[-1].opened if self.kept else None

    @property
    def first_is_gone(self) -> bool:
        """Whether the record of the very first epoch is deleted."""
        return self.first is not None and self.first.epoch > 0

    @property
    def read(self) -> dict[InputPartition, Offset]:
        """Where the newest complete epoch stopped reading."""
        return {} if self.complete is None else {r.partition: r.end for r in self.complete.division}

    def reaches(self, target: Mapping[InputPartition, Offset], fingerprint: str) -> bool:
        """Whether the newest complete epoch, of this definition, has read up to these offsets.

        >>> Epochs().reaches({}, "f")
        False
        """
        complete, read = self.complete, self.read
        return (
            complete is not None
            and complete.fingerprint == fingerprint
            and all(read.get(p, 0) >= end for p, end in target.items())
        )

    def admit(self, offset: Offset, record: EpochRecord) -> bool:
        """Take the next record; returns whether it counts."""
        match record:
            case Opened():
                # Trimmed records lie before an opening that counted.
                counts = self.opened is None or (self.ended is not None and record.epoch == self.next)
                if counts:
                    self.opened, self.opening, self.ended = record, offset, None
                    self.first = self.first or record
                    # A topic that was made again holds no earlier rows.
                    same = {o.topic: o for o in self.shown.values() if o.topic_id == _id_of(record, o.topic)}
                    self.shown |= {o.topic: o for o in record.outputs} | same
                    self.asked = self.abandon = False
            case Completed() | Abandoned():
                counts = self.opened is not None and self.ended is None and record.epoch == self.opened.epoch
                if counts and self.opened is not None:
                    self.ended, self.abandon = record, False
                    if isinstance(record, Completed):
                        adds = self.complete is not None and reads_on(self.complete, self.opened)
                        self.kept.append(Complete(self.opened, record, self.opening, adds))
                        self.shown = _visible(self.kept)
            case EpochRequest(what="open"):
                counts = self.asked = True
            case _:
                counts = self.abandon = self.open
        return counts

    def due(self, now: Millis, every: timedelta | int | None, fresh: int, fingerprint: str) -> bool:
        """Whether to open an epoch: `fresh` records have come since the last. If nothing came and nothing changed, the result
        would be the same: it is computed only on request."""
        if self.open:
            return False
        if self.asked:
            return True
        if every is None:
            return False
        if self.complete is not None and not fresh and fingerprint == self.complete.fingerprint:
            return False
        if isinstance(every, int):
            return fresh >= every
        return self.opened is None or now - self.opened.clock >= every / timedelta(milliseconds=1)


def reads_on(before: Opened, after: Opened) -> bool:
    """Whether an epoch reads nothing again of what the one before it has read."""
    starts = {r.partition: r.start for r in after.division}
    return bool(starts) and all(starts.get(r.partition, r.end) >= r.end for r in before.division)


def _visible(kept: Sequence[Complete]) -> dict[str, OutputEnds]:
    """See `Epochs.shown`. Of the kept ones alone: another driver, who reads a trimmed log, must find the same."""
    shown: dict[str, OutputEnds] = {}
    for n, complete in enumerate(kept):
        outputs = {o.topic: o for o in complete.opened.outputs}
        if n == 0 < complete.opened.epoch and (complete.opened.adds or (len(kept) > 1 and kept[1].adds)):
            # This one may have added, too, to epochs that are not known any more, or that were abandoned.
            outputs = {t: msgspec.structs.replace(o, ends=(Offset(0),) * len(o.ends)) for t, o in outputs.items()}
        elif n > 0 and complete.adds:
            outputs |= {t: shown[t] for t, o in outputs.items() if t in shown and shown[t].topic_id == o.topic_id}
        shown |= outputs
    return shown


def _id_of(opened: Opened, topic: str) -> str | None:
    return next((o.topic_id for o in opened.outputs if o.topic == topic), None)


class EpochLog(Protocol):
    """The topic that holds the epochs of one batch part, as a driver sees it."""

    async def append(self, partition: TopicPartition, record: EpochRecord) -> None:
        """Add a record, outside any transaction. Raises Unknown if it may or may not arrive, now or later."""
        ...

    async def start(self, partitions: list[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """The first offset still kept in each partition."""
        ...

    async def end(self, partitions: list[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """High watermarks."""
        ...

    async def read_committed(self, ranges: Ranges) -> Mapping[TopicPartition, Read]:
        """See `falkirk.checkpoint.ports.Log`."""
        ...


async def catch_up(log: EpochLog, place: TopicPartition, epochs: Epochs) -> None:
    """Admit every record up to the high watermark. Raises StateError for what cannot be read."""
    if epochs.read_on < 0:
        epochs.read_on = (await log.start([place]))[place]
    mark = (await log.end([place]))[place]
    while epochs.read_on < mark:
        read = (await log.read_committed({place: (epochs.read_on, mark)}))[place]
        for record in read.records:
            if record.value is not None:
                epochs.admit(record.offset, decoded(record.value, record.offset))
        epochs.read_on = read.position


async def propose(log: EpochLog, place: TopicPartition, epochs: Epochs, record: EpochRecord) -> None:
    """Append a record, and read back what counts: this record, or an earlier one, or neither yet."""
    with suppress(Unknown):
        await log.append(place, record)
    await catch_up(log, place, epochs)


def encode(record: EpochRecord) -> bytes:
    """The record as JSON, so that Kafka's own tools can show it."""
    return msgspec.json.encode(record)


def decoded(data: bytes, offset: Offset) -> EpochRecord:
    """The record in `data`. Raises StateError if none is."""
    try:
        record: EpochRecord = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StateError(
            f"the record at offset {offset} of the epochs topic cannot be read: {error}",
            hint="was it written by a later version of Falkirk, or by something else?",
        ) from error
    return record


def division(
    epochs: Epochs,
    history: Literal["whole", "new"],
    starts: Mapping[InputPartition, Offset],
    ends: Mapping[InputPartition, Offset],
) -> Division:
    """What the next epoch reads: from the start, or from the end of the last complete one, to the present ends."""
    read = {} if history == "whole" else epochs.read
    return tuple(Range(p, min(read.get(p, start), ends[p]), ends[p]) for p, start in sorted(starts.items()))


def fresh(epochs: Epochs, ends: Mapping[InputPartition, Offset], starts: Mapping[InputPartition, Offset]) -> int:
    """How many offsets the last complete epoch has not read."""
    read = epochs.read
    return sum(max(0, end - read.get(p, starts[p])) for p, end in ends.items())
