"""Selective rollbacks that lack a clause: see `weaken`."""

from __future__ import annotations

from collections.abc import Sequence

from falkirk.checkpoint.overlay import Overlay
from falkirk.checkpoint.records import RecordedStep
from falkirk.checkpoint.regimes import selective
from falkirk.checkpoint.regimes.recovery import Means
from falkirk.checkpoint.regimes.selective import SelectiveRollback
from falkirk.checkpoint.tasks import Owned
from falkirk.state.store import Progress
from falkirk.testing.simulator.flows.windows import Windowed
from falkirk.testing.simulator.plan import FOREVER, Crash, Plan
from falkirk.testing.simulator.weakened.weakening import COMMIT, Patch, Schedule, Weakening

_plan_rollback = selective.plan_rollback


def plan_rollback_to_the_last(
    steps: Sequence[RecordedStep], at: Progress, layout: int | None = None
) -> SelectiveRollback | None:
    """From the last step with a checkpoint before b."""
    found = _plan_rollback(steps, at, layout)
    if found is None:
        return None
    marked = [(offset, r) for offset, r in steps if r.selective is not None and r.step < found.end]
    offset, begin = marked[-1]
    assert begin.selective is not None
    begins = Progress(-1, offset + 1, 0, begin.clock, ahead=offset + 1)
    return SelectiveRollback(begin.step, begins, begin.selective.kept, found.end, found.expected)


async def run_to_and_claim(means: Means, owned: Owned, steps: Sequence[RecordedStep], back: SelectiveRollback) -> str:
    """Each step that runs again is said to be in the store."""
    for offset, record in steps:
        if record.step > max(back.after, owned.opened().progress.step):
            owned.go_on()
            state = Overlay(owned.opened())
            await means.replayer.replay(owned.task.id, record, state)
            owned.opened().write(state.changes, owned.opened().progress.at(record.step, offset + 1, 0, record.clock))
    return ""


FINE = Windowed(inputs=40, apart=200, version_every=17)
"""A window gets several rows from each bidder, in as many steps."""
LOST = Crash(worker=0, on=COMMIT + ": done", at=14, lost=True, back_after=300)
DIES = Crash(worker=1, on="recovery of 0: runs step 9 again", keep=FOREVER, back_after=12)
"""On its way, with all that it has written on its disk."""

WINDOWS: dict[str, Weakening] = {
    "windows-lack-rows": Weakening(
        "a selective rollback begins at a step that is not old enough: rows before it still count",
        (Patch(selective, "plan_rollback", plan_rollback_to_the_last),),
        Schedule(FINE, Plan((LOST,))),
    ),
    "claims-on-its-way": Weakening(
        "a store amid a selective rollback says that it is at the step that has run again",
        (Patch(selective, "_run_to", run_to_and_claim),),
        Schedule(FINE, Plan((LOST, DIES))),
    ),
}
