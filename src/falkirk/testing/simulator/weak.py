"""Doubles of parts of the protocol, each with one clause missing. `weaken` says where each is patched in, and why."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from itertools import count
from types import coroutine
from typing import Any, Literal

import msgspec

from falkirk.checkpoint import correction, names, pipeline, reading, rollforward, takeover, transaction
from falkirk.checkpoint.correction import Recorded
from falkirk.checkpoint.ids import Millis, Nonce, Offset, OwnerId, Step, TopicPartition
from falkirk.checkpoint.ports import Aborted, Clock, Log, Replayer, Stores, Unknown, Writes
from falkirk.checkpoint.reading import Records, decoded
from falkirk.checkpoint.records import Named, Released, StepRecord, TaskRecord
from falkirk.checkpoint.tasks import ClosedStep, Owned, Phase
from falkirk.checkpoint.transaction import Fate
from falkirk.testing.simulator.log import BROKE, SimLog
from falkirk.testing.simulator.points import Order, Point
from falkirk.testing.simulator.worker import Worker

_fence, _recover, _let_go, _commit_steps = takeover.fence, takeover.recover, Worker.let_go, transaction.commit_steps
_transact, _settle, _send_offsets = transaction.transact, pipeline.Pipeline.settle, SimLog.send_offsets
_commit, _add = SimLog.commit, names.Ownerships.add
_read_to_marks, _roll_divisions = reading.read_to_marks, rollforward.roll_divisions


# names, releases, fences


def add_and_forget_at_any_release(self: names.Ownerships, record: TaskRecord) -> None:
    """At a `released`, forget all earlier owners, whichever it cites."""
    if isinstance(record, Released):
        self._owners.clear()
    _add(self, record)


def nobody(_: names.Ownerships) -> set[OwnerId]:
    """No owner is to be fenced."""
    return set()


async def fence_nobody_while_waiting(*_: object) -> bool:
    """Keep waiting."""
    return False


async def release_nothing(*_: object) -> None:
    """Leave without a record."""


async def let_go_unfinished(self: Worker, tasks: Sequence[int], *, clean: bool) -> None:
    """Write `released` also for tasks that were being taken over."""
    under_way = [self.owned[t] for t in tasks if t in self.owned]
    early = [
        Owned(o.task, Phase.RUNNING, o.nonce, read_on=o.read_on)
        for o in under_way
        if o.phase in (Phase.FENCING, Phase.ROLLING)
    ]
    await _let_go(self, tasks, clean=clean)
    if clean and early:
        await transaction.release(self.log, early, self.mine())


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


async def name_nothing(_: Log, tasks: Sequence[Owned], __: Sequence[Owned], fresh: Callable[[], Nonce]) -> bool:
    """Take over without naming, for now."""
    for owned in tasks:
        owned.enter(Phase.NAMING)
        owned.nonce = fresh()
        owned.enter(Phase.FENCING)
    return True


async def name_at_last(log: Log, owned: Owned) -> bool:
    """A task is named only when it is fenced, read and rolled forward."""
    if owned.phase is not Phase.ROLLING:
        return False
    writes = [transaction.record_of(owned, Named(owned.nonce, log.owner))]
    try:
        await transaction.transact(log, writes, {owned.task.steps: Offset(0)})
    except (Aborted, Unknown) as error:
        if isinstance(error, Unknown):
            await log.renew()
        return False
    owned.enter(Phase.RUNNING)
    return True


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


def void_when_another_is_named(owned: Owned, records: Records) -> bool:
    """Not before: the group is not asked."""
    return owned.nonce in [r.nonce for _, r in records if isinstance(r, Named)][:-1]


async def read_to_marks_whoever_is_named(
    log: Log, starts: Mapping[TopicPartition, Offset], _: Callable[[TopicPartition, Records], bool]
) -> dict[TopicPartition, reading.Tail]:
    """Keep reading, even if another worker is named."""
    return await _read_to_marks(log, starts, never)


class _Marked:
    """A log that answers `end` from memory."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.marks: dict[TopicPartition, Offset] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)

    async def end(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        return {p: self.marks[p] for p in partitions}


_early: dict[Nonce, _Marked] = {}


async def fence_when_marked(log: Log, tasks: Sequence[Owned]) -> None:
    """Ask for the high watermarks, then fence."""
    for owned in tasks:
        marked = _early[owned.nonce] = _Marked(log)
        marked.marks |= await log.end([owned.task.steps])
        if owned.task.changelog is not None:
            marked.marks |= await log.end([owned.task.changelog])
    await _fence(log, tasks)


async def recover_with_early_marks(log: Log, stores: Stores, replayer: Replayer, clock: Clock, owned: Owned) -> None:
    """Use the high watermarks from before the fences for those after."""
    await _recover(_early.pop(owned.nonce), stores, replayer, clock, owned)


class _LateChangelogMarks(_Marked):
    """Changes the marks of changelogs that it has given, when the steps have been read."""

    def __init__(self, log: Log, changelogs: Sequence[TopicPartition]) -> None:
        super().__init__(log)
        self.changelogs = list(changelogs)

    async def end(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        found = dict(await self.log.end(partitions))
        if list(partitions) == self.changelogs:
            self.marks = found
        return found

    async def start(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        if set(partitions) <= set(self.changelogs):
            self.marks.update(await self.log.end(partitions))
        return await self.log.start(partitions)


async def recover_with_late_changelog_marks(
    log: Log, stores: Stores, replayer: Replayer, clock: Clock, owned: Owned
) -> None:
    """Ask for the changelog's mark when the steps have been read."""
    late = _LateChangelogMarks(log, [] if owned.task.changelog is None else [owned.task.changelog])
    await _recover(late, stores, replayer, clock, owned)


async def read_ownerships_committed(
    log: Log, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, names.Ownerships]:
    """Only what is committed now."""
    first, marks = await log.start(partitions), await log.end(partitions)
    reads = await log.read_committed({p: (first[p], marks[p]) for p in partitions})
    found = {p: names.Ownerships() for p in partitions}
    for p, ownerships in found.items():
        for _, record in decoded(reads[p]):
            ownerships.add(record)
    return found


# transactions


async def send_no_offsets(self: SimLog, offsets: Mapping[TopicPartition, Offset]) -> None:
    """Nothing is sent, as librdkafka does with an empty list."""


async def send_offsets_as_nobody(self: SimLog, offsets: Mapping[TopicPartition, Offset]) -> None:
    """As a client without membership."""
    self.member = None
    await _send_offsets(self, offsets)


async def transact_without_offsets(
    log: Log, writes: Sequence[Writes], _: Mapping[TopicPartition, Offset]
) -> Mapping[TopicPartition, Offset]:
    """Only the records."""
    await log.begin()
    for batch in writes:
        await log.send(batch)
    return await log.commit()


async def commit_steps_applied_first(log: Log, steps: Sequence[ClosedStep], mine: Sequence[Owned]) -> list[Fate]:
    """The stores take the overlays before the transaction."""
    for step in steps:
        transaction.apply(step, step.owned.read_on, {})
    return await _commit_steps(log, steps, mine)


async def last_stable_offsets(self: SimLog, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Offset]:
    """What a read_committed consumer takes for the end."""
    return {tp: Offset(self.broker[tp].stable) for tp in partitions}


def settle_keeping_staged(self: pipeline.Pipeline, steps: Sequence[ClosedStep], fates: Sequence[Fate]) -> list[Owned]:
    """What was staged on an aborted step stays."""
    staged = dict(self.staged)
    rewind = _settle(self, steps, fates)
    self.staged |= {t: s for t, s in staged.items() if s.owned.phase is Phase.RUNNING}
    return rewind


def now(_: StepRecord | None, clock: Millis) -> Millis:
    """The host's clock."""
    return clock


# doubt


def is_ours_by_division(step: ClosedStep, record: TaskRecord) -> bool:
    """No matter who wrote it."""
    mine = step.record
    return isinstance(record, StepRecord) and (record.step, record.division) == (mine.step, mine.division)


async def resolve_by_trying_again(log: Log, steps: Sequence[ClosedStep], _: Sequence[Owned]) -> list[Fate]:
    """Take what is in doubt for aborted."""
    await log.renew()
    return [Fate.ABORTED] * len(steps)


async def resolve(
    log: Log,
    steps: Sequence[ClosedStep],
    mine: Sequence[Owned],
    *,
    producer: Literal["before", "after", "kept"] = "before",
    found_first: bool = False,
) -> list[Fate]:
    """As the protocol does, but with the producer made at another time, or the record read before the names.

    Only the ownerships of the steps are checked again.
    """
    if producer == "before":
        await log.renew()
    elif producer == "kept":
        await _end_with_the_old_producer(log)
    owned = {s.owned.task.steps: s.owned for s in steps}
    for other in mine:
        other.renewed = other.renewed or other.phase not in (Phase.RUNNING, Phase.RELEASING)
    reads = await _read_to_marks(log, {p: o.read_on for p, o in owned.items()}, never)
    fates = []
    for step in steps:
        records = reads[step.owned.task.steps].records
        place = next((offset for offset, r in records if transaction.is_ours(step, r)), None)
        taken = transaction.taken_over(step.owned.nonce, records)
        if place is not None and (found_first or not taken):
            transaction.apply(step, Offset(place + 1), {})
            fates.append(Fate.COMMITTED)
        else:
            fates.append(Fate.LOST if taken else Fate.ABORTED)
            step.owned.lost = taken
        step.owned.read_on = reads[step.owned.task.steps].position
    if producer == "after":
        await log.renew()
    return fates


def trust_the_return(self: SimLog) -> None:
    """What was acknowledged is over, whether or not a connection broke meanwhile."""
    self._open = False


async def commit_and_renew_blindly(self: SimLog) -> Mapping[TopicPartition, Offset]:
    """If a connection broke: make a new producer and continue, no matter who is named last."""
    try:
        return await _commit(self)
    except Unknown as doubt:
        if str(doubt) != BROKE:
            raise
        await self.renew()
        return dict(self._written)


def keep_the_producer(self: SimLog) -> None:
    """After a doubt the same producer may be used again."""
    self._open, self._queue = False, []


async def _end_with_the_old_producer(log: Log) -> None:
    assert isinstance(log, SimLog)
    log._open = log._sent = True
    try:
        await log.abort()
    except Unknown:
        await log.renew()


def fresh_owner_id() -> Callable[[str], OwnerId]:
    """Ids that are never used again."""
    numbers = count()
    return lambda name: OwnerId(f"{name}.{next(numbers)}")


# corrections


def each_alone(steps: Sequence[Recorded]) -> list[list[Recorded]]:
    """Every step is compared by itself, corrections too."""
    return [[step] for step in steps]


def close_as_any_step(owned: Owned, owner: OwnerId, now: Millis) -> ClosedStep:
    """A correction that looks like a separate step."""
    step = correction.close_correction(owned, owner, now)
    step.record = msgspec.structs.replace(step.record, corrects=Step(-1))
    return step


async def roll_written_along(replayer: Replayer, owned: Owned, steps: Sequence[Recorded]) -> None:
    """Roll forward, and at once write to the store what is to be committed with a correction."""
    await _roll_divisions(replayer, owned, steps)
    if owned.correction is not None:
        offset, last = steps[-1]
        store = owned.opened()
        store.write(owned.correction.changes, store.progress.at(last.step, offset + 1, 0, last.clock))


def nowhere(*_: object) -> None:
    """The store is in no correction."""
