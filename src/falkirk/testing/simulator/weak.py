"""Doubles of parts of the protocol, each with one clause missing. `weaken` says which is patched in where, and why."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from itertools import count
from types import coroutine
from typing import Any, Literal, TypeAlias

import msgspec

from falkirk.checkpoint import correction, names, pipeline, reading, rollforward, takeover, transaction
from falkirk.checkpoint.correction import Recorded
from falkirk.checkpoint.ids import Millis, Nonce, Offset, OwnerId, Step, TopicPartition
from falkirk.checkpoint.ports import Aborted, Clock, Log, Read, Replayer, Stores, Unknown, Writes
from falkirk.checkpoint.reading import Records, decoded
from falkirk.checkpoint.records import Named, Released, StepRecord, TaskRecord
from falkirk.checkpoint.tasks import ClosedStep, Owned, Phase
from falkirk.checkpoint.transaction import Fate
from falkirk.testing.simulator.log import SimLog
from falkirk.testing.simulator.points import Order, Point
from falkirk.testing.simulator.worker import Worker

Rolled: TypeAlias = Callable[[list[Owned]], object]

_recover, _let_go, _commit_steps = takeover.recover, Worker.let_go, transaction.commit_steps
_transact, _settle, _send_offsets = transaction.transact, pipeline.Pipeline.settle, SimLog.send_offsets
_read_to_marks, _roll_divisions = reading.read_to_marks, rollforward.roll_divisions


# names, releases, fences


def unclean_since_any_release(records: Sequence[tuple[Offset, TaskRecord]]) -> set[OwnerId]:
    """Owners named after the last `released`, whomever it cites."""
    last = max((i for i, (_, r) in enumerate(records) if isinstance(r, Released)), default=-1)
    return names.unclean(records[last + 1 :])


def nobody(_: Sequence[tuple[Offset, TaskRecord]]) -> set[OwnerId]:
    """No owner is to be fenced."""
    return set()


async def fence_nobody_while_waiting(*_: object) -> bool:
    """Wait on."""
    return False


async def release_nothing(*_: object) -> None:
    """Go without a word."""


async def let_go_unfinished(self: Worker, tasks: Sequence[int], *, clean: bool) -> None:
    """Say `released` of tasks that were being taken over, too."""
    under_way = [self.owned[t] for t in tasks if t in self.owned]
    early = [
        Owned(o.task, Phase.RUNNING, o.nonce, read_on=o.read_on)
        for o in under_way
        if o.phase in (Phase.FENCING, Phase.ROLLING)
    ]
    await _let_go(self, tasks, clean=clean)
    if clean and early:
        await transaction.release(self.log, early, self.mine())


async def recover_unless_revoked(
    log: Log, stores: Stores, replayer: Replayer, clock: Clock, tasks: Sequence[Owned], rolled: Rolled
) -> None:
    """Give up at the first point after a task was revoked."""
    work = _recover(log, stores, replayer, clock, tasks, lambda _: None)
    await _until(work, lambda: any(o.revoked for o in tasks))
    rolled(list(tasks))


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


async def recover_then_name(
    log: Log, stores: Stores, replayer: Replayer, clock: Clock, tasks: Sequence[Owned], rolled: Rolled
) -> None:
    """Fence, read, roll forward, and name then."""
    await _recover(log, stores, replayer, clock, tasks, lambda _: None)
    writes = [transaction.record_of(owned, Named(owned.nonce, log.owner)) for owned in tasks]
    try:
        await transaction.transact(log, writes, {owned.task.steps: Offset(0) for owned in tasks})
    except (Aborted, Unknown) as error:
        if isinstance(error, Unknown):
            await log.renew()
        for owned in tasks:
            owned.revoked = True
    rolled(list(tasks))


class _Whoever:
    """Equal to every nonce."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


def as_it_should_be(_: object) -> _Whoever:
    """The last name is whoever asks."""
    return _Whoever()


def never(*_: object) -> bool:
    """No."""
    return False


def void_when_another_is_named(owned: Owned, records: Records) -> bool:
    """Not before: the group is not asked."""
    return owned.nonce in [r.nonce for _, r in records if isinstance(r, Named)][:-1]


