"""Topics that join while the app runs, under protocols that lack a clause: see `weaken`."""

from __future__ import annotations

from collections.abc import Mapping

from falkirk.checkpoint.ids import InputPartition, Offset, TopicPartition
from falkirk.runtime.worker.task import RunningTask
from falkirk.testing.simulator.flows.joins import JOINED, Joins
from falkirk.testing.simulator.plan import Doubt, Plan
from falkirk.testing.simulator.points import Order
from falkirk.testing.simulator.weakened.weakening import Patch, Schedule, Weakening

_rewind, _join = RunningTask.rewind, RunningTask.join


def rewind_and_forget(self: RunningTask) -> dict[TopicPartition, Offset]:
    """The step that was to record a topic was aborted, and no other does."""
    self._joining = {}
    return _rewind(self)


def join_at_once(self: RunningTask, begins: Mapping[InputPartition, Offset]) -> None:
    """The next step reads a topic that no step has recorded."""
    _join(self, begins)
    self._ends |= begins


TWO_TOPICS = Joins(inputs=5)

JOINS: dict[str, Weakening] = {
    "forget-joining": Weakening(
        "if the step that records where a topic begins is aborted, no other does",
        (Patch(RunningTask, "rewind", rewind_and_forget),),
        Schedule(TWO_TOPICS, Plan((JOINED, Doubt(worker=0, on="committer: sends offsets", at=6, order=Order.REFUSE)))),
    ),
    "read-before-recorded": Weakening(
        "a topic that joins is read by a step before one has recorded where it begins",
        (Patch(RunningTask, "join", join_at_once),),
        Schedule(TWO_TOPICS, Plan((JOINED,))),
    ),
}
