"""Broadcast tables, under protocols that lack a clause: see `weaken`."""

from __future__ import annotations

from collections.abc import Mapping

from falkirk.checkpoint.ids import InputPartition, Offset
from falkirk.checkpoint.overlay import Overlay
from falkirk.runtime.app.app import BoundTask
from falkirk.runtime.worker.reading.broadcast import SharedTables, TableCopy
from falkirk.state.store import Progress
from falkirk.testing.simulator.flows.broadcasts import Broadcasts
from falkirk.testing.simulator.plan import Crash, Plan, Takes
from falkirk.testing.simulator.weakened.weakening import COMMIT, Patch, Schedule, Weakening


def ready_at_once(self: SharedTables, task: BoundTask, ends: Mapping[InputPartition, Offset]) -> bool:
    """Whoever has the task steps it."""
    return True


def keep_position_first(self: TableCopy) -> None:
    """The position is one write, and the rows are the next."""
    rows = Overlay(self.store)
    for run in self.arrivals.take():
        self._keeper.keep(run, rows, self.arrivals.about.visible)
    if rows.changes:
        position = Overlay(self.store)
        self._keeper.tell(position, self.arrivals.about)
        for changes in (position.changes, rows.changes):
            self.store.write(changes, Progress(self.store.progress.step + 1, 0, 0))


LOOKED_UP = Broadcasts(inputs=10)

BROADCASTS: dict[str, Weakening] = {
    "table-behind": Weakening(
        "a task runs on a worker whose copy of a broadcast table is not as far as the task has seen the table",
        (Patch(SharedTables, "ready", ready_at_once),),
        Schedule(
            LOOKED_UP,
            Plan(
                (Takes(worker=1, on="takes in", turns=150), Crash(worker=0, on=COMMIT + ": done", at=8, back_after=900))
            ),
        ),
    ),
    "table-position-first": Weakening(
        "a worker's copy of a broadcast table is written after its position",
        (Patch(TableCopy, "keep", keep_position_first),),
        Schedule(LOOKED_UP, Plan((Crash(worker=0, on=COMMIT + ": done", at=6, keep=15),))),
    ),
}
