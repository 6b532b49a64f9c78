from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from falkirk.checkpoint.ids import InputPartition, TaskId, TopicPartition
from falkirk.checkpoint.regimes import Eager, Lazy
from falkirk.checkpoint.tasks import Task
from falkirk.connectors.kafka.reading.lag import Remaining
from falkirk.runtime.app.app import App, BoundInput, BoundTask
from falkirk.runtime.messages.events import Ended, Started
from falkirk.runtime.messages.protocol import EpochReport, Report, TaskReport, decode_from_worker, encode
from falkirk.runtime.observe.board import Board
from falkirk.runtime.observe.console import frame, line
from falkirk.stream.dataflow.circuit import Circuit
from falkirk.stream.dataflow.topics import Input, Layout, Output
from falkirk.stream.definition.regime_plan import RegimePlan
from falkirk.stream.stages.plan import Plan


class Stage:
    """A stage of two tasks that reads `bids`."""

    id, stateful, partitioned_by, fingerprint, state_schema = "stats", True, "topic", "f00", "stats"
    inputs = (Input("bids", "bids", "source"),)
    outputs: tuple[Output, ...] = ()
    regime = RegimePlan("eager", timedelta(seconds=0.1), timedelta(seconds=10), 1, 1, Eager)

    def circuit(self, partition: int, layout: Layout) -> Circuit:
        raise NotImplementedError


def app() -> App:
    stage = Stage()
    tasks = tuple(
        BoundTask(
            Task(TaskId("stats", i), TopicPartition("steps", i), Lazy()),
            stage,  # type: ignore[arg-type]
            (BoundInput(stage.inputs[0], TopicPartition("bids", i), InputPartition("", "bids", "id", i)),),
        )
        for i in range(2)
    )
    return App("auctions", Plan("auctions", (stage,)), "steps", "control", Layout({}), {}, tasks, {}, None)  # type: ignore[arg-type]


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def running(task: int, end: int, mark: int, rows: int = 0) -> TaskReport:
    return TaskReport(f"stats/{task}", "running", 41, rows, 1, 7, 3.0, (end,), (mark,), skipped=2, late=3)


def rolling(task: int, done: int, total: int) -> TaskReport:
    return TaskReport(f"stats/{task}", "rolling", done=done, total=total)


BATCHES: Any = (SimpleNamespace(stage=SimpleNamespace(id="usual")),)
"""A batch part, as far as the board knows it."""

Say = Callable[..., str | None]


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def board(time: Time) -> Board:
    return Board(app(), 1, time)


def report(board: Board, *tasks: TaskReport, pid: int = 100, seconds: float = 1.0, commits: int = 10) -> str | None:
    return board.take(Report(0, "auctions.w-0", pid, list(tasks), seconds, 12.5, 8.25, commits))


