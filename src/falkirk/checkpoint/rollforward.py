"""The two logs that roll a store forward: one machine, two regimes.

eager    changelog      state(n) = state(v) overwritten by every change since
lazy     divisions      state(n) = fold of the circuit over the recorded divisions since; each output's digest is
                        compared with the record's, and the output itself dropped: it is published already
                        (another digest: `falkirk.checkpoint.correction`)
"""

from __future__ import annotations

from collections.abc import Sequence

from falkirk.checkpoint.correction import together, units, word
from falkirk.checkpoint.ids import Millis, Offset
from falkirk.checkpoint.overlay import Overlay
from falkirk.checkpoint.ports import Clock, Log, Output, Replayer, Stores
from falkirk.checkpoint.records import StepRecord
from falkirk.checkpoint.tasks import Correction, Owned, Task
from falkirk.errors import DivergenceError, StateError
from falkirk.state.store import Store

TOMBSTONE_RETENTION = Millis(7 * 24 * 3600 * 1000)
"""delete.retention.ms of changelogs: how long a compacted tombstone stays readable."""

FLUSH_STEPS = 200
"""Steps run again, after which a crash need not run them once more. A worker that is killed more often than it makes versions
would else have ever more to run again."""


async def current_store(stores: Stores, clock: Clock, task: Task) -> Store:
    """The task's store, or an empty one where the store is too old to be rolled along a compacted changelog.

    A tombstone may be gone after `TOMBSTONE_RETENTION`; a key it deleted would come back. Half of it leaves room for clocks
    that disagree and for the time that rolling takes. A store that has a base cannot be rebuilt from a changelog, which
    begins after it: whether it is too old is seen when there is something to roll (`check_age`).
    """
    store = await stores.open(task.id)
    progress = store.progress
    if task.changelog is None or progress.step < 0 or progress.base >= 0 or not _old(clock, progress.clock):
        return store
    store.close()
    return await stores.fresh(task.id)


def _old(clock: Clock, since: int) -> bool:
    return clock.now() - since > TOMBSTONE_RETENTION // 2


def check_age(clock: Clock, owned: Owned, steps: Sequence[tuple[Offset, StepRecord]]) -> None:
    """A store that has a base misses no step that is so old that a tombstone of its may be gone. Raises StateError.

    What the store lacks was written from the first step after its own on, however long it had been idle before.
    """
    task, progress = owned.task, owned.opened().progress
    missed = [record for _, record in steps if record.step > progress.step]
    if task.changelog is None or progress.base < 0 or not missed:
        return
    since = missed[0].clock if missed[0].step == progress.step + 1 else progress.clock
    if _old(clock, since):
        raise StateError(
            f"the newest state of task {task.id} is of step {progress.step}, and too old to be rolled along its changelog: "
            "what was deleted since could come back",
            where=f"{task.changelog.topic}[{task.changelog.partition}]",
            hint="bring back the state directory that it ran in last, or the checkpoint store that has its versions: a state "
            "that began with a backfill cannot be rebuilt from its changelog alone",
        )


async def roll_changelog(
    log: Log, owned: Owned, steps: Sequence[tuple[Offset, StepRecord]], begin: Offset, mark: Offset
) -> None:
    """Apply the changelog's tail, from `begin` at the earliest up to `mark`.

    Progress goes on with the last write alone: only then is the store at a step.
    """
    task, store = owned.task, owned.opened()
    if task.changelog is None or not steps:
        return
    before = store.progress
    if before.log_offset > mark:
        raise StateError(
            f"the store of task {task.id} is at offset {before.log_offset} of its changelog, which ends at {mark}",
            where=f"{task.changelog.topic}[{task.changelog.partition}]",
            hint="the changelog was truncated, or the broker lost committed data: restore the topic, or give the flow "
            "another name, under which it begins anew",
        )
    offset, last = steps[-1]
    position = start = max(Offset(before.log_offset), begin)
    while position < mark:
        owned.go_on()
        owned.rolled = (position - start, mark - start)
        changes, position = await log.read_changes(task.changelog, position, mark)
        if changes:
            store.write(changes, before)
    store.write({}, before.at(last.step, offset + 1, mark, last.clock))


def roll_nothing(owned: Owned, steps: Sequence[tuple[Offset, StepRecord]]) -> None:
    """A task without state goes on from its last step record."""
    if steps:
        offset, last = steps[-1]
        store = owned.opened()
        store.write({}, store.progress.at(last.step, offset + 1, 0, last.clock))


def overtaken(owned: Owned, steps: Sequence[tuple[Offset, StepRecord]]) -> bool:
    """Whether the divisions that a lazy store still needs are deleted: trimmed below a newer version than it was opened from.

    not overtaken  ⇔  the steps read after the store's are store.step + 1, store.step + 2, …
    """
    if not owned.task.replayed:
        return False
    at = owned.opened().progress.step
    after = [record.step for _, record in steps if record.step > at]
    return after != list(range(at + 1, at + 1 + len(after)))


async def roll_divisions(replayer: Replayer, owned: Owned, steps: Sequence[tuple[Offset, StepRecord]]) -> None:
    """Run the recorded steps again. Where they give another output than they published, a correction is left to be committed;
    raises DivergenceError where they are not to be corrected."""
    task, store = owned.task, owned.opened()
    todo = [(offset, record) for offset, record in steps if record.step > store.progress.step]
    owned.rolled = (0, len(todo))
    flushed = 0
    for unit in units(todo):
        if owned.rolled[0] - flushed >= FLUSH_STEPS:
            flushed = owned.rolled[0]
            store.flush()
        state = Overlay(store)
        ran = await run_again(replayer, owned, [record for _, record in unit], state)
        offset, last = unit[-1]
        if word(ran, last) == last.digest:
            store.write(state.changes, store.progress.at(last.step, offset + 1, 0, last.clock))
            continue
        first = unit[0][1]
        if not replayer.corrects:
            raise diverged(task, first, last)
        ran += await run_again(replayer, owned, [record for _, record in todo if record.step > last.step], state)
        records = [record for _, record in todo if record.step >= first.step]
        outputs = await replayer.difference(task.id, records, [o for step in ran for o in step], state)
        owned.correction = Correction(first.step, outputs, together(ran), dict(state.changes))
        return


async def run_again(
    replayer: Replayer, owned: Owned, records: Sequence[StepRecord], state: Overlay
) -> list[list[Output]]:
    """What recorded steps emit now, each over the state that those before it leave. A correction is none that runs."""
    ran = []
    for record in records:
        owned.go_on()
        if record.corrects < 0:
            ran.append(await replayer.replay(owned.task.id, record, state))
        owned.rolled = (owned.rolled[0] + 1, owned.rolled[1])
    return ran


def diverged(task: Task, first: StepRecord, last: StepRecord) -> DivergenceError:
    """That recorded steps give another output now."""
    which = f"step {last.step}" if first is last else f"what step {last.step} corrected from step {first.step} on"
    return DivergenceError(
        f"task {task.id}: {which}, run again, gives another output than the one it published",
        where=", ".join(map(str, first.division)),
        hint="if the code was changed, or what it runs on, and the app had not ended cleanly: start it with --on-divergence "
        "correct, which publishes the difference; or run what was there before, end it, and change it then. If nothing "
        "was changed: under the lazy regime every operator must be a function of its input, its state and ctx.now(); look "
        f"for random numbers, clocks, or calls to other services in the operators of stage {task.id.stage!r}",
    )
