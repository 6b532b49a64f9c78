"""One result partition of an epoch, published exactly once by any number of copies.

Result partition p has a transactional id and a progress partition of its own. Rows go out in slices, each in one
transaction with a record of how far the epoch is:

    init ──▶ look ──▶ slice 0 + published(1) ──▶ slice 1 + published(2) ──▶ … ──▶ last slice + published(done)
     ▲        │ done, closed, or a newer epoch: end
     └────────┴── fenced by a copy, or an outcome unknown: wait for its records; if none come, begin again

    once      published(epoch, k) is visible  ⇔  slices 0..k−1 of the epoch are
    same      digest(slices 0..k−1) is the same whoever computes them

Looking first and then initialising would publish twice: what a copy commits between the two is not seen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import msgspec

from falkirk.checkpoint.digest import digest
from falkirk.checkpoint.ids import Epoch, Offset, TopicPartition
from falkirk.checkpoint.ports import Aborted, Log, Read, Unknown, Writes
from falkirk.errors import DivergenceError, StateError

HEADER = "falkirk-epoch"
"""Names, on every record of a batch part, the epoch that made it."""

WAITS = 20
"""So many pauses without a sign of the copy that fenced this one, and it is taken for dead."""


def progress_place(topic: str, result_partition: int) -> TopicPartition:
    """Where a result partition says how far it is: partition 0 of an epochs topic is that of the openings."""
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


Standing = Published | Closed
"""The last record of a progress partition says how things stand there."""

_decoder = msgspec.json.Decoder(Published | Closed)


class Outcome(Enum):
    """How publishing a result partition ended."""

    PUBLISHED = "published"
    """All rows are visible, by this copy's doing or another's."""
    ENDED = "ended"
    """The epoch was abandoned, or a newer one has begun."""


class Result(Protocol):
    """The rows of one result partition, in an order that is the same whoever computes them."""

    def slices(self) -> Iterator[Sequence[Writes]]:
        """All rows, from the first, cut the same way each time it is called."""
        ...


@dataclass(frozen=True, slots=True)
class Part:
    """One result partition of one epoch."""

    place: TopicPartition
    """Its progress partition."""
    epoch: Epoch
    opening: Offset
    """Where the record lies that opened the epoch."""

    def over(self, standing: Standing | None) -> Outcome | None:
        """Whether there is nothing left to do."""
        if standing is None or (standing.epoch, standing.opening) < (self.epoch, self.opening):
            return None
        if (standing.epoch, standing.opening) > (self.epoch, self.opening) or isinstance(standing, Closed):
            return Outcome.ENDED
        return Outcome.PUBLISHED if standing.done else None

    def published(self, standing: Standing | None) -> Published:
        """What is visible of this epoch."""
        if isinstance(standing, Published) and (standing.epoch, standing.opening) == (self.epoch, self.opening):
            return standing
        return Published(self.epoch, self.opening, 0, 0, "", done=False)


Pause = Callable[[], Awaitable[None]]
"""Waits a little."""


async def publish(log: Log, part: Part, result: Result, pause: Pause) -> Outcome:
    """Publish what is not yet visible. Safe to run in any number of copies, one after another or at once.

    `log` is under the partition's own transactional id. Raises DivergenceError where an earlier attempt computed other rows.
    """

    async def attempt(standing: Standing | None) -> Outcome:
        await _publish_from(log, part, part.published(standing), result)
        return Outcome.PUBLISHED

    return await _settle(log, part, attempt, pause)


async def close(log: Log, part: Part, pause: Pause) -> Outcome:
    """See to it that nothing more of this epoch is published here."""

    async def attempt(_: Standing | None) -> Outcome:
        await _transact(log, [], part.place, Closed(part.epoch, part.opening))
        return Outcome.ENDED

    return await _settle(log, part, attempt, pause)


async def _settle(
    log: Log, part: Part, attempt: Callable[[Standing | None], Awaitable[Outcome]], pause: Pause
) -> Outcome:
    """Initialise, look, and do what is left to do, until it is done by somebody."""
    while True:
        await log.renew()
        standing, hidden = await look(log, part.place)
        if not hidden:
            if (over := part.over(standing)) is not None:
                return over
            try:
                return await attempt(standing)
            except Aborted:
                continue
            except Unknown:
                pass
        if (over := await _wait_for_copy(log, part, standing, pause)) is not None:
            return over


async def _publish_from(log: Log, part: Part, done: Published, result: Result) -> None:
    """The slices after those that are visible, which must be the same as were computed then."""
    rows, word, number = 0, "", 0
    for number, (writes, last) in enumerate(_with_last(result.slices()), start=1):
        rows += sum(map(len, writes))
        word = hashlib.blake2b(f"{word} {digest(writes)}".encode(), digest_size=16).hexdigest()
        if number == done.slices and (rows, word) != (done.rows, done.digest):
            break
        if number > done.slices:
            await _transact(log, writes, part.place, Published(part.epoch, part.opening, number, rows, word, last))
    if number <= done.slices:  # what is visible was not the last of it
        raise DivergenceError(
            f"epoch {part.epoch} computes other rows than it did before: {done.rows} are published, which differ",
            where=f"result partition {part.place.partition - 1}, of {part.place.topic}",
            hint="a function gives another result for the same input: mend it, and abandon the epoch",
        )


def _with_last(slices: Iterator[Sequence[Writes]]) -> Iterator[tuple[Sequence[Writes], bool]]:
    """Each with whether it is the last; of nothing, an empty one."""
    before = next(slices, [])
    for following in slices:
        yield before, False
        before = following
    yield before, True


async def _transact(log: Log, writes: Sequence[Writes], place: TopicPartition, record: Standing) -> None:
    """Rows, and the record that vouches for them, together or not at all. Raises Aborted or Unknown."""
    await log.begin()
    for batch in writes:
        await log.send(batch)
    await log.send(record_of(place, record))
    await log.commit()


def record_of(place: TopicPartition, record: Standing) -> Writes:
    """A record for a progress partition, as JSON."""
    return Writes(place.topic, [place.partition], [None], [msgspec.json.encode(record)])


async def look(log: Log, place: TopicPartition) -> tuple[Standing | None, bool]:
    """How things stand up to the high watermark; and whether an open transaction hides a part of that."""
    position, mark = (await log.start([place]))[place], (await log.end([place]))[place]
    standing: Standing | None = None
    while position < mark:
        read = (await log.read_committed({place: (position, mark)}))[place]
        standing = last_standing(read) or standing
        if read.position == position:
            return standing, True
        position = read.position
    return standing, False


def last_standing(read: Read) -> Standing | None:
    """The last record of a read of a progress partition. Raises StateError where it cannot be read."""
    for record in reversed(read.records):
        if record.value is not None:
            try:
                standing: Standing = _decoder.decode(record.value)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise StateError(
                    f"the record at offset {record.offset} of a progress partition cannot be read: {error}",
                    hint="was it written by a later version of Falkirk, or by something else?",
                ) from error
            return standing
    return None


async def _wait_for_copy(log: Log, part: Part, known: Standing | None, pause: Pause) -> Outcome | None:
    """Watch, without fencing, while records come; None when none have come for a while."""
    quiet = 0
    while quiet < WAITS:
        await pause()
        standing, _ = await look(log, part.place)
        if (over := part.over(standing)) is not None:
            return over
        quiet, known = (0, standing) if standing != known else (quiet + 1, known)
    return None
