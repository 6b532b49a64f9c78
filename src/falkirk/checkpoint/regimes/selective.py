"""Selective rollback (seed 000, sections 2.3 and 3.3): a recovery does not read rows again whose time is complete.

Where all of a task's state is kept by event time, and goes when its time is complete, a recovery needs no state of before: it
begins with none, at the first row that still counts. It undoes the work on unfinished times, and keeps that on finished ones.

    step          …  a  ─────────────────────────▶  b  ─────▶ last
    rows up to a     count at most until needed(a)
    watermark                                       complete(b): no state is left of rows that counted until then
    recovery         kept(a)  a+1 … b run again     state(b), as it was     b+1 … last run again, and are compared

    needed(a) ≤ complete(b)   ⇒   state(b) = fold of the circuit over divisions a+1..b, begun with kept(a)

Steps record a `SelectiveCheckpoint` now and then. Rows keep their order. Nothing is reordered, as section 3.3 allows it:
state of one time does not depend on rows of another.

On the way from a to b the state is none that the task has ever had: windows that were complete before b lack rows of before
a. So what these steps emit is dropped and not compared, and until b the store is at no step. What breaks otherwise: whoever
takes over from a worker that dies between a and b would take such windows for whole ones. The store says from which a it
came, and how far it is, so its next owner goes on there. If b's checkpoint comes out differently, or a step fails, all steps
after a version run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from falkirk.checkpoint.ids import Step
from falkirk.checkpoint.overlay import Overlay
from falkirk.checkpoint.ports import Stores
from falkirk.checkpoint.records import RecordedStep, SelectiveCheckpoint, StepRecord
from falkirk.checkpoint.regimes.recovery import Means
from falkirk.checkpoint.tasks import Owned
from falkirk.errors import FalkirkError
from falkirk.state.store import Progress

FLUSH_STEPS = 200
"""After so many steps run again, a flush keeps them. Otherwise a worker that is killed more often than it makes versions
would have more and more steps to run again."""


class SelectiveRollback(NamedTuple):
    """Where a recovery begins, and from which step on the state is the task's."""

    after: Step
    """a: the steps after it run again."""
    start: Progress
    """Of a store that holds what was kept at a: at no step, unless a is b."""
    kept: tuple[tuple[bytes, bytes], ...]
    end: Step
    """b."""
    expected: SelectiveCheckpoint
    """b's checkpoint: the steps that run again must lead to it."""


def plan_rollback(steps: Sequence[RecordedStep], at: Progress, layout: int | None = None) -> SelectiveRollback | None:
    """The shortest way to the last of these steps. None: a store with this progress has no more steps to run again.

    b is the newest step with a checkpoint, and a the newest that it makes superfluous. From a on the flow must be one
    (`layout`; None: the last step's), and each step must have done nothing but read on.
    """
    layout = steps[-1][1].layout if layout is None and steps else layout
    newest_first = takewhile(lambda s: reads_on(s[1]) and s[1].layout == layout, reversed(steps))
    marked = [(offset, record, record.selective) for offset, record in newest_first if record.selective is not None]
    if not marked:
        return None
    _, end, found = marked[0]
    for offset, begin, before in marked:
        if before.needed <= found.complete:
            if begin.step <= at.step:
                return None
            # If no row counts at all, a is b, and what was kept is the state.
            begins = Progress(begin.step, offset + 1, 0, begin.clock)
            if begin is not end:
                begins = Progress(-1, offset + 1, 0, begin.clock, ahead=offset + 1)
            return SelectiveRollback(begin.step, begins, before.kept, end.step, found)
    return None


def reads_on(record: StepRecord) -> bool:
    """Whether a step has done nothing but read its division, over a state that began empty."""
    return record.corrects < 0 and record.move is None and record.base < 0


async def roll_back(means: Means, owned: Owned, steps: Sequence[RecordedStep]) -> bool:
    """Take the shortest way to step b, if there is one. False: there is no way from the open store, and another is open.
    Raises Revoked."""
    at = owned.opened().progress
    back = plan_rollback(steps, at, owned.task.layout)
    # Corrections compare what all steps say.
    if back is None or owned.rollback_failed or means.replayer.corrects:
        return not on_its_way(at) or await reopen_newest(means.stores, owned)
    owned.steps_saved = back.after - at.step
    if not continues(at, back):
        owned.opened().close()
        owned.store = await means.stores.fresh(owned.task.id)
        owned.store.write(dict(back.kept), back.start)
    try:
        owned.rollback_failed = await _run_to(means, owned, steps, back)
    except FalkirkError as error:
        owned.rollback_failed = str(error)
    if not owned.rollback_failed:
        return True
    owned.steps_saved = 0
    return await reopen_newest(means.stores, owned)


def on_its_way(at: Progress) -> bool:
    """Whether a store is between a and b."""
    return at.step < 0 and at.ahead >= 0


def continues(at: Progress, back: SelectiveRollback) -> bool:
    """Whether a store on its way, from this a or an earlier one, is as far as a already. Steps before a may be gone."""
    return on_its_way(at) and 0 <= back.start.ahead <= at.ahead


async def _run_to(means: Means, owned: Owned, steps: Sequence[RecordedStep], back: SelectiveRollback) -> str:
    """Run the steps up to b again. Returns why the state is then not that of b; "": it is."""
    store, task = owned.opened(), owned.task.id
    todo = [(offset, record) for offset, record in steps if offset >= store.progress.ahead >= 0]
    owned.rolled = (0, len(todo))
    for n, (offset, record) in enumerate(todo, 1):
        owned.go_on()
        state = Overlay(store)
        await means.replayer.replay(task, record, state)
        owned.rolled = (n, len(todo))
        if record.step < back.end:
            store.write(state.changes, store.progress.partly(offset + 1, record.clock))
            if n % FLUSH_STEPS == 0:
                store.flush()
            continue
        if means.replayer.selective(task, state) != back.expected:
            return f"step {record.step}, run again, has another watermark"
        store.write(state.changes, store.progress.at(record.step, offset + 1, 0, record.clock))
        break
    return ""


async def reopen_newest(stores: Stores, owned: Owned) -> bool:
    """In place of a store that is at no step: the newest version, or an empty store. Returns False."""
    owned.opened().close()
    store = await stores.newer(owned.task.id, Step(-1), owned.go_on)
    if store.progress.step < 0:
        store.close()
        store = await stores.fresh(owned.task.id)
    owned.store = store
    return False
