"""Doubles of transactions, doubts and corrections, each with one clause missing. See `weak`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from falkirk.checkpoint import correction, pipeline, reading, transaction
from falkirk.checkpoint.ids import Millis, Offset, OwnerId, Step, TopicPartition
from falkirk.checkpoint.ports import Log, Replayer, Unknown
from falkirk.checkpoint.records import RecordedStep, StepRecord, TaskRecord
from falkirk.checkpoint.regimes import lazy
from falkirk.checkpoint.tasks import ClosedStep, Owned, Phase
from falkirk.checkpoint.transaction import Fate
from falkirk.testing.simulator.cluster.log import BROKE, SimLog
from falkirk.testing.simulator.weakened.weak import never

_commit_steps, _settle, _send_offsets = transaction.commit_steps, pipeline.Pipeline.settle, SimLog.send_offsets
_commit, _read_to_marks, _roll_divisions = SimLog.commit, reading.read_to_marks, lazy.roll_divisions


# transactions


async def send_no_offsets(self: SimLog, offsets: Mapping[TopicPartition, Offset]) -> None:
    """Nothing is sent, as librdkafka does with an empty list."""


async def send_offsets_as_nobody(self: SimLog, offsets: Mapping[TopicPartition, Offset]) -> None:
    """As a client without membership."""
    self.member = None
    await _send_offsets(self, offsets)


async def commit_steps_applied_first(log: Log, steps: Sequence[ClosedStep], mine: Sequence[Owned]) -> list[Fate]:
    """The stores take the overlays before the transaction."""
    for step in steps:
        transaction.apply(step, step.owned.read_on, {})
    return await _commit_steps(log, steps, mine)


async def last_stable_offsets(self: SimLog, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Offset]:
    """What a read_committed consumer takes for the end."""
    return {tp: Offset(self.broker[tp].stable) for tp in partitions}


async def ends_at_a_former_leader(
    self: SimLog, partitions: Sequence[TopicPartition]
) -> Mapping[TopicPartition, Offset]:
    """High watermarks of a broker that lacks the last record, and the marker of its transaction."""
    return {tp: Offset(max(self.broker[tp].start, self.broker[tp].end - 2)) for tp in partitions}


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


# corrections


def each_alone(steps: Sequence[RecordedStep]) -> list[list[RecordedStep]]:
    """Every step is compared by itself, corrections too."""
    return [[step] for step in steps]


def close_as_any_step(owned: Owned, owner: OwnerId, now: Millis) -> ClosedStep:
    """A correction that looks like a separate step."""
    step = correction.close_correction(owned, owner, now)
    step.record = msgspec.structs.replace(step.record, corrects=Step(-1))
    return step


async def roll_written_along(replayer: Replayer, owned: Owned, steps: Sequence[RecordedStep]) -> None:
    """Roll forward, and at once write to the store what is to be committed with a correction."""
    await _roll_divisions(replayer, owned, steps)
    if owned.correction is not None:
        offset, last = steps[-1]
        store = owned.opened()
        store.write(owned.correction.changes, store.progress.at(last.step, offset + 1, 0, last.clock))


def nowhere(*_: object) -> None:
    """The store is in no correction."""
