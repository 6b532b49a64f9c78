"""Lazy: steps log no state, because their divisions are the log.

state(n) = fold of the circuit over the recorded divisions since state(v)

Each output's digest is compared with the record's, and the output is dropped: it is already published (another digest:
`falkirk.checkpoint.correction`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from falkirk.checkpoint.correction import covered, joint_digest, unit_digest, units
from falkirk.checkpoint.ids import InputPartition, Millis, Step, TopicPartition
from falkirk.checkpoint.overlay import Overlay
from falkirk.checkpoint.planning.rates import Cost, Replay
from falkirk.checkpoint.ports import Output, Replayer, Stores
from falkirk.checkpoint.records import RecordedStep, StepRecord
from falkirk.checkpoint.regimes.floors import Floor
from falkirk.checkpoint.regimes.recovery import LogBounds, Means, Recovery, Requires
from falkirk.checkpoint.regimes.selective import FLUSH_STEPS, plan_rollback, roll_back
from falkirk.checkpoint.tasks import ClosedStep, Correction, Owned, Task
from falkirk.errors import DivergenceError, StateError
from falkirk.state.store import EMPTY, Progress


class Lazy(Recovery):
    """The recorded steps since the newest version run again."""

    name: ClassVar[str] = "lazy"
    requires: ClassVar[Requires] = Requires(same_records=True, same_outputs=True)
    order: ClassVar[int] = 1
    presumed: ClassVar[Cost] = Cost(0.002, 4e-6)

    async def recover(self, means: Means, owned: Owned, steps: Sequence[RecordedStep], bounds: LogBounds) -> bool:
        """Run the recorded steps again, of which a selective rollback needs fewer. False: that has failed; or the log did not
        reach back to the store, because a worker that slept has trimmed it below its own version; or the store was amid
        corrected steps; or it was at no step."""
        if not await roll_back(means, owned, steps):
            return False
        if overtaken(owned, steps):  # so no older store leads on, either
            await reopen(means.stores, owned)
            return False
        below = covered(owned, steps)
        if below is None:
            below = torn(owned)
        if below is not None:
            await reopen(means.stores, owned, below)
            return False
        await roll_divisions(means.replayer, owned, steps)
        return True

    def replay(self, progress: Progress, steps: Sequence[RecordedStep], bounds: LogBounds) -> Replay:
        """The steps after the store's, or after those that need not run again, and the records that they read."""
        back = plan_rollback(steps, progress)
        begin = progress.step if back is None else back.after
        todo = [record for _, record in steps if record.step > begin]
        return Replay(len(todo), sum(record.rows for record in todo))

    def leads(self, steps: Sequence[RecordedStep]) -> bool:
        """Also if a selective rollback needs no earlier ones."""
        return super().leads(steps) or plan_rollback(steps, EMPTY) is not None

    def grows(self, step: ClosedStep) -> Replay:
        """The step, and what it has read."""
        return Replay(1, step.record.rows)

    def floor(self, last: StepRecord | None, edges: Mapping[InputPartition, TopicPartition]) -> Floor:
        """Where the last step began. The record of a version's own step stays. So a store of the step before is not
        overtaken: it is rolled, and that step runs again."""
        if last is None:
            return {}
        began = {r.partition: r.start for r in last.division}
        return {place: began[partition] for partition, place in edges.items()}

    def waited(self, since: Millis, now: float) -> float:
        """Since the newest version, however often the task was taken over: each take-over runs again what is behind it."""
        return max(now - since / 1000, 0.0)


def overtaken(owned: Owned, steps: Sequence[RecordedStep]) -> bool:
    """Whether divisions that a lazy store still needs are deleted: trimmed below a version newer than the one it came from.

    not overtaken  ⇔  the steps read after the store's are store.step + 1, store.step + 2, …
    """
    at = owned.opened().progress.step
    after = [record.step for _, record in steps if record.step > at]
    return after != list(range(at + 1, at + 1 + len(after)))


def torn(owned: Owned) -> Step | None:
    """A lazy store that has a part of the changelog, from when the task was eager, is at no step. Returns the step that
    another store must be older than."""
    progress = owned.opened().progress
    return Step(progress.step + 1) if progress.ahead >= 0 else None


async def reopen(stores: Stores, owned: Owned, below: Step | None = None) -> None:
    """Replace the open store by the newest version, or the newest one `below` a step. Raises StateError if it is not
    newer, or had to be older and the steps after it are gone."""
    task, at = owned.task, owned.opened().progress.step
    owned.opened().close()
    if below is not None and (owned.store_below is None or below < owned.store_below):
        owned.store, owned.store_below = await stores.before(task.id, below, owned.go_on), below
        return
    if owned.store_below is None:
        owned.store = await stores.newer(task.id, Step(at), owned.go_on)
    if owned.store_below is not None or owned.opened().progress.step <= at:
        raise StateError(
            f"task {task.id}: its store is at step {at}, and the steps after it are deleted already",
            where=f"{task.steps.topic}[{task.steps.partition}]",
            hint="bring back the state directory or the checkpoint store that held the task's versions, or give the flow "
            "another name, under which it starts from scratch",
        )


async def roll_divisions(replayer: Replayer, owned: Owned, steps: Sequence[RecordedStep]) -> None:
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
        if unit_digest(ran, last) == last.digest:
            store.write(state.changes, store.progress.at(last.step, offset + 1, 0, last.clock))
            continue
        first = unit[0][1]
        if not replayer.corrects:
            raise diverged(task, first, last)
        ran += await run_again(replayer, owned, [record for _, record in todo if record.step > last.step], state)
        records = [record for _, record in todo if record.step >= first.step]
        outputs = await replayer.difference(task.id, records, [o for step in ran for o in step], state)
        owned.correction = Correction(first.step, outputs, joint_digest(ran), dict(state.changes))
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
