"""One result partition of an epoch, published exactly once by any number of copies.

Result partition p has its own transactional id and progress partition. Rows are sent in slices, each in one transaction
with a record of how far the epoch is:

    skip ──▶ init ──▶ look ──▶ slice 0 + published(1) ──▶ slice 1 + published(2) ──▶ … ──▶ last slice + published(done)
     ▲                 │ done, closed, or a newer epoch: end
     └─────────────────┴── stopped: fenced by a copy, or unknown outcome. Wait while records come, then begin again

    once      published(epoch, k) is visible  ⇔  slices 0..k−1 of the epoch are
    same      digest(slices 0..k−1) is the same, no matter which copy computes them
    progress  as long as a copy runs, another slice becomes visible after a finite time

To look first and then initialise would publish twice: what a copy commits in between is not seen.

A copy cannot tell a slow copy from a dead one, and ends its work when it initialises. So progress needs two rules: a
copy computes the slices that are visible already (skip) before it initialises; and each time it is stopped, it waits
twice as long before it initialises again. So the time without a fence grows until it is enough for a slice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Protocol

import msgspec

from falkirk.checkpoint.digest import digest
from falkirk.checkpoint.ids import Epoch, Offset, TopicPartition
from falkirk.checkpoint.ports import Aborted, Fenced, Log, Read, Unknown, Writes
from falkirk.errors import ClusterError, DivergenceError, FalkirkError, StateError

HEADER = "falkirk-epoch"
"""On every record of a batch part: the epoch that made it."""

WAITS = 20
"""After so many pauses without a record, the copy that fenced this one counts as dead, the first time."""

FAILURES = 8
"""How often in a row a slice's transaction may fail without a fence. The pauses between double: a minute in all."""


def progress_place(topic: str, result_partition: int) -> TopicPartition:
    """The progress partition of a result partition. Partition 0 of an epochs topic holds the openings."""
    return TopicPartition(topic, 1 + result_partition)


class Published(msgspec.Struct, frozen=True, tag="published"):
    """So many slices of this epoch are visible."""

    epoch: Epoch
    opening: Offset
    slices: int
    rows: int
    digest: str
    """Of these slices."""
    done: bool


class Closed(msgspec.Struct, frozen=True, tag="closed"):
    """The epoch is abandoned: nothing more of it may be published here."""

    epoch: Epoch
    opening: Offset


PartitionProgress = Published | Closed
"""The last record of a progress partition: its state."""

_decoder = msgspec.json.Decoder(Published | Closed)


class Outcome(Enum):
    """How publishing a result partition ended."""

    PUBLISHED = "published"
    """All rows are visible, by this copy or another."""
    ENDED = "ended"
    """The epoch was abandoned, or a newer one has begun."""


class Result(Protocol):
    """The rows of one result partition, in the same order for each copy that computes them."""

    @property
    def slices(self) -> int:
        """How many there are, at least one."""
        ...

    async def slice(self, number: int) -> Sequence[Writes]:
        """The rows of slice `number`, counted from 0: the same each time and for every copy."""
        ...


@dataclass(frozen=True, slots=True)
class Part:
    """One result partition of one epoch."""

    place: TopicPartition
    """Its progress partition."""
    epoch: Epoch
    opening: Offset
    """The offset of the epoch's opening record."""

    def __str__(self) -> str:
        return f"epoch {self.epoch}, result partition {self.number} of {self.place.topic}"

    @property
    def number(self) -> int:
        """The partition's number: the inverse of `progress_place`."""
        return self.place.partition - 1

    def over(self, progress: PartitionProgress | None) -> Outcome | None:
        """Whether there is nothing left to do."""
        if progress is None or (progress.epoch, progress.opening) < (self.epoch, self.opening):
            return None
        if (progress.epoch, progress.opening) > (self.epoch, self.opening) or isinstance(progress, Closed):
            return Outcome.ENDED
        return Outcome.PUBLISHED if progress.done else None

    def published(self, progress: PartitionProgress | None) -> Published:
        """What is visible of this epoch."""
        if isinstance(progress, Published) and (progress.epoch, progress.opening) == (self.epoch, self.opening):
            return progress
        return Published(self.epoch, self.opening, 0, 0, "", done=False)


