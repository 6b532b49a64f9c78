"""Rows leave Kafka exactly once: for files, buckets and databases, which know nothing of Kafka's transactions.

Such a sink writes its rows to a log of the app, in the transaction of the step. So the regimes, their recovery and their
corrections decide what is committed, as for every other output. This protocol copies the committed part of one partition of
that log to an outlet, in chunks:

    chunk    the committed rows at offsets start ≤ o < end of one partition, in whole steps
    chain    chunk(0).start = 0; chunk(k+1).start = chunk(k).end
    append   a chunk becomes visible at once and as a whole, if it begins where the chain ends; otherwise it is refused
    once     every committed row is in one chunk of the chain
    kept     the log begins at an end of a chunk, and at or before the end of the chain

Any number of workers may publish the same partition, because they copy the same log and `append` decides between them. So
nobody is named or fenced here. A worker that has lost the task without knowing it (a zombie) can do no more than append the
next chunk, which is the right one, or be refused. A worker that is killed leaves a chain of whole chunks: the next one looks
where it ends.

To be exact, an outlet needs no more than a comparison and a write in one: a file that is created only if it does not exist; a
database row with the position, updated in the transaction of the rows; a request with the partition and `start` as its
idempotency key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.errors import FalkirkError

RowsT = TypeVar("RowsT")


class Trimmed(FalkirkError):
    """The log begins after the wanted offset: another worker has published what was there."""


@dataclass(frozen=True, slots=True)
class Chunk(Generic[RowsT]):
    """Whole steps of one task."""

    place: TopicPartition
    start: Offset
    end: Offset
    """Where the next chunk begins."""
    rows: RowsT
    more: bool = False
    """Whether further steps were committed already when this chunk was read."""


class CommittedRows(Protocol[RowsT]):
    """The log that a sink's rows are written to."""

    async def begin(self, place: TopicPartition) -> Offset:
        """The first offset still kept."""
        ...

    async def read(self, place: TopicPartition, start: Offset) -> Chunk[RowsT] | None:
        """The next whole steps; None if none is committed. Raises Trimmed."""
        ...

    async def trim(self, place: TopicPartition, below: Offset) -> None:
        """Delete what is below. It may fail: a later call deletes it."""
        ...


class Outlet(Protocol[RowsT]):
    """Where the rows go. Each call may raise AwayError: then it is not known whether it had an effect."""

    async def end(self, place: TopicPartition, begin: Offset) -> Offset:
        """Where the chain of the partition ends. `begin` is an end of a chunk, or 0: what is before it need not be known."""
        ...

    async def append(self, chunk: Chunk[RowsT]) -> bool:
        """Make a chunk visible, as a whole, if the chain ends where it starts. False: it does not."""
        ...


class Turn(NamedTuple):
    """What one turn of a publisher gives to the next."""

    at: Offset | None
    """Where the chain ends; None if that must be looked up."""
    more: bool
    """Whether the next turn is due now."""


async def publish(
    log: CommittedRows[RowsT], outlet: Outlet[RowsT], place: TopicPartition, at: Offset | None = None
) -> Turn:
    """One turn: publish the next chunk of a partition, if there is one. A worker that is stopped at any call, or gets an
    error from it, can begin again with the same `at`, or with None.

    1  look where the chain ends, unless the turn before has said so
    2  read the next whole steps that are committed
    3  append them; if that is refused, another worker has appended them: look again
    4  trim the log below the chunk's end. Only now, since the chunk must be visible before its rows may go
    """
    try:
        if at is None:
            at = await outlet.end(place, await log.begin(place))
        chunk = await log.read(place, at)
    except Trimmed:
        return Turn(None, more=True)
    if chunk is None:
        return Turn(at, more=False)
    if not await outlet.append(chunk):
        return Turn(None, more=True)
    await log.trim(place, chunk.end)
    return Turn(chunk.end, chunk.more)
