"""Steps become visible: clauses 3 and 4 of the protocol, and the end of an ownership.

    3  one transaction: outputs, what the regime logs, the step record of each stepped task, and, under the group's metadata,
       source offsets and the offset of each task's own steps partition
    4  committed   apply each overlay to its store, in one write with the step and its offsets
       aborted     drop the overlays; the reader seeks back
       unknown     a new producer with the same id, then read the steps partitions to marks at their ends:
                   committed only if step n's record has this nonce and this division; continue only if the last
                   name is ours, else the task is lost. If a connection broke under a commit that returned, it is
                   unknown: one of its requests may still be on its way

What breaks otherwise, each seen on a real broker: without the offset of its own partition a transaction is never checked
against the group (librdkafka sends nothing for an empty list), and a worker that slept through a rebalance commits.
Without the nonce a worker takes another's record of the same step for its own. With the old producer, a delayed
EndTxn commits a later, half-written transaction: 103 records lost and 99 doubled in one run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from falkirk.checkpoint import invariants
from falkirk.checkpoint.bundles import bundled
from falkirk.checkpoint.ids import Nonce, Offset, TopicPartition, after
from falkirk.checkpoint.ports import Aborted, Failure, Log, Unknown, Writes
from falkirk.checkpoint.reading import Records, read_to_marks
from falkirk.checkpoint.records import Named, Released, StepRecord, TaskRecord, encode
from falkirk.checkpoint.tasks import ClosedStep, Owned, Phase


class Fate(Enum):
    """What became of a step, and of its task."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    LOST = "lost"
    """Another owns the task now. The step, if it committed, is in the store."""


async def transact(
    log: Log, writes: Sequence[Writes], offsets: Mapping[TopicPartition, Offset]
) -> Mapping[TopicPartition, Offset]:
    """One transaction. Returns the last offset written to each partition; raises Aborted or Unknown. `offsets`: what it
    commits of the group, so that the broker refuses it from a stale generation."""
    await log.begin()
    for batch in writes:
        await log.send(batch)
    await log.send_offsets(offsets)
    return await log.commit()


async def commit_steps(log: Log, steps: Sequence[ClosedStep], mine: Sequence[Owned]) -> list[Fate]:
    """Clauses 3 and 4 for one closed step of each of several tasks. Then the stores are as the fates say.

    `mine` are all ownerships of this worker, stepped here or not: see `renew`.
    """
    todo = [step for step in steps if not step.owned.lost]
    fates = dict.fromkeys((step.owned.task.id for step in steps), Fate.LOST)
    if todo:
        fates |= zip((step.owned.task.id for step in todo), await _commit(log, todo, mine), strict=True)
    return [fates[step.owned.task.id] for step in steps]


async def _commit(log: Log, steps: Sequence[ClosedStep], mine: Sequence[Owned]) -> list[Fate]:
    writes: list[Writes] = []
    offsets: dict[TopicPartition, Offset] = {}
    for step in steps:
        writes.extend(step.writes)
        writes.extend(step.owned.task.recovery.logs(step))
        writes.append(record_of(step.owned, step.record))
        offsets |= step.source_offsets
        offsets[step.owned.task.steps] = step.owned.read_on
    try:
        written = await transact(log, bundled(writes), offsets)
    except Failure as failure:
        for step in steps:
            step.failed = failure.cause
        return [Fate.ABORTED] * len(steps) if isinstance(failure, Aborted) else await resolve(log, steps, mine)
    for step in steps:
        step.owned.read_on = after(written[step.owned.task.steps])
        apply(step, step.owned.read_on, written)
    return [Fate.COMMITTED] * len(steps)