async def read_to_marks_whoever_is_named(
    log: Log, starts: Mapping[TopicPartition, Offset], _: Callable[[TopicPartition, Records], bool]
) -> dict[TopicPartition, Read]:
    """Read on, even where another is named."""
    return await _read_to_marks(log, starts, never)


class _Marked:
    """A log that answers `end` from what it knows."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.marks: dict[TopicPartition, Offset] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)

    async def end(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        return {p: self.marks[p] for p in partitions}


async def recover_with_early_marks(
    log: Log, stores: Stores, replayer: Replayer, clock: Clock, tasks: Sequence[Owned], rolled: Rolled
) -> None:
    """Take the high watermarks of before the fences for those of after."""
    marked = _Marked(log)
    marked.marks |= await log.end([o.task.steps for o in tasks])
    marked.marks |= await log.end([o.task.changelog for o in tasks if o.task.changelog is not None])
    await _recover(marked, stores, replayer, clock, tasks, rolled)


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
    log: Log, stores: Stores, replayer: Replayer, clock: Clock, tasks: Sequence[Owned], rolled: Rolled
) -> None:
    """Ask for the changelogs' marks when the steps have been read."""
    late = _LateChangelogMarks(log, [o.task.changelog for o in tasks if o.task.changelog is not None])
    await _recover(late, stores, replayer, clock, tasks, rolled)


async def read_everything_committed(log: Log, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Records]:
    """Only what is committed now."""
    first, marks = await log.start(partitions), await log.end(partitions)
    reads = await log.read_committed({p: (first[p], marks[p]) for p in partitions})
    return {p: decoded(reads[p]) for p in partitions}


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
    """Records alone."""
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
    """What a read_committed consumer calls the end."""
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
    """Whoever wrote it."""
    mine = step.record
    return isinstance(record, StepRecord) and (record.step, record.division) == (mine.step, mine.division)


def is_ours_by_nonce(step: ClosedStep, record: TaskRecord) -> bool:
    """Whatever it read."""
    return isinstance(record, StepRecord) and (record.step, record.nonce) == (step.record.step, step.record.nonce)


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
    """As the protocol does, with the producer made at another time, or the record looked for before the names.

    Other ownerships than those of the steps are not asked again.
    """
    if producer == "before":
        await log.renew()
    elif producer == "kept":
        await _end_with_the_old_producer(log)
    owned = {s.owned.task.steps: s.owned for s in steps}
    for other in mine:
        other.revoked = other.revoked or other.phase not in (Phase.RUNNING, Phase.RELEASING)
    reads = await _read_to_marks(log, {p: o.read_on for p, o in owned.items()}, never)
    fates = []
    for step in steps:
        records = decoded(reads[step.owned.task.steps])
        place = next((offset for offset, r in records if transaction.is_ours(step, r)), None)
        taken = transaction.taken(step.owned.nonce, records)
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


def keep_the_producer(self: SimLog) -> None:
    """After a doubt the producer may be used again."""
    self._open, self._queue = False, []


async def _end_with_the_old_producer(log: Log) -> None:
    assert isinstance(log, SimLog)
    log._open = log._sent = True
    try:
        await log.abort()
    except Unknown:
        await log.renew()


def fresh_owner_id() -> Callable[[str], OwnerId]:
    """Ids that never come again."""
    numbers = count()
    return lambda name: OwnerId(f"{name}.{next(numbers)}")


# corrections


def each_alone(steps: Sequence[Recorded]) -> list[list[Recorded]]:
    """Every step is compared by itself, corrections too."""
    return [[step] for step in steps]


def close_as_any_step(owned: Owned, owner: OwnerId, now: Millis) -> ClosedStep:
    """A correction that looks like a step of its own."""
    step = correction.close_correction(owned, owner, now)
    step.record = msgspec.structs.replace(step.record, corrects=Step(-1))
    return step


async def roll_written_along(replayer: Replayer, owned: Owned, steps: Sequence[Recorded]) -> None:
    """Roll forward, and write what is to be committed with a correction to the store at once."""
    await _roll_divisions(replayer, owned, steps)
    if owned.correction is not None:
        offset, last = steps[-1]
        store = owned.opened()
        store.write(owned.correction.changes, store.progress.at(last.step, offset + 1, 0, last.clock))


def nowhere(*_: object) -> None:
    """The store stands in no correction."""
