"""A backfill: the states with which an app's first steps begin, computed beside it from a recorded division.

    driver   opened ──▶ claim: name yourself for every task, fence, read ──▶ a base of every task ──▶ results ──▶ completed
                                             └── a step is there: the app has run, give up
    worker   named ──▶ fenced, read: no step ──▶ look ──▶ open: refuse │ complete: its base and division │ none: as ever

    no step 0 without the base  ⇔  both write before they look: the driver `opened` and its names, a worker its name

A worker that was named before the driver is fenced by it, and its step 0 is read, or never commits: should it renew its
producer, it finds the driver's name after its own. One that is named after the driver looks after `opened` was written.
Completed comes after all bases, for it comes after the results, and a task's base before any of its results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from falkirk.checkpoint.epochs import Epochs
from falkirk.checkpoint.ids import Nonce, Offset
from falkirk.checkpoint.ports import Aborted, Backfilled, Log, Stores, Unknown, Writes
from falkirk.checkpoint.reading import decoded, fence_rivals, read_to_marks
from falkirk.checkpoint.records import Named, StepRecord, encode
from falkirk.checkpoint.tasks import Owned, Task
from falkirk.errors import StateError


async def claim(log: Log, tasks: Sequence[Task], fresh: Callable[[], Nonce], host: str = "") -> StepRecord | None:
    """Take every task, so that nobody makes a first step of it without looking; a step that is there already, if one is.

    Clauses 5a to 5c of the protocol, under an id that no other driver has: a second one that does the same is no rival, for
    each has the answer that it came for when it has read. What a driver that died has left open is fenced by whoever meets
    it.
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
    # Read to the end, whoever was named meanwhile: what counts is a step of those who were named before.
    reads = await read_to_marks(log, starts, lambda place, records: False)
    made = (r for read in reads.values() for _, r in decoded(read) if isinstance(r, StepRecord))
    return next(made, None)


def backfilled(epochs: Epochs, where: str) -> Backfilled | None:
    """What the records of a backfill say: the complete one, or None. Raises StateError while it is open."""
    if epochs.kept:
        complete = epochs.kept[-1]
        return Backfilled(complete.opening, complete.opened.division)
    if epochs.open and epochs.opened is not None:
        raise StateError(
            "a backfill of the app is under way: its states are not complete",
            where=f"{where}, opened by {epochs.opened.driver}",
            hint="run `falkirk backfill` until it is complete, or give it up with `falkirk backfill … --abandon`",
        )
    return None


async def begin(stores: Stores, tasks: Sequence[Owned]) -> None:
    """Tasks without a step, named and read: the backfill's state and division, or else the empty state. Raises StateError."""
    if not tasks:
        return
    found = await stores.backfilled()
    for owned in tasks:
        base = found.base if found is not None and owned.task.stateful else Offset(-1)
        if owned.opened().progress.base != base:
            await replace(stores, owned, base)
        owned.begins = () if found is None else found.division


async def replace(stores: Stores, owned: Owned, base: Offset) -> None:
    """The backfill's state in the place of the store that is open. Raises StateError where it does not follow from it."""
    store = owned.opened()
    if store.progress.base >= 0 or store.progress.step >= 0 or base < 0:
        raise StateError(
            f"the state of task {owned.task.id} began with backfill {store.progress.base}, and its steps with {base} "
            "(−1: with none)",
            where=f"{owned.task.steps.topic}[{owned.task.steps.partition}]",
            hint="is the state directory another app's, or were the app's topics made anew? Give the app a state directory "
            "and a checkpoint store of its own",
        )
    store.close()
    owned.store = await stores.based(owned.task.id, base)
