"""The two logs that roll a store forward: one machine, two regimes.

eager    changelog      state(n) = state(v) overwritten by every change since
lazy     divisions      state(n) = fold of the circuit over the recorded divisions since; each output's digest is
                        compared with the record's, and the output is dropped: it is already published
                        (another digest: `falkirk.checkpoint.correction`)
"""

from __future__ import annotations

from collections.abc import Sequence

from falkirk.checkpoint.correction import together, units, word
from falkirk.checkpoint.ids import Millis, Offset, Step
from falkirk.checkpoint.overlay import Overlay
from falkirk.checkpoint.ports import Clock, Log, Output, Replayer, Stores
from falkirk.checkpoint.reading import obstacle
from falkirk.checkpoint.records import StepRecord
from falkirk.checkpoint.tasks import Correction, Owned, Task
from falkirk.errors import DivergenceError, StateError
from falkirk.state.store import Store

TOMBSTONE_RETENTION = Millis(7 * 24 * 3600 * 1000)
"""delete.retention.ms of changelogs: how long a compacted tombstone stays readable."""

FLUSH_STEPS = 200
"""After so many steps run again, a flush keeps them. Otherwise a worker that is killed more often than it makes versions
would have more and more steps to run again."""


async def current_store(stores: Stores, clock: Clock, owned: Owned) -> Store:
    """The task's store, or an empty one if the store is too old to be rolled along a compacted changelog.

    A store that was begun empty may be too old, too, if it has a part of the changelog.

    A tombstone may be gone after `TOMBSTONE_RETENTION`; a key it deleted would come back. Half of it leaves room for clocks
    that disagree and for the time that rolling takes. A changelog begins after the base, so it cannot rebuild a store that
    has one: `check_age` sees whether that is too old, when there is something to roll.
    """
    task = owned.task
    store = await stores.open(task.id, owned.go_on)
    progress = store.progress
    empty = progress.step < 0 and progress.ahead < 0
    if task.changelog is None or empty or progress.base >= 0 or not _old(clock, progress.clock):
        return store
    store.close()
    return await stores.fresh(task.id)


def _old(clock: Clock, since: int) -> bool:
    return clock.now() - since > TOMBSTONE_RETENTION // 2


def check_age(clock: Clock, owned: Owned, steps: Sequence[tuple[Offset, StepRecord]]) -> None:
    """A store with a base lacks no step that is so old that its tombstones may be gone. Raises StateError."""
    task, progress = owned.task, owned.opened().progress
    if task.changelog is None or progress.base < 0 or not _outdated(clock, owned, steps, progress.clock):
        return
    raise StateError(
        f"the newest state of task {task.id} is of step {progress.step}, and too old to be rolled along its changelog: "
        "what was deleted since could come back",
        where=f"{task.changelog.topic}[{task.changelog.partition}]",
        hint="bring back the state directory that it ran in last, or the checkpoint store that has its versions: a state "
        "that began with a backfill cannot be rebuilt from its changelog alone",
    )


def _outdated(clock: Clock, owned: Owned, steps: Sequence[tuple[Offset, StepRecord]], since: int) -> bool:
    """Whether tombstones of steps that the store lacks may be gone. `since`: when its part of the changelog was current.

    A store with a base lacks what was written since the first step after its own, even if it was idle for long before.
    """
    progress = owned.opened().progress
    missed = [record for _, record in steps if record.step > progress.step]
    if progress.base >= 0 and missed and missed[0].step == progress.step + 1:
        since = missed[0].clock
    return bool(missed) and _old(clock, since)