def text(board: Board, progress: tuple[int, int] | None = None) -> str:
    console = Console(record=True, width=110, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(frame(board, "broker:9092", progress))
    return console.export_text()


def test_a_worker_that_dies_and_one_that_takes_its_place_are_told_with_the_time_it_took(
    board: Board, time: Time
) -> None:
    board.take(Started(0, 100))
    assert report(board, running(0, 5, 5), running(1, 5, 5)) == "worker 0 (pid 100) now runs 2 tasks"
    assert report(board, running(0, 6, 6), running(1, 5, 5)) is None
    told = board.take(Ended(0, 100, "was killed by signal 9"))
    assert told == "worker 0 (pid 100) was killed by signal 9; a spare takes its place"
    time.now = 0.1
    board.take(Started(0, 101))
    assert report(board, running(0, 9, 9), pid=100) is None  # the last words of the dead
    assert report(board, rolling(0, 0, 10), running(1, 5, 5), pid=101) is None
    time.now = 0.42
    assert report(board, running(0, 6, 6), running(1, 5, 5), pid=101) == (
        "worker 0 (pid 101) has recovered: 2 tasks in 0.42 s"
    )
    assert board.recoveries == 1


def test_a_worker_elsewhere_that_is_missed_later_has_been_away_since_it_was_heard_last(
    board: Board, time: Time
) -> None:
    board.take(Started(0, 100))
    report(board, running(0, 5, 5), running(1, 5, 5))
    time.now = 20.0
    assert board.take(Ended(0, 100, "is silent", "Spark must run it again", 12.0)) == (
        "worker 0 (pid 100) is silent; Spark must run it again"
    )
    assert [s.running for s in board.stages()] == [0]
    board.take(Started(0, 101))
    assert report(board, running(0, 6, 6), running(1, 5, 5), pid=101) == (
        "worker 0 (pid 101) has recovered: 2 tasks in 12.00 s"
    )


def test_what_a_dead_worker_said_last_is_corrected_once_until_its_successor_reports(board: Board) -> None:
    for slot in (0, 1):
        board.take(Started(slot, 100 + slot))
        board.take(Report(slot, f"app.{slot}", 100 + slot, [running(slot, 5, 5, 9)], commits=1, query="http://h:1"))
    board.take(Ended(0, 100, "was killed by signal 9"))
    board.take(Started(0, 102))
    other, gone = board.to_announce()
    assert (other.owner, [t.phase for t in other.tasks]) == ("app.1", ["running"])
    assert (gone.owner, gone.pid, gone.query) == ("app.0", 100, "")
    assert [(t.task, t.phase, t.step, t.rows, t.skipped) for t in gone.tasks] == [("stats/0", "recovering", 41, 0, 0)]
    assert [r.owner for r in board.to_announce()] == ["app.1"]
    board.take(Ended(1, 101, "was killed by signal 9"))
    board.take(Started(1, 103))
    board.take(Report(1, "app.1", 103, [rolling(1, 0, 10)]))
    assert [(r.pid, r.tasks[0].phase) for r in board.to_announce()] == [(103, "rolling")]


def test_a_spare_that_dies_is_not_taken_for_a_worker(board: Board) -> None:
    board.take(Started(0, 100))
    assert board.take(Ended(None, 7, "ended with code 1")) == "the spare (pid 7) ended with code 1; another is started"
    assert board.workers[0].down is None


def test_tasks_that_come_and_go_without_a_death_are_told(board: Board) -> None:
    board.take(Started(0, 100))
    report(board, running(0, 5, 5), running(1, 5, 5))
    assert report(board, running(0, 5, 5)) == "worker 0 (pid 100) now runs 1 task (was 2)"


def test_rates_are_averaged_over_a_window_and_lags_add_up(board: Board) -> None:
    board.take(Started(0, 100))
    for rows in (9_999, 100, 200, 300):
        report(board, running(0, 5, 105, rows), running(1, 5, 25, rows), seconds=4.0)
    (stage,) = board.stages()
    assert stage.rows_per_s == (200 + 300) * 2 / 8.0
    assert (stage.running, stage.tasks, stage.step, stage.versions, stage.lag) == (2, 2, 41, (7, 7), 120)
    assert (stage.dead, stage.skipped) == (8, 16)


def test_a_rate_is_that_of_the_time_in_which_something_was_committed(board: Board) -> None:
    board.take(Started(0, 100))
    report(board, running(0, 5, 5), running(1, 5, 5), commits=0)
    report(board, running(0, 5, 5, 3_000), running(1, 5, 5))
    report(board, running(0, 5, 5), running(1, 5, 5), commits=0)
    report(board, running(0, 5, 5, 1_000), running(1, 5, 5), seconds=0.5)
    report(board, running(0, 5, 5), running(1, 5, 5), commits=0)
    (stage,) = board.stages()
    assert stage.rows_per_s == 4_000 / 2.5
    for _ in range(10):
        report(board, running(0, 5, 5), running(1, 5, 5), commits=0)
    (stage,) = board.stages()
    assert stage.rows_per_s == 0
    assert board.read == 4_000


def test_no_rate_is_taken_of_less_than_a_second(board: Board) -> None:
    board.take(Started(0, 100))
    report(board, running(0, 5, 5), running(1, 5, 5), commits=0)
    report(board, running(0, 5, 5, 100), running(1, 5, 5), seconds=0.01)
    (stage,) = board.stages()
    assert stage.rows_per_s == 100


def test_a_run_until_the_end_says_what_it_waits_for_while_spark_works(board: Board) -> None:
    board.app = replace(board.app, batches=BATCHES)
    assert "Spark" not in line(board, (10, 20))
    assert "100 % of 20 input records" in line(board, (20, 20))
    assert "waits for Spark: the first epoch of usual (its driver is starting)" in line(board, (20, 20))
    board.take(EpochReport("usual", 3, "running", "Spark starts"))
    assert "waits for Spark: epoch 3 of usual: Spark starts" in line(board, (20, 20))
    assert "waits for Spark: epoch 3 of usual: Spark starts" in text(board, (20, 20))
    board.take(EpochReport("usual", 3, "running", "sorts", 1, 2))
    assert "waits for Spark: epoch 3 of usual: sorts 50 %" in line(board, (20, 20))
    board.take(EpochReport("usual", 3, "complete", "7 records in 2.0 s"))
    assert "waits for" not in line(board, (20, 20))


def test_a_flow_without_workers_has_no_input_records_of_its_own(board: Board) -> None:
    alone = Board(replace(board.app, plan=Plan("auctions", ()), tasks=(), batches=BATCHES), 1)
    assert "input records" not in line(alone, (0, 0))
    assert "waits for Spark: the first epoch of usual" in line(alone, (0, 0))


def test_a_lag_that_is_only_a_marker_is_none(board: Board) -> None:
    board.take(Started(0, 100))
    report(board, running(0, 5, 6))
    (left,) = board.left()
    assert board.lag() == 1
    board.counted = {Remaining(TopicPartition("bids", 0), left.position, left.mark): 0}
    assert board.lag() == 0


def test_a_recovery_tells_how_long_it_will_take(board: Board, time: Time) -> None:
    board.take(Started(0, 100))
    report(board, rolling(0, 100, 1100))
    time.now = 2.0
    report(board, rolling(0, 600, 1100))
    (recovery,) = board.recovering()
    assert (recovery.task, recovery.done, recovery.total, recovery.seconds_left) == ("stats/0", 600, 1100, 2.0)
    assert "recovering stats/0 (rolling 54 %, 0:02 left)" in line(board)


def test_a_task_that_another_worker_runs_by_now_does_not_recover(board: Board) -> None:
    """The worker that took it over first has died, and its last report is still here."""
    for slot in (0, 1):
        board.take(Started(slot, 100 + slot))
    board.take(Report(1, "auctions.w-1", 101, [TaskReport("stats/0", "rolling", done=10, total=20)], 1.0))
    assert [recovery.task for recovery in board.recovering()] == ["stats/0"]
    report(board, running(0, 5, 5))
    assert board.recovering() == []


def test_a_frame_shows_what_a_person_wants_to_know(board: Board, time: Time) -> None:
    board.take(Started(0, 100))
    report(board, running(0, 5, 1_239, 61_000), rolling(1, 30, 60))
    time.now = 75.0
    shown = text(board, (3_000, 4_000))
    for row in (
        "auctions  on broker:9092  up 1:15  read 61,000 records  recoveries 0",
        "worker      pid              tasks  records/s  step ms  commit ms  commits/s",
        "0           100  recovering      2     61,000     12.5        8.2       10.0",
        "stage  regime    tasks  records/s        lag     step    version   behind  dead letters    skipped",
        "stats  eager       1/2     61,000      1,234       41          7      3 s             1          2",
        "recovering  stats/1  rolling",
        "50 %",
        "75 %  3,000 of 4,000  0:25 left",
    ):
        assert row in shown, shown


def test_a_line_for_the_log_says_the_same_shortly(board: Board, time: Time) -> None:
    board.take(Started(0, 100))
    report(board, running(0, 5, 1_239, 61_000), running(1, 5, 5))
    time.now = 75.0
    assert line(board) == (
        "auctions: up 1:15 · 2 of 2 tasks here · 61,000 records read · 61,000 records/s · lag 1,234 · step 12.5 ms · "
        "commit 8.2 ms · 2 dead letters · 4 skipped"
    )


def test_nothing_is_shown_of_what_is_not_known_yet(board: Board) -> None:
    assert "starting" in text(board)
    assert "0 of 2 tasks here · 0 records read · 0 records/s" in line(board)


def test_a_report_stays_small_and_reads_back() -> None:
    full = Report(0, "auctions.w-0", 100, [running(i, 10**9, 10**9, 10**5) for i in range(2)], 1.0, 12.5, 8.25, 10)
    data = encode(full)
    assert decode_from_worker(data) == full
    assert len(data) < 500