Pause = Callable[[str], Awaitable[None]]
"""Waits a little, and may say why."""


async def publish(log: Log, part: Part, result: Result, pause: Pause) -> Outcome:
    """Publish what is not yet visible. Safe to run in any number of copies, one after another or at once.

    `log` uses the partition's own transactional id. Raises DivergenceError if an earlier attempt computed other rows, and
    FalkirkError if the cluster refuses a slice.
    """
    checked = _CheckedSlices(part, result)

    async def attempt(progress: PartitionProgress | None) -> Outcome:
        await _publish_from(log, part, checked, part.published(progress))
        return Outcome.PUBLISHED

    async def skip(progress: PartitionProgress | None) -> None:
        if part.over(progress) is None:
            await checked.check(part.published(progress))

    return await _settle(log, part, skip, attempt, pause)


async def close(log: Log, part: Part, pause: Pause) -> Outcome:
    """Make sure that nothing more of this epoch is published here."""

    async def attempt(_: PartitionProgress | None) -> Outcome:
        await _transact(log, part, [], Closed(part.epoch, part.opening))
        return Outcome.ENDED

    async def skip(_: PartitionProgress | None) -> None:
        pass

    return await _settle(log, part, skip, attempt, pause)


class _CheckedSlices:
    """A result, and the record for each number of its first slices: computed once, even if publishing begins again."""

    def __init__(self, part: Part, result: Result) -> None:
        self._part, self._result = part, result
        self.slices = result.slices
        self._records = [part.published(None)]

    async def slice(self, number: int) -> tuple[Sequence[Writes], Published]:
        """A slice, and its record. The slices before it have been computed."""
        writes = await self._result.slice(number)
        if number + 1 == len(self._records):
            before = self._records[number]
            word = hashlib.blake2b(f"{before.digest} {digest(writes)}".encode(), digest_size=16).hexdigest()
            rows, last = before.rows + sum(map(len, writes)), number + 1 == self.slices
            self._records.append(Published(before.epoch, before.opening, number + 1, rows, word, done=last))
        return writes, self._records[number + 1]

    async def check(self, visible: Published) -> None:
        """Compute the slices that are visible. Raises DivergenceError if they differ."""
        while len(self._records) <= min(visible.slices, self.slices):
            await self.slice(len(self._records) - 1)
        if visible not in self._records[visible.slices : visible.slices + 1]:
            part = self._part
            raise DivergenceError(
                f"epoch {part.epoch} computes other rows than it did before: {visible.rows} are published, which differ",
                where=f"result partition {part.number}, of {part.place.topic}",
                hint="a function gives another result for the same input: fix it, and abandon the epoch",
            )


@dataclass(slots=True)
class _Backoff:
    """What has stopped a copy, and so how long it waits."""

    part: Part
    patience: int = WAITS // 2
    failures: int = 0
    """In a row, at this progress:"""
    progress: PartitionProgress | None = None

    def pauses(self, error: Aborted | Unknown, progress: PartitionProgress | None) -> int:
        """How long to wait for records of another copy before initialising again. Raises ClusterError if no other copy runs
        and a transaction has failed too often."""
        if isinstance(error, Fenced):
            self.patience *= 2
            return self.patience
        self.failures = 1 if progress != self.progress else self.failures + 1
        self.progress = progress
        if self.failures > FAILURES:
            raise ClusterError(
                f"a transaction has failed {self.failures} times in a row: {error}",
                where=f"{self.part}, slice {self.part.published(progress).slices}",
                hint="the brokers' logs may say more; run again when the cause is gone, the epoch goes on where it is",
            )
        return int(2 ** (self.failures - 1))


