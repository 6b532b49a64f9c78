"""Take tasks over: clause 5 of the protocol.

    a  name yourself in the task's steps partition, with a fresh nonce
    b  read the partition at read_uncommitted, and fence every owner named after the newest name that a `released` cites
       (none, after a clean hand-over)
    c  open the store. After the fences, ask for the high watermarks, first of the changelog, then of the steps. Read the
       steps at read_committed to the mark. Roll the store forward along its log. If that log begins after the store,
       because a worker that slept has trimmed it below its own version: open that version, and repeat (c). If the store
       is among steps that were corrected: open a version before them, and repeat (c).
       If no step exists yet, ask what the first one follows (`falkirk.checkpoint.backfill`)
    d  run, if the last name is ours. If this worker renewed its producer since (c), the names are read again

Tasks that are named together are fenced together. Then each task recovers by itself, several at a time. It runs as soon
as it is rolled. If the group takes a task away, its recovery ends at its next call of `Owned.go_on`.

What breaks otherwise: the order fence → read → name doubled a step. A worker that wakes makes a new producer with its old
id and is not fenced any more; its next attempt must find a later name. Watermarks asked before the fences miss a commit
that a sleeping worker's EndTxn was still to make. If the changelog's mark is asked after the steps', a later owner's
changes could be applied under an earlier step's number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from falkirk.checkpoint import backfill, invariants
from falkirk.checkpoint.correction import covered
from falkirk.checkpoint.ids import Nonce, Offset, Step, TopicPartition
from falkirk.checkpoint.names import last_named
from falkirk.checkpoint.ports import Aborted, Clock, Log, Replayer, Stores, Unknown
from falkirk.checkpoint.reading import Records, fence_rivals, read_to_marks
from falkirk.checkpoint.records import Named, StepRecord
from falkirk.checkpoint.rollforward import (
    check_age,
    current_store,
    overtaken,
    roll_changelog,
    roll_divisions,
    roll_nothing,
    torn,
)
from falkirk.checkpoint.tasks import Owned, Phase, Revoked
from falkirk.checkpoint.transaction import record_of, renew, taken_over, transact
from falkirk.errors import OutgrownError, StateError


async def name(
    log: Log, tasks: Sequence[Owned], mine: Sequence[Owned], fresh: Callable[[], Nonce], host: str = ""
) -> bool:
    """Clause 5a, one transaction for all tasks. False: not committed; begin again if the group still assigns them."""
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
            owned.enter(Phase.IDLE)
        return False
    for owned in tasks:
        owned.enter(Phase.FENCING)
    return True


async def fence(log: Log, tasks: Sequence[Owned]) -> None:
    """Clause 5b, for tasks that were named together. Nobody is fenced for tasks that were taken away since."""
    revoked = {owned.task.steps: owned for owned in tasks}
    await fence_rivals(log, list(revoked), lambda p: not revoked[p].revoked)


async def recover(log: Log, stores: Stores, replayer: Replayer, clock: Clock, owned: Owned) -> None:
    """Clause 5c, for one task. Then it can be admitted; or it is IDLE and its store is closed: another was named, or the
    group took it away. The marks are asked after the fences."""
    try:
        owned.go_on()
        owned.enter(Phase.ROLLING)
        owned.store = await current_store(stores, clock, owned)
        while not await roll_forward(log, stores, replayer, clock, owned):
            pass
        if owned.last is None:
            await backfill.begin(stores, owned)
    except Revoked:
        abandon(owned)


async def roll_forward(log: Log, stores: Stores, replayer: Replayer, clock: Clock, owned: Owned) -> bool:
    """Read the logs and apply them to the open store. Raises Revoked if another worker was named.

    False: the store was useless, and another one is open in its place. The log no longer reached back to it; or it was amid
    corrected steps, or has a part of a changelog that is no longer the task's log, or became too old.
    """
    steps_at, changelog = owned.task.steps, owned.task.changelog
    owned.renewed = False  # before the marks are asked: see `renew`
    first = (await log.start([steps_at]))[steps_at]
    begin = (await log.start([changelog]))[changelog] if changelog is not None else Offset(0)
    mark = (await log.end([changelog]))[changelog] if changelog is not None else Offset(0)

    # The store's own last step is read again: it has the input positions, and shows that store and log belong together.
    start = max(first, Offset(owned.opened().progress.step_offset - 1))
    read = (await read_to_marks(log, {steps_at: start}, lambda _, records: void(owned, records)))[steps_at]
    if owned.revoked or last_named(read.records) != owned.nonce:
        raise Revoked
    owned.read_on = read.position
    steps = [(offset, r) for offset, r in read.records if isinstance(r, StepRecord)]
    if steps and owned.task.stateful and steps[-1][1].base != owned.opened().progress.base:
        await backfill.replace(stores, owned, steps[-1][1].base)
    below = covered(owned, steps)
    if below is None:
        below = torn(owned)
    if below is not None or overtaken(owned, steps):
        await reopen(stores, owned, below)
        return False
    check_history(owned, steps)
    check_layout(owned, steps)
    check_age(clock, owned, steps)
    if not owned.task.stateful:
        roll_nothing(owned, steps)
    elif changelog is not None:
        if not await roll_changelog(log, clock, owned, steps, begin, mark):
            owned.opened().close()
            owned.store = await current_store(stores, clock, owned)
            return False
    else:
        await roll_divisions(replayer, owned, steps)
    owned.last = steps[-1][1] if steps else None
    invariants.prefix(owned.opened().progress, owned.last)
    return True


def void(owned: Owned, records: Records) -> bool:
    """Whether a take-over has failed: the group has given the task to another, or another is named.

    It would fence its successor. If both try at the same pace, each naming is fenced, and neither ever ends.
    """
    nonces = [r.nonce for _, r in records if isinstance(r, Named)]
    return owned.revoked or owned.nonce in nonces[:-1]


async def reopen(stores: Stores, owned: Owned, below: Step | None = None) -> None:
    """Replace the open store by the newest version, or the newest one `below` a step. Raises StateError if it is not
    newer, or had to be older and the steps after it are gone."""
    task, at = owned.task, owned.opened().progress.step
    owned.opened().close()
    if below is not None and (owned.before is None or below < owned.before):
        owned.store, owned.before = await stores.before(task.id, below, owned.go_on), below
        return
    if owned.before is None:
        owned.store = await stores.newer(task.id, Step(at), owned.go_on)
    if owned.before is not None or owned.opened().progress.step <= at:
        raise StateError(
            f"task {task.id}: its store is at step {at}, and the steps after it are deleted already",
            where=f"{task.steps.topic}[{task.steps.partition}]",
            hint="bring back the state directory or the checkpoint store that held the task's versions, or give the flow "
            "another name, under which it starts from scratch",
        )


async def admit(log: Log, owned: Owned) -> bool:
    """Clause 5d: a rolled task runs, if the last name is still ours, as far as this worker's producer shows. Called between
    transactions. False: the take-over has failed; its store must be closed.

    A later owner fences this worker's producer, so the first step would not commit. But if the producer was renewed since
    the names were read, perhaps the old one was fenced: then the names are read again.
    """
    if owned.phase is not Phase.ROLLING:
        return False
    if owned.renewed:
        steps = owned.task.steps

        def lost(_: TopicPartition, records: Records) -> bool:
            return owned.revoked or taken_over(owned.nonce, records)

        read = (await read_to_marks(log, {steps: owned.read_on}, lost))[steps]
        if taken_over(owned.nonce, read.records):
            return False
        owned.read_on, owned.renewed = read.position, False
    if owned.revoked:
        return False
    owned.enter(Phase.RUNNING)
    return True


def abandon(owned: Owned) -> None:
    """The task is lost or left: close its store."""
    if owned.store is not None:
        owned.store.close()
        owned.store = None
    owned.enter(Phase.IDLE)


def check_layout(owned: Owned, steps: Sequence[tuple[Offset, StepRecord]]) -> None:
    """No step of a flow follows one of its successor: the new parts would miss it. Raises OutgrownError."""
    if steps and steps[-1][1].layout > owned.task.layout:
        raise OutgrownError(
            f"the flow has been changed: task {owned.task.id} has gone on under layout {steps[-1][1].layout}, and this "
            f"worker runs layout {owned.task.layout}",
            where=f"{owned.task.steps.topic}[{owned.task.steps.partition}]",
            hint="start it again, with the new flow",
        )


def check_history(owned: Owned, steps: Sequence[tuple[Offset, StepRecord]]) -> None:
    """The step records form one chain, and the store stands on it. Raises InvariantError or StateError."""
    invariants.chain(record for _, record in steps)
    progress = owned.opened().progress
    last = steps[-1][1].step if steps else -1
    if progress.step > last:
        raise StateError(
            f"the store of task {owned.task.id} is at step {progress.step}, but its steps topic ends at step {last}",
            where=f"{owned.task.steps.topic}[{owned.task.steps.partition}]",
            hint="the topic was truncated, or the broker lost committed data: restore the topic, or give the flow another "
            "name, under which it starts from scratch",
        )