async def resolve(log: Log, steps: Sequence[ClosedStep], mine: Sequence[Owned]) -> list[Fate]:
    """Clause 4, unknown: the fates of the steps, by the log.

    A step of a lost task is not applied even if it committed: the store stays a shorter prefix, which is as good. The
    changelog offset stays too: to read a change twice is harmless, to skip one is not.
    """
    found = await renew(log, mine)
    fates = []
    for step in steps:
        records = found[step.owned.task.steps]
        place = next((offset for offset, record in records if is_ours(step, record)), None)
        if step.owned.lost:
            fates.append(Fate.LOST)
        elif place is None:
            fates.append(Fate.ABORTED)
        else:
            apply(step, after(place), {})
            fates.append(Fate.COMMITTED)
    return fates


async def renew(log: Log, mine: Sequence[Owned]) -> dict[TopicPartition, Records]:
    """A new producer for this worker, and what the steps partitions of its running tasks hold beyond `read_on`.

    A successor may have fenced the old producer, and the new one is not fenced any more. So every ownership is checked
    again whether it is the last, not only those in the failed transaction. A take-over that is under way continues: what
    it reads from now on shows such a successor. If it has read already, it reads again before it runs
    (`takeover.admit`). `renewed` is set after the producer exists: names read before may lack a successor who has fenced
    only the old one.
    """
    await log.renew()
    running = {}
    for owned in mine:
        if owned.phase in (Phase.RUNNING, Phase.RELEASING):
            running[owned.task.steps] = owned
        else:
            owned.renewed = True

    def lost(p: TopicPartition, records: Records) -> bool:
        return taken_over(running[p].nonce, records)

    found = await read_to_marks(log, {p: owned.read_on for p, owned in running.items()}, lost)
    for p, owned in running.items():
        owned.lost = owned.lost or taken_over(owned.nonce, found[p].records)
        owned.read_on = found[p].position
    return {p: read.records for p, read in found.items()}


def taken_over(nonce: Nonce, records: Records) -> bool:
    """After this ownership's name, another was named or wrote a step (its name may be trimmed already)."""
    return any(isinstance(r, Named | StepRecord) and r.nonce != nonce for _, r in records)


def is_ours(step: ClosedStep, record: TaskRecord) -> bool:
    """The record is of this step: this number, this ownership. Then it has this division, too (`invariants.once`)."""
    if not isinstance(record, StepRecord) or (record.step, record.nonce) != (step.record.step, step.record.nonce):
        return False
    invariants.once(step.record, record)
    return True


def apply(step: ClosedStep, step_offset: Offset, written: Mapping[TopicPartition, Offset]) -> None:
    """The step is committed, and its record ends at `step_offset`: the store takes its overlay, in one write with that."""
    owned, store = step.owned, step.owned.opened()
    if owned.last is not None:
        invariants.follows(step.record, owned.last)
    owned.last = step.record
    log_offset = owned.task.recovery.log_offset_after(written, store.progress.log_offset)
    store.write(step.overlay.changes, store.progress.at(step.record.step, step_offset, log_offset, step.record.clock))
    if step.record.corrects >= 0:
        owned.correction = None


def record_of(owned: Owned, record: TaskRecord) -> Writes:
    """A record for the task's own steps partition."""
    steps = owned.task.steps
    return Writes(steps.topic, [steps.partition], [str(owned.task.id).encode()], [encode(record)], tracked=True)


async def release(log: Log, tasks: Sequence[Owned], mine: Sequence[Owned]) -> None:
    """Leave tasks cleanly: nothing of theirs is open, and a record tells their successors.

    If it does not commit, the successors fence this worker: slower, and as safe. Only an owner that ran may release:
    one that has not fenced its predecessors would hide them from its successor. Once `released` is sent, committed or
    not, no step of this ownership may follow.
    """
    leaving = [owned for owned in tasks if not owned.lost]
    for owned in leaving:
        owned.enter(Phase.RELEASING)
    writes = [record_of(owned, Released(owned.nonce)) for owned in leaving]
    if not writes:
        return
    try:
        await transact(log, writes, {owned.task.steps: owned.read_on for owned in leaving})
    except Aborted:
        pass
    except Unknown:
        await renew(log, mine)