async def _settle(
    log: Log,
    part: Part,
    skip: Callable[[PartitionProgress | None], Awaitable[None]],
    attempt: Callable[[PartitionProgress | None], Awaitable[Outcome]],
    pause: Pause,
) -> Outcome:
    """Skip, initialise, look, and do the rest, until this copy or another is done."""
    backoff, pauses, why = _Backoff(part), 0, "an earlier copy may still be publishing"
    progress: PartitionProgress | None = None
    while True:
        progress = await _watch(log, part, progress, skip, pauses, partial(pause, f"{part} waits: {why}"))
        if (over := part.over(progress)) is not None:
            return over
        await log.renew()
        progress, hidden = await look(log, part.place, marked=True)
        if (over := part.over(progress)) is not None and not hidden:
            return over
        try:
            if hidden:
                raise Fenced("another copy has a transaction open")
            return await attempt(progress)
        except (Aborted, Unknown) as error:
            progress, _ = await look(log, part.place)
            pauses, why = backoff.pauses(error, progress), str(error)


async def _watch(
    log: Log,
    part: Part,
    known: PartitionProgress | None,
    skip: Callable[[PartitionProgress | None], Awaitable[None]],
    pauses: int,
    pause: Callable[[], Awaitable[None]],
) -> PartitionProgress | None:
    """Compute what becomes visible, and fence nobody, until nothing new comes for so many pauses. The progress then."""
    quiet = 0
    while True:
        progress, _ = await look(log, part.place)
        await skip(progress)
        quiet, known = (quiet + 1, known) if progress == known else (0, progress)
        if quiet > pauses or part.over(known) is not None:
            return known
        await pause()


async def _publish_from(log: Log, part: Part, checked: _CheckedSlices, visible: Published) -> None:
    """Publish what is not visible yet."""
    await checked.check(visible)
    for number in range(visible.slices, checked.slices):
        await _transact(log, part, *await checked.slice(number))


async def _transact(log: Log, part: Part, writes: Sequence[Writes], record: PartitionProgress) -> None:
    """Rows and their progress record, together or not at all. Raises Aborted or Unknown, and FalkirkError if the cluster
    refuses the rows."""
    try:
        await log.begin()
        for batch in writes:
            await log.send(batch)
        await log.send(record_of(part.place, record))
        await log.commit()
    except FalkirkError as error:
        slices = f", slice {record.slices - 1}" if isinstance(record, Published) else ""
        error.where = f"{part}{slices}, {error.where}".removesuffix(", ")
        raise


def record_of(place: TopicPartition, record: PartitionProgress) -> Writes:
    """A record for a progress partition, as JSON."""
    return Writes(place.topic, [place.partition], [None], [msgspec.json.encode(record)])


async def look(log: Log, place: TopicPartition, *, marked: bool = False) -> tuple[PartitionProgress | None, bool]:
    """The progress up to the high watermark; and whether an open transaction hides a part of it. `marked`: it is to be all
    progress, even if the broker that is asked has lost the partition to another."""
    ends = await (log.mark if marked else log.end)([place])
    position, mark = (await log.start([place]))[place], ends[place]
    progress: PartitionProgress | None = None
    while position < mark:
        read = (await log.read_committed({place: (position, mark)}))[place]
        progress = last_progress(read) or progress
        if read.position == position:
            return progress, True
        position = read.position
    return progress, False


def last_progress(read: Read) -> PartitionProgress | None:
    """The last record of a read of a progress partition. Raises StateError if it cannot be read."""
    for record in reversed(read.records):
        if record.value is not None:
            try:
                progress: PartitionProgress = _decoder.decode(record.value)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise StateError(
                    f"the record at offset {record.offset} of a progress partition cannot be read: {error}",
                    hint="was it written by a later version of Falkirk, or by something else?",
                ) from error
            return progress
    return None
