"""A worker looks only at the tasks that have something to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.bad_input.stand import Stand
from tests.runtime.parts import domain_of, running
from tests.runtime.worker.test_pending import messages

from falkirk.checkpoint.ids import Millis, Offset
from falkirk.runtime.observe.traces import SILENT
from falkirk.runtime.worker.reading.intake import Intake
from falkirk.runtime.worker.run_queue import RunQueue
from falkirk.runtime.worker.task import RunningTask
from falkirk.runtime.worker.worker import Worker


@pytest.fixture
def task() -> RunningTask:
    task = running(0)
    domain_of(task, traces=SILENT)
    return task


def offer(task: RunningTask, *values: bytes) -> None:
    task.offer(task.bound.inputs[0].place, messages(*values))


def test_a_task_is_pending_from_its_first_row_until_no_row_is_left(task: RunningTask) -> None:
    queue = RunQueue()
    queue.arrived([task])
    assert not queue.pending()
    offer(task, b"a", b"bc")
    queue.arrived([task])
    assert (queue.pending(), queue.rows, queue.bytes) == ([task], 2, 3)
    task._pending.take(1)
    queue.changed(task)
    assert (queue.pending(), queue.rows) == ([task], 1)
    task._pending.take(1)
    queue.changed(task)
    assert (queue.pending(), queue.rows, queue.bytes) == ([], 0, 0)


def test_a_task_is_due_when_its_timer_is_and_at_once_while_it_moves_or_a_topic_joins(task: RunningTask) -> None:
    queue = RunQueue()
    task.wake_at = 70
    queue.changed(task)
    assert (queue.due(Millis(69)), queue.due(Millis(70))) == ([], [task])
    task.wake_at, task.moving = None, True
    queue.changed(task)
    assert queue.due(Millis(0)) == [task]
    task.moving = False
    task.join({task.bound.inputs[0].partition._replace(partition=9): Offset(0)})
    queue.changed(task)
    assert queue.due(Millis(0)) == [task]
    task.join({})
    queue.changed(task)
    assert queue.due(Millis(1_000)) == []


def test_a_task_that_waits_for_its_tables_does_not_run_and_its_rows_count_against_the_bound(task: RunningTask) -> None:
    queue, task.intake, task.wake_at = RunQueue(), Intake.HELD, 0
    offer(task, b"a")
    queue.arrived([task])
    queue.changed(task)
    assert (queue.pending(), queue.due(Millis(1)), queue.rows) == ([], [], 1)
    task.advance()
    assert (queue.pending(), queue.due(Millis(1))) == ([task], [task])


def test_a_task_that_left_neither_runs_nor_counts(task: RunningTask) -> None:
    queue, task.wake_at = RunQueue(), 0
    offer(task, b"a")
    queue.arrived([task])
    queue.changed(task)
    queue.forget(task)
    assert (queue.pending(), queue.due(Millis(1)), queue.rows, queue.bytes) == ([], [], 0, 0)


@pytest.fixture
def worker(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[tuple[Stand, Worker]]:
    """One that has counted 40 bids, and has nothing more to do."""
    stand = Stand(kafka, topic_prefix, tmp_path)
    stand.topic(partitions=4)
    stand.bids(40)
    with stand.worker(stand.flow()) as worker:
        worker.join()
        while sum(worker.stats.rows.values()) < stand.sent or not all(
            domain.quiet for domain in worker.domains.values()
        ):
            worker.turn()
        yield stand, worker


@pytest.mark.kafka
def test_an_idle_turn_asks_no_task_and_a_row_concerns_its_own_task_alone(
    worker: tuple[Stand, Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand, one = worker
    asked: set[int] = set()

    def noted(name: str) -> Any:
        was: Any = getattr(RunningTask, name)

        def note(self: RunningTask, *given: Any) -> Any:
            asked.add(self.bound.task.id.partition)
            return was.fget(self) if isinstance(was, property) else was(self, *given)

        return property(note) if isinstance(was, property) else note

    for name in ("rows", "bytes", "begun", "due_at", "opening", "advance", "joined", "positions", "close_step"):
        monkeypatch.setattr(RunningTask, name, noted(name))
    for _ in range(20):
        one.turn()
    assert not asked
    before = sum(one.stats.rows.values())
    _, offset = stand.put(b"1", b'{"id":40,"auction":1,"bidder":1,"price":1}', partition=3)
    assert offset >= 0
    while sum(one.stats.rows.values()) == before:
        one.turn()
    assert asked == {3}
