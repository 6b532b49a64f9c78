"""A backfill: the states that an app's first steps begin with, computed beside it from a recorded division.

    driver   opened ──▶ claim: name yourself for every task, fence, read ──▶ a base of every task ──▶ results ──▶ completed
                                             └── a step exists: the app has run, give up
    worker   named ──▶ fenced, read: no step ──▶ look ──▶ open: refuse │ complete: its base and division │ none: as usual

    no step 0 without the base  ⇔  both write before they look: the driver `opened` and its names, a worker its name

The driver fences a worker that was named before it. The worker's step 0 is read, or never commits: if it renews its
producer, it finds the driver's name after its own. A worker named after the driver looks after `opened` was written.
Completed comes after the results, and a task's base before its results: so Completed comes after all bases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from falkirk.checkpoint.epochs import Epochs
from falkirk.checkpoint.ids import Nonce, Offset
from falkirk.checkpoint.ports import Aborted, Backfilled, Log, Stores, Unknown, Writes
from falkirk.checkpoint.reading import fence_rivals, read_to_marks
from falkirk.checkpoint.records import Named, StepRecord, encode
from falkirk.checkpoint.tasks import Owned, Task
from falkirk.errors import StateError


async def claim(log: Log, tasks: Sequence[Task], fresh: Callable[[], Nonce], host: str = "") -> StepRecord | None:
    """Take every task, so that no worker makes its first step without looking. Returns a step that already exists, if any.

    Clauses 5a to 5c of the protocol, under an id that no other driver has. A second driver does no harm: each has its
    answer when it has read. Whoever meets what a dead driver left open fences it.
    """
    while True:
        await log.renew()
        try:
            await log.begin()
            for task in tasks:
                name = encode(Named(fresh(), log.owner, host))
                key = str(task.id).encode()
                await log.send(Writes(task.steps.topic, [task.steps.partition], [key], [name]))
            await log.commit()
            break
        except (Aborted, Unknown):
            continue
    steps = [task.steps for task in tasks]
    await fence_rivals(log, steps)
    starts = await log.start(steps)
    # Read to the end, even if others were named since: only a step of earlier owners counts.
    reads = await read_to_marks(log, starts, lambda place, records: False)
    made = (r for read in reads.values() for _, r in read.records if isinstance(r, StepRecord))
    return next(made, None)


def backfilled(epochs: Epochs, where: str) -> Backfilled | None:
    """The complete backfill by its records, or None. Raises StateError while it is open."""
    if epochs.kept:
        complete = epochs.kept[-1]
        return Backfilled(complete.opening, complete.opened.division, complete.opened.stages)
    if epochs.open and epochs.opened is not None:
        raise StateError(
            "a backfill of the app is under way: its states are not complete",
            where=f"{where}, opened by {epochs.opened.driver}",
            hint="run `falkirk backfill` until it is complete, or give it up with `falkirk backfill … --abandon`",
        )
    return None


async def begin(stores: Stores, owned: Owned) -> None:
    """Begin a named and read task without steps: with the backfill's state and division, or empty, as a task of a stage that
    was added after the backfill. Raises StateError."""
    found = await stores.backfilled()
    if found is not None and not found.made(owned.task.id):
        found = None
    base = found.base if found is not None and owned.task.recovery.keeps_state else Offset(-1)
    if owned.opened().progress.base != base:
        await replace(stores, owned, base)
    owned.backfilled = () if found is None else found.division


async def replace(stores: Stores, owned: Owned, base: Offset) -> None:
    """Replace the open store by the backfill's state. Raises StateError if the store belongs to another history."""
    store = owned.opened()
    if store.progress.base >= 0 or store.progress.step >= 0 or base < 0:
        raise StateError(
            f"the state of task {owned.task.id} began with backfill {store.progress.base}, and its steps with {base} "
            "(−1: with none)",
            where=f"{owned.task.steps.topic}[{owned.task.steps.partition}]",
            hint="is the state directory another app's, or were the app's topics recreated? Give the app a state directory "
            "and a checkpoint store of its own",
        )
    store.close()
    owned.store = await stores.based(owned.task.id, base, owned.go_on)
