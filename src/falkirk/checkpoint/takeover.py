"""Take tasks over: clause 5 of the protocol.

    a  name yourself in the task's steps partition, with a fresh nonce
    b  read the partition at read_uncommitted, and fence every owner named after the newest name that a `released` cites
       (none, after a clean hand-over)
    c  open the store. After the fences, mark the ends, first of the changelog, then of the steps. Read the
       steps at read_committed to the mark. Roll the store forward along its regime's log (`Recovery.recover`). If the
       store turns out to be useless, another is open in its place: repeat (c).
       If no step exists yet, ask what the first one follows (`falkirk.checkpoint.backfill`)
    d  run, if the last name is ours. If this worker renewed its producer since (c), the names are read again

Tasks that are named together are fenced together. Then each task recovers by itself, several at a time. It runs as soon
as it is rolled. If the group takes a task away, its recovery ends at its next call of `Owned.go_on`.

What breaks otherwise: the order fence → read → name doubled a step. A worker that wakes makes a new producer with its old
id and is not fenced any more; its next attempt must find a later name. Marks written before the fences miss a commit
that a sleeping worker's EndTxn was still to make. If the changelog is marked after the steps, a later owner's
changes could be applied under an earlier step's number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from falkirk.checkpoint import backfill, invariants
from falkirk.checkpoint.ids import Nonce, Offset, TopicPartition
from falkirk.checkpoint.ownerships import last_named
from falkirk.checkpoint.ports import Aborted, Clock, Log, Replayer, Stores, Unknown
from falkirk.checkpoint.reading import LOST_RECORDS, Records, fence_rivals, read_to_marks
from falkirk.checkpoint.records import Named, RecordedStep, StepRecord
from falkirk.checkpoint.regimes import LogBounds, Means
from falkirk.checkpoint.tasks import Owned, Phase, Revoked
from falkirk.checkpoint.transaction import record_of, renew, taken_over, transact
from falkirk.errors import OutgrownError, StateError


async def name(
    log: Log, tasks: Sequence[Owned], mine: Sequence[Owned], fresh: Callable[[], Nonce], host: str = ""
) -> None:
    """Clause 5a, one transaction for all tasks. Then they are to be fenced; or they are IDLE, as it did not commit: begin
    again if the group still assigns them."""
    for owned in tasks:
        owned.enter(Phase.NAMING)
        owned.nonce = fresh()
    writes = [record_of(owned, Named(owned.nonce, log.owner, host)) for owned in tasks]
    try:
        # Nobody reads this offset. It is sent so that the broker refuses a stale generation.
        await transact(log, writes, {owned.task.steps: Offset(0) for owned in tasks})
    except (Aborted, Unknown) as error:
        if isinstance(error, Unknown):
            await renew(log, mine)
        for owned in tasks:
            owned.failed = error.cause
            owned.enter(Phase.IDLE)
        return
    for owned in tasks:
        owned.enter(Phase.FENCING)


async def fence(log: Log, tasks: Sequence[Owned]) -> None:
    """Clause 5b, for tasks that were named together. Nobody is fenced for tasks that were taken away since."""
    by_place = {owned.task.steps: owned for owned in tasks}
    await fence_rivals(log, list(by_place), lambda p: not by_place[p].revoked)


async def recover(log: Log, stores: Stores, replayer: Replayer, clock: Clock, owned: Owned) -> None:
    """Clause 5c, for one task. Then it is ROLLED and can be admitted; or it is IDLE and its store is closed: another was
    named, or the group took it away. The marks are written after the fences."""
    try:
        owned.go_on()
        owned.enter(Phase.ROLLING)
        means = Means(log, stores, replayer, clock)
        owned.store = await owned.task.recovery.open(means, owned)
        while not await roll_forward(means, owned):
            pass
        if owned.last is None:
            await backfill.begin(stores, owned)
        owned.enter(Phase.ROLLED)
    except Revoked:
        abandon(owned)


async def roll_forward(means: Means, owned: Owned) -> bool:
    """Read the logs and apply them to the open store. Raises Revoked if another worker was named.

    False: the store was useless, and another one is open in its place (`Recovery.recover`).
    """
    log, recovery, steps_at = means.log, owned.task.recovery, owned.task.steps
    owned.renewed = False  # before the marks are written: see `renew`
    first = (await log.start([steps_at]))[steps_at]
    bounds = LogBounds({}, {})
    if recovery.log_partitions:
        bounds = LogBounds(await log.start(recovery.log_partitions), await log.mark(recovery.log_partitions))

    # The store's own last step is read again: it has the input positions, and shows that store and log belong together.
    start = max(first, Offset(owned.opened().progress.step_offset - 1))
    read = (await read_to_marks(log, {steps_at: start}, lambda _, records: has_failed(owned, records)))[steps_at]
    if owned.revoked or last_named(read.records) != owned.nonce:
        raise Revoked
    owned.read_on = read.position
    steps = [(offset, r) for offset, r in read.records if isinstance(r, StepRecord)]
    if steps and recovery.keeps_state and steps[-1][1].base != owned.opened().progress.base:
        await backfill.replace(means.stores, owned, steps[-1][1].base)
    check_history(owned, first, steps)
    check_layout(owned, steps)
    owned.rolls(recovery.replay(owned.opened().progress, steps, bounds))
    if not await recovery.recover(means, owned, steps, bounds):
        return False
    owned.last = steps[-1][1] if steps else None
    invariants.prefix(owned.opened().progress, owned.last)
    return True


def has_failed(owned: Owned, records: Records) -> bool:
    """Whether a take-over has failed: the group has given the task to another, or another is named.

    Then it must not fence whoever is in its way, as that may be its successor, who does the same: at the same pace, each
    would fence the other's naming, and neither would ever be named.
    """
    nonces = [r.nonce for _, r in records if isinstance(r, Named)]
    return owned.revoked or owned.nonce in nonces[:-1]


async def admit(log: Log, owned: Owned) -> None:
    """Clause 5d: a rolled task runs, if the last name is still ours, as far as this worker's producer shows. Called between
    transactions. If it does not run then, the take-over has failed: its store must be closed.

    A later owner fences this worker's producer, so the first step would not commit. But if the producer was renewed since
    the names were read, perhaps the old one was fenced: then the names are read again.
    """
    if owned.phase is not Phase.ROLLED:
        return
    if owned.renewed:
        steps = owned.task.steps

        def lost(_: TopicPartition, records: Records) -> bool:
            return owned.revoked or taken_over(owned.nonce, records)

        read = (await read_to_marks(log, {steps: owned.read_on}, lost))[steps]
        if taken_over(owned.nonce, read.records):
            return
        owned.read_on, owned.renewed = read.position, False
    if not owned.revoked:
        owned.enter(Phase.RUNNING)


def abandon(owned: Owned) -> None:
    """The task is lost or left: close its store."""
    if owned.store is not None:
        owned.store.close()
        owned.store = None
    owned.enter(Phase.IDLE)


def check_layout(owned: Owned, steps: Sequence[RecordedStep]) -> None:
    """No step of a flow follows one of its successor: the new parts would miss it. Raises OutgrownError."""
    if steps and steps[-1][1].layout > owned.task.layout:
        raise OutgrownError(
            f"the flow has been changed: task {owned.task.id} has gone on under layout {steps[-1][1].layout}, and this "
            f"worker runs layout {owned.task.layout}",
            where=f"{owned.task.steps.topic}[{owned.task.steps.partition}]",
            hint="start it again, with the new flow",
        )


def check_history(owned: Owned, first: Offset, steps: Sequence[RecordedStep]) -> None:
    """The step records form one chain, and the store stands on it: its own last step is there, unless it lies before the
    `first` offset that is kept. Raises InvariantError or StateError."""
    invariants.chain(record for _, record in steps)
    progress = owned.opened().progress
    last = steps[-1][1].step if steps else -1
    if progress.step > last:
        raise StateError(
            f"the store of task {owned.task.id} is at step {progress.step}, but its steps topic ends at step {last}",
            where=f"{owned.task.steps.topic}[{owned.task.steps.partition}]",
            hint=LOST_RECORDS,
        )
    own = Offset(progress.step_offset - 1)
    if progress.step >= 0 and first <= own and (own, progress.step) != (steps[0][0], steps[0][1].step):
        raise StateError(
            f"the store of task {owned.task.id} is at step {progress.step}, found at offset {own} of its steps topic. "
            f"The first step from there on is now step {steps[0][1].step}, at offset {steps[0][0]}",
            where=f"{owned.task.steps.topic}[{owned.task.steps.partition}]",
            hint=LOST_RECORDS,
        )
