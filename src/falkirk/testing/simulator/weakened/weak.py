"""Doubles of parts of the protocol, each with one clause missing. `weaken` says where each is patched in, and why."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from types import coroutine
from typing import Any

from falkirk.checkpoint import ownerships, reading, takeover, transaction
from falkirk.checkpoint.ids import Nonce, Offset, OwnerId, TopicPartition
from falkirk.checkpoint.ports import Aborted, Clock, Log, Replayer, Stores, Unknown
from falkirk.checkpoint.reading import Records, decoded
from falkirk.checkpoint.records import Named, Released, TaskRecord
from falkirk.checkpoint.tasks import Owned, Phase
from falkirk.checkpoint.worker import core
from falkirk.testing.simulator.points import Order, Point

_fence, _recover, _releasable = takeover.fence, takeover.recover, core.releasable
_add, _read_to_marks = ownerships.Ownerships.add, reading.read_to_marks


# names, releases, fences


def add_and_forget_at_any_release(self: ownerships.Ownerships, record: TaskRecord) -> None:
    """At a `released`, forget all earlier owners, whichever it cites."""
    if isinstance(record, Released):
        self._owners.clear()
    _add(self, record)


def nobody(_: ownerships.Ownerships) -> set[OwnerId]:
    """No owner is to be fenced."""
    return set()


async def fence_nobody_while_waiting(*_: object) -> bool:
    """Keep waiting."""
    return False


async def release_nothing(*_: object) -> None:
    """Leave without a record."""


def releasable_unfinished(taken: Sequence[Owned]) -> list[Owned]:
    """`released` speaks also of tasks that were being taken over."""
    early = [
        Owned(o.task, Phase.RUNNING, o.nonce, read_on=o.read_on)
        for o in taken
        if o.phase in (Phase.FENCING, Phase.ROLLING, Phase.ROLLED)
    ]
    return _releasable(taken) + early


async def recover_unless_revoked(log: Log, stores: Stores, replayer: Replayer, clock: Clock, owned: Owned) -> None:
    """Give up at the first point after the task was revoked."""
    await _until(_recover(log, stores, replayer, clock, owned), lambda: owned.revoked)


@coroutine
def _until(work: Coroutine[Any, Any, None], stop: Callable[[], bool]) -> Generator[Point, Order, None]:
    order: Order | None = None
    while True:
        try:
            point = work.send(order)
        except StopIteration:
            return
        order = yield point
        if stop():
            work.close()
            return


# taking over


async def name_nothing(
    _: Log, tasks: Sequence[Owned], __: Sequence[Owned], fresh: Callable[[], Nonce], ___: str = ""
) -> None:
    """Take over without naming, for now."""
    for owned in tasks:
        owned.enter(Phase.NAMING)
        owned.nonce = fresh()
        owned.enter(Phase.FENCING)


async def name_at_last(log: Log, owned: Owned) -> None:
    """A task is named only when it is fenced, read and rolled forward."""
    if owned.phase is not Phase.ROLLED:
        return
    writes = [transaction.record_of(owned, Named(owned.nonce, log.owner))]
    try:
        await transaction.transact(log, writes, {owned.task.steps: Offset(0)})
    except (Aborted, Unknown) as error:
        if isinstance(error, Unknown):
            await log.renew()
        return
    owned.enter(Phase.RUNNING)


class _Whoever:
    """Equal to every nonce."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


def as_it_should_be(_: object) -> _Whoever:
    """The last name is always the asker's."""
    return _Whoever()


def never(*_: object) -> bool:
    """No."""
    return False


def failed_when_another_is_named(owned: Owned, records: Records) -> bool:
    """Not before: the group is not asked."""
    return owned.nonce in [r.nonce for _, r in records if isinstance(r, Named)][:-1]


async def read_to_marks_whoever_is_named(
    log: Log, starts: Mapping[TopicPartition, Offset], _: Callable[[TopicPartition, Records], bool]
) -> dict[TopicPartition, reading.Tail]:
    """Keep reading, even if another worker is named."""
    return await _read_to_marks(log, starts, never)


class _Marked:
    """A log that answers `mark` from memory."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.marks: dict[TopicPartition, Offset] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)

    async def mark(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        return {p: self.marks[p] for p in partitions}


_early: dict[Nonce, _Marked] = {}


async def fence_when_marked(log: Log, tasks: Sequence[Owned]) -> None:
    """Ask for the high watermarks, then fence."""
    for owned in tasks:
        marked = _early[owned.nonce] = _Marked(log)
        marked.marks |= await log.mark([owned.task.steps])
        if owned.task.recovery.log_partitions:
            marked.marks |= await log.mark(owned.task.recovery.log_partitions)
    await _fence(log, tasks)


async def recover_with_early_marks(log: Log, stores: Stores, replayer: Replayer, clock: Clock, owned: Owned) -> None:
    """Use the high watermarks from before the fences for those after."""
    await _recover(_early.pop(owned.nonce), stores, replayer, clock, owned)


async def read_ownerships_committed(
    log: Log, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, ownerships.Ownerships]:
    """Only what is committed now."""
    first, marks = await log.start(partitions), await log.mark(partitions)
    reads = await log.read_committed({p: (first[p], marks[p]) for p in partitions})
    found = {p: ownerships.Ownerships() for p in partitions}
    for p, owned in found.items():
        for _, record in decoded(reads[p]):
            owned.add(record)
    return found