async def roll_changelog(
    log: Log, clock: Clock, owned: Owned, steps: Sequence[tuple[Offset, StepRecord]], begin: Offset, mark: Offset
) -> bool:
    """Apply the changelog's tail, from `begin` at the earliest up to `mark`.

    False: it took so long that tombstones may have gone before they were read, and the store is useless. Otherwise a
    worker that was suspended for days on the way would bring deleted keys back.

    Only the last write advances the step: before it, the store is at no step. Each write says how much of the changelog
    the store has. So if a recovery is stopped, or dies, the next one need not apply that part again.
    """
    task, store = owned.task, owned.opened()
    if task.changelog is None or not steps:
        return True
    before = store.progress
    if before.applied > mark:
        raise StateError(
            f"the store of task {task.id} is at offset {before.applied} of its changelog, which ends at {mark}",
            where=f"{task.changelog.topic}[{task.changelog.partition}]",
            hint="the changelog was truncated, or the broker lost committed data: restore the topic, or give the flow "
            "another name, under which it starts from scratch",
        )
    offset, last = steps[-1]
    position = start = max(Offset(before.applied), begin)
    # A tombstone missing in the part that is applied already was compacted away after the older of these.
    since = clock.now() if before.step < 0 and before.base < 0 and before.ahead < 0 else before.clock
    while position < mark:
        owned.go_on()
        owned.rolled = (position - start, mark - start)
        before_chunk = position
        changes, position = await log.read_changes(task.changelog, position, mark)
        if position == before_chunk:
            log.waits(task.changelog, position, mark, await obstacle(log, task.changelog, position, mark))
        if changes:
            store.write(changes, before.partly(position, since))
        if _outdated(clock, owned, steps, since):
            return False
    store.write({}, before.at(last.step, offset + 1, mark, last.clock))
    return True


def roll_nothing(owned: Owned, steps: Sequence[tuple[Offset, StepRecord]]) -> None:
    """A task without state starts from its last step record."""
    if steps:
        offset, last = steps[-1]
        store = owned.opened()
        store.write({}, store.progress.at(last.step, offset + 1, 0, last.clock))


def overtaken(owned: Owned, steps: Sequence[tuple[Offset, StepRecord]]) -> bool:
    """Whether divisions that a lazy store still needs are deleted: trimmed below a version newer than the one it came from.

    not overtaken  ⇔  the steps read after the store's are store.step + 1, store.step + 2, …
    """
    if not owned.task.replayed:
        return False
    at = owned.opened().progress.step
    after = [record.step for _, record in steps if record.step > at]
    return after != list(range(at + 1, at + 1 + len(after)))


def torn(owned: Owned) -> Step | None:
    """A lazy store that has a part of the changelog, from when the task was eager, is at no step. Returns the step that
    another store must be older than."""
    progress = owned.opened().progress
    return Step(progress.step + 1) if owned.task.replayed and progress.ahead >= 0 else None


async def roll_divisions(replayer: Replayer, owned: Owned, steps: Sequence[tuple[Offset, StepRecord]]) -> None:
    """Run the recorded steps again. If they give another output than they published, leaves a correction to be committed, or
    raises DivergenceError if the replayer does not correct."""
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
    """What recorded steps emit now, each over the state after those before it. Corrections are not run."""
    ran = []
    for record in records:
        owned.go_on()
        if record.corrects < 0:
            ran.append(await replayer.replay(owned.task.id, record, state))
        owned.rolled = (owned.rolled[0] + 1, owned.rolled[1])
    return ran


def diverged(task: Task, first: StepRecord, last: StepRecord) -> DivergenceError:
    """Recorded steps give another output now."""
    which = f"step {last.step}" if first is last else f"what step {last.step} corrected from step {first.step} on"
    return DivergenceError(
        f"task {task.id}: {which}, run again, gives another output than the one it published",
        where=", ".join(map(str, first.division)),
        hint="if the code was changed, or what it runs on, and the app had not ended cleanly: start it with --on-divergence "
        "correct, which publishes the difference; or run what was there before, end it, and change it then. If nothing "
        "was changed: under the lazy regime every operator must be a function of its input, its state and ctx.now(); look "
        f"for random numbers, clocks, or calls to other services in the operators of stage {task.id.stage!r}",
    )
