"""Tasks that move state to another schema, and lack a clause: see `weaken`."""

from __future__ import annotations

from typing import Any

from falkirk.checkpoint.tasks import ClosedStep
from falkirk.runtime.worker.reading.intake import Intake
from falkirk.runtime.worker.task import RunningTask
from falkirk.state import schema
from falkirk.state.store import State
from falkirk.stream.dataflow.operator import Pairs
from falkirk.stream.evolution.moving import StateMigrator, TableMigration
from falkirk.stream.stages.kept import MOVED
from falkirk.testing.simulator.flows.moves import Moves
from falkirk.testing.simulator.plan import Change, Doubt, Plan
from falkirk.testing.simulator.points import Order
from falkirk.testing.simulator.weakened.weakening import COMMIT, Patch, Schedule, Weakening

_puts, _move, _close, _following = (
    TableMigration.puts,
    StateMigrator.move,
    RunningTask.close_step,
    RunningTask._following,
)
_moved = schema.moved
_CURSOR = "cursor"


def puts_without_deleting(self: TableMigration, pairs: Pairs) -> dict[bytes, bytes | None]:
    """The old rows stay."""
    return {key: value for key, value in _puts(self, pairs).items() if value is not None}


def move_from_a_cursor_beside_the_state(self: StateMigrator, state: State) -> None:
    """The migrator itself knows how far the search is."""
    cursor = getattr(self, _CURSOR, None)
    if cursor is not None:
        state.put(self.marks, [cursor] * len(self.marks))
    if cursor != MOVED:
        _move(self, state)
    setattr(self, _CURSOR, state.get(self.marks)[0])


def following_without_a_move(self: RunningTask, intake: Intake) -> Intake:
    """The inputs are read at once."""
    return _following(self, max(intake, Intake.MOVING))


def close_over_rows_first(self: RunningTask, *given: Any, **more: Any) -> ClosedStep:
    """What has been read goes before what is to be moved."""
    moving, self.moving = self.moving, self.moving and not self.rows
    reads = moving and not self.moving
    closed = _close(self, *given, **more)
    if reads:
        self.moving = moving
    return closed


def moved_last(state_schema: str) -> list[schema.Line]:
    """What the version before kept, and none before that."""
    return _moved(state_schema)[-1:]


ONE = Moves(inputs=4)

MOVES: dict[str, Weakening] = {
    "moved-not-deleted": Weakening(
        "a row that was moved to another schema stays in the old table, too",
        (Patch(TableMigration, "puts", puts_without_deleting),),
        Schedule(ONE, Plan()),
    ),
    "moved-by-a-cursor": Weakening(
        "how far a move is, is not part of its steps' state: after an abort, the next step moves the rows that follow",
        (Patch(StateMigrator, "move", move_from_a_cursor_beside_the_state),),
        Schedule(ONE, Plan((Doubt(worker=0, on="committer: sends offsets", at=2, order=Order.REFUSE),))),
    ),
    "read-while-moving": Weakening(
        "a task reads input before all rows are moved: a row that it writes is overwritten by the older one",
        (
            Patch(RunningTask, "_following", following_without_a_move),
            Patch(RunningTask, "close_step", close_over_rows_first),
        ),
        Schedule(ONE, Plan()),
    ),
    "moved-from-the-last": Weakening(
        "a flow moves what the version before it kept, and not what that one has left of an earlier version",
        (Patch(schema, "moved", moved_last),),
        Schedule(ONE, Plan((Change(worker=0, on=COMMIT + ": done", at=2, new=False, corrects=False),))),
    ),
}
