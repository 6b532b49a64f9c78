"""A task never goes back to an older flow."""

from __future__ import annotations

import pytest

from falkirk.checkpoint.ids import Millis, Nonce, Offset, OwnerId, Step, TaskId, TopicPartition
from falkirk.checkpoint.invariants import chain
from falkirk.checkpoint.records import StepRecord
from falkirk.checkpoint.regimes import Lazy
from falkirk.checkpoint.takeover import check_layout
from falkirk.checkpoint.tasks import InvariantError, Owned, Task
from falkirk.errors import StateError


def step(number: int, layout: int) -> StepRecord:
    return StepRecord("s/0", Step(number), Nonce("n"), OwnerId("w"), Millis(0), (), (), "", layout=layout)


def test_a_worker_of_an_older_flow_is_refused_a_task_that_has_gone_on() -> None:
    owned = Owned(Task(TaskId("s", 0), TopicPartition("steps", 0), Lazy(), layout=2))
    check_layout(owned, [])
    check_layout(owned, [(Offset(0), step(0, 1)), (Offset(1), step(1, 2))])
    with pytest.raises(StateError, match="has gone on under layout 3, and this worker runs layout 2"):
        check_layout(owned, [(Offset(0), step(0, 1)), (Offset(1), step(1, 3))])


def test_layouts_of_a_tasks_steps_do_not_go_back() -> None:
    chain([step(0, 1), step(1, 1), step(2, 4)])
    with pytest.raises(InvariantError, match="an older flow's than step 1"):
        chain([step(0, 1), step(1, 2), step(2, 1)])
