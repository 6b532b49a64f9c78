"""Taking tasks over: clause 5 of the protocol.

    a  name yourself in the task's steps partition, with a fresh nonce
    b  read the partition at read_uncommitted, and fence every owner named after the newest name that a `released` cites
       (none, after a clean hand-over)
    c  open the store; ask for the high watermarks, of the changelog first and then of the steps, after the fences; read
       the steps at read_committed to the mark; roll the store forward along its log. If that log begins after the store,
       because a worker that slept has trimmed it below a version of its own meanwhile: open that version, and again. If
       the store stands among steps that were corrected: open a version before them, and again.
       Where there is no step yet, ask what the first one follows on (`falkirk.checkpoint.backfill`)
    d  run, if the last name is ours

Tasks that are named together are fenced together. Those whose stores follow their logs are rolled together too, and run;
then each that runs recorded steps again, which may take a while, by itself, and runs while the next one is rolled.

What breaks otherwise: fence → read → name doubled a step, for a worker that wakes makes a new producer of its old id and
is not fenced any more; its next attempt must find a later name. Watermarks asked before the fences miss a commit that a
sleeping worker's EndTxn was still to make. With the changelog's mark asked after the steps', a later owner's changes could
be applied under an earlier step's number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from falkirk.checkpoint import backfill, invariants
from falkirk.checkpoint.correction import covered
from falkirk.checkpoint.ids import Nonce, Offset, Step, TopicPartition
from falkirk.checkpoint.names import last_named
from falkirk.checkpoint.ports import Aborted, Clock, Log, Replayer, Stores, Unknown
from falkirk.checkpoint.reading import Records, decoded, fence_rivals, read_to_marks
from falkirk.checkpoint.records import Named, StepRecord
from falkirk.checkpoint.rollforward import (
    check_age,
    current_store,
    overtaken,
    roll_changelog,
    roll_divisions,
    roll_nothing,
)
from falkirk.checkpoint.tasks import Owned, Phase, Revoked
from falkirk.checkpoint.transaction import record_of, renew, transact
from falkirk.errors import OutgrownError, StateError


async def name(
    log: Log, tasks: Sequence[Owned], mine: Sequence[Owned], fresh: Callable[[], Nonce], host: str = ""
) -> bool:
    """Clause 5a, one transaction for all tasks. False: it did not commit; begin again if the group still assigns them."""
    for owned in tasks:
        owned.enter(Phase.NAMING)
        owned.nonce = fresh()
    writes = [record_of(owned, Named(owned.nonce, log.owner, host)) for owned in tasks]
    try:
        # The offset says nothing that is read again; sending it is what lets the broker refuse a stale generation.
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


def parts(tasks: Sequence[Owned]) -> list[list[Owned]]:
    """The tasks that `recover` rolls together, in its order."""
    together = [owned for owned in tasks if not owned.task.replayed]
    return [*([together] if together else []), *([owned] for owned in tasks if owned.task.replayed)]


async def recover(
    log: Log,
    stores: Stores,
    replayer: Replayer,
    clock: Clock,
    tasks: Sequence[Owned],
    rolled: Callable[[list[Owned]], object],
) -> None:
    """Clauses 5b and 5c. `rolled` is told each of the `parts` when it can be admitted: its tasks are rolled forward, or
    IDLE, for another was named."""
    await fence_rivals(log, [owned.task.steps for owned in tasks])
    for part in parts(tasks):
        await roll(log, stores, replayer, clock, part)
        rolled(part)


async def roll(log: Log, stores: Stores, replayer: Replayer, clock: Clock, tasks: Sequence[Owned]) -> None:
    """Clause 5c. The marks are asked after the fences of all."""
    for owned in tasks:
        owned.enter(Phase.ROLLING)
        owned.store = await current_store(stores, clock, owned.task)
    todo = tasks
    while todo:
        behind = await roll_forward(log, stores, replayer, clock, todo)
        for owned, below in behind:
            await reopen(stores, owned, below)
        todo = [owned for owned, _ in behind]
    first = [o for o in tasks if o.phase is Phase.ROLLING and o.last is None and not o.revoked]
    await backfill.begin(stores, first)


async def roll_forward(
    log: Log, stores: Stores, replayer: Replayer, clock: Clock, tasks: Sequence[Owned]
) -> list[tuple[Owned, Step | None]]:
    """Read the logs and apply them to the open stores. Returns the tasks whose store is of no use: the log no longer reaches
    back to it; or it is no older than the step that is named, from which on it was corrected."""
    by_partition = {owned.task.steps: owned for owned in tasks}
    behind: list[tuple[Owned, Step | None]] = []
    first = await log.start(list(by_partition))
    changelogs = [c for owned in tasks if (c := owned.task.changelog) is not None]
    begins = await log.start(changelogs) if changelogs else {}
    marks = await log.end(changelogs) if changelogs else {}

    def lost(p: TopicPartition, records: Records) -> bool:
        return void(by_partition[p], records)

    # The store's own last step is read again: it says where the inputs are, and that store and log belong together.
    starts = {p: max(first[p], Offset(o.opened().progress.step_offset - 1)) for p, o in by_partition.items()}
    reads = await read_to_marks(log, starts, lost)
    for p, owned in by_partition.items():
        records = decoded(reads[p])
        if owned.revoked or last_named(records) != owned.nonce:
            abandon(owned)
            continue
        owned.read_on = reads[p].position
        steps = [(offset, r) for offset, r in records if isinstance(r, StepRecord)]
        if steps and owned.task.stateful and steps[-1][1].base != owned.opened().progress.base:
            await backfill.replace(stores, owned, steps[-1][1].base)
        if (below := covered(owned, steps)) is not None or overtaken(owned, steps):
            behind.append((owned, below))
            continue
        check_history(owned, steps)
        check_layout(owned, steps)
        check_age(clock, owned, steps)
        try:
            if not owned.task.stateful:
                roll_nothing(owned, steps)
            elif owned.task.changelog is not None:
                await roll_changelog(log, owned, steps, begins[owned.task.changelog], marks[owned.task.changelog])
            else:
                await roll_divisions(replayer, owned, steps)
        except Revoked:
            # This task alone: one that follows and was not rolled must not be taken for one that was.
            abandon(owned)
            continue
        owned.last = steps[-1][1] if steps else None
        invariants.prefix(owned.opened().progress, owned.last)
    return behind


def void(owned: Owned, records: Records) -> bool:
    """Whether a take-over has come to nothing: the group has given the task to another, or another is named.

    Its fences would meet its successor: where both try in step, each naming is fenced, and neither ever ends.
    """
    nonces = [r.nonce for _, r in records if isinstance(r, Named)]
    return owned.revoked or owned.nonce in nonces[:-1]


async def reopen(stores: Stores, owned: Owned, below: Step | None = None) -> None:
    """The newest version in the place of the open store, or the newest one `below` a step. Raises StateError if it is not
    newer, or was to be older and the steps after it are gone."""
    task, at = owned.task, owned.opened().progress.step
    owned.opened().close()
    if below is not None and (owned.before is None or below < owned.before):
        owned.store, owned.before = await stores.before(task.id, below), below
        return
    if owned.before is None:
        owned.store = await stores.open(task.id)
    if owned.before is not None or owned.opened().progress.step <= at:
        raise StateError(
            f"task {task.id}: its store is at step {at}, and the steps after it are deleted already",
            where=f"{task.steps.topic}[{task.steps.partition}]",
            hint="bring back the state directory or the checkpoint store that held the task's versions, or give the flow "
            "another name, under which it begins anew",
        )


def admit(owned: Owned) -> bool:
    """Clause 5d: a rolled task runs, unless its take-over became void meanwhile. In turn with the transactions."""
    if owned.phase is Phase.ROLLING and not owned.revoked:
        owned.enter(Phase.RUNNING)
        return True
    if owned.phase is not Phase.IDLE:
        abandon(owned)
    return False


def abandon(owned: Owned) -> None:
    """The task is lost or left: let go of its store."""
    if owned.store is not None:
        owned.store.close()
        owned.store = None
    owned.enter(Phase.IDLE)


def check_layout(owned: Owned, steps: Sequence[tuple[Offset, StepRecord]]) -> None:
    """No step of a flow follows one of its successor: what is new there would miss it. Raises OutgrownError."""
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
            "name, under which it begins anew",
        )
