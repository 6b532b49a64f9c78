"""What people ask of an app: how the records add up, and what a worker makes of them. No broker."""

from __future__ import annotations

import time
from contextlib import nullcontext
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.runtime.observe.test_board import app, running

from falkirk.checkpoint.ids import InputPartition, Offset, TaskId, TopicPartition
from falkirk.checkpoint.ports import LogRecord
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.errors import SourceError, StateError
from falkirk.runtime.app.app import BoundInput, BoundTask
from falkirk.runtime.app.starts import start_offsets
from falkirk.runtime.layout import layout
from falkirk.runtime.layout.layout import BEGINS, ENDING, Begins, Ending, LayoutRecord, Start, read_app_record
from falkirk.runtime.messages.events import Started
from falkirk.runtime.messages.protocol import Report, Request
from falkirk.runtime.messages.request_progress import follow
from falkirk.runtime.messages.requests import KEYS, CurrentRequests, RequestListener
from falkirk.runtime.observe.board import Board
from falkirk.runtime.observe.console import line
from falkirk.runtime.worker.upkeep.maintenance import Maintenance
from falkirk.runtime.worker.worker import Worker
from falkirk.stream.dataflow.topics import Input

ANN = Request("ann@host", 1763769600000, "a1")


def record(key: bytes, value: Any = None) -> LogRecord:
    return LogRecord(Offset(0), key, None if value is None else msgspec.json.encode(value))


def current_requests(*records: LogRecord) -> CurrentRequests:
    found = CurrentRequests()
    for one in records:
        found = found.after(one)
    return found


# -- what is asked -----------------------------------------------------------------------------------------------------


def test_the_last_word_on_each_thing_counts() -> None:
    later = Request("bob@host", 7, "b1")
    asked = [record(KEYS["pause"], ANN), record(b"layout/1/ab", ANN), record(KEYS["drain"], ANN)]
    assert current_requests(*asked) == CurrentRequests(pause=ANN, drain=ANN, layout=1)
    assert current_requests(*asked, record(KEYS["pause"], later), record(KEYS["drain"])) == CurrentRequests(
        pause=later, layout=1
    )


def test_what_another_version_asks_is_passed_over() -> None:
    assert current_requests(record(KEYS["pause"], ANN), LogRecord(Offset(1), KEYS["pause"], b"?")) == CurrentRequests(
        pause=ANN
    )


# -- a worker ----------------------------------------------------------------------------------------------------------


class Around:
    """Stands for all that a worker's turn asks; it notes which parts were asked."""

    def __init__(self, heard: CurrentRequests | None) -> None:
        self.told: CurrentRequests | None = heard
        self.asked: list[str] = []

    def heard(self) -> CurrentRequests | None:
        return self.told

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self.asked.append(name)


def turned(heard: CurrentRequests | None, ear: RequestListener | None = None) -> tuple[Worker, list[str]]:
    worker, around = Worker.__new__(Worker), Around(heard)
    parts = ("_membership", "_orphans", "maintenance")
    domain = SimpleNamespace(
        quiet=True, performer=around, committer=around, poll_wait=lambda: 0.0, stage_ended=lambda: None
    )
    guarding = SimpleNamespace(guard=lambda _: nullcontext(), tick=lambda _: None)
    worker.__dict__ |= dict.fromkeys(parts, around) | {
        "_requests": ear or around, "_publisher": around,
        "_topic_watches": [around], "_time": SimpleNamespace(now=lambda: 0),
        "domains": {"stats": domain}, "parts": guarding, "_upkeep_at": 0.0, "_shared": SimpleNamespace(tasks={}),
        "_read": around.read, "_close_steps": around.close_steps,
    }  # fmt: skip
    worker.turn()
    return worker, around.asked


def test_a_paused_worker_opens_no_step_and_keeps_its_place_in_the_group() -> None:
    worker, asked = turned(CurrentRequests(pause=ANN))
    assert not {"read", "close_steps"} & set(asked)
    # It is polled, its tasks are taken over, what was under way is committed, and versions are made.
    assert {"poll", "perform", "tick"} <= set(asked)
    assert worker.paused() == ANN


def test_a_worker_that_does_not_know_yet_whether_it_is_paused_opens_no_step() -> None:
    worker, asked = turned(None)
    assert "close_steps" not in asked
    assert worker.paused() is None


def test_a_worker_that_nobody_has_paused_works() -> None:
    worker, asked = turned(CurrentRequests())
    assert {"read", "close_steps"} <= set(asked)
    assert worker.paused() is None


def test_what_ends_the_listening_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, no step would ever be closed, and nothing would say why."""

    class Deaf:
        def __init__(self, *_: object) -> None:
            pass

        def look(self) -> list[LogRecord]:
            raise SourceError("the control topic is gone")

        def close(self) -> None:
            pass

    monkeypatch.setattr("falkirk.runtime.messages.requests.Tail", Deaf)
    ear = RequestListener(Cluster("127.0.0.1:1"), "control")
    while ear._failed is None:
        time.sleep(0.01)
    with pytest.raises(SourceError, match="the control topic is gone"):
        turned(None, ear)


def test_a_worker_is_not_paused_while_a_step_is_under_way() -> None:
    worker, _ = turned(CurrentRequests(pause=ANN))
    worker.domains["stats"] = SimpleNamespace(quiet=False)  # type: ignore[assignment]
    assert worker.paused() is None


def test_each_checkpoint_that_is_asked_has_one_answer() -> None:
    class TaskMaintenance(Maintenance):
        def __init__(self) -> None:
            super().__init__(SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]
            self.begun: list[str] = []
            self.fails = 0

        def _begin_version(self, task: Any, upkeep: Any) -> None:
            self.begun.append(upkeep.tried)
            if self.fails:
                self.fails -= 1
                return  # what a checkpoint store that cannot be reached makes of it
            upkeep.answered = upkeep.tried

    regime = SimpleNamespace(every=timedelta(hours=1), within=None)
    owned = SimpleNamespace(task=SimpleNamespace(id=TaskId("stats", 0)), correction=None, last=None)
    bound = SimpleNamespace(stage=SimpleNamespace(regime=regime))
    task: Any = SimpleNamespace(owned=owned, bound=bound, begun=False)
    upkeep = TaskMaintenance()

    def tick(asked: str, times: int = 2) -> list[str]:
        for _ in range(times):
            upkeep.tick([task], asked)
        return upkeep.begun

    assert tick("") == []
    assert tick("a1") == [], "a task without a step has no version"
    task.begun = True
    assert tick("a1") == ["a1"]
    upkeep.fails = 1
    assert tick("a2") == ["a1", "a2"], "it is tried again, but not at once"
    upkeep.upkeep_of(task.owned.task.id).versioned -= 10
    assert tick("a2") == ["a1", "a2", "a2"]
    assert tick("") == ["a1", "a2", "a2"]
    upkeep.close()


# -- what is shown and followed ----------------------------------------------------------------------------------------


def test_the_board_tells_who_has_paused_and_when_an_answer_has_come() -> None:
    board = Board(app(), 1)
    board.take(Started(0, 5))
    board.take(Report(0, "w", 5, [running(0, 1, 1)]))
    before = board.answers()
    board.take(Report(0, "w", 5, [running(0, 1, 1)]))
    assert board.answers() == before
    board.take(Report(0, "w", 5, [running(0, 1, 1)], paused=ANN))
    assert board.answers() != before
    assert board.workers[0].phase == "paused"
    assert "paused since 2025-11-22 00:00:00 UTC by ann@host" in line(board)


def test_what_is_waited_for_is_said_when_it_changes_and_told_when_the_time_is_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("falkirk.runtime.messages.request_progress.LOOK", 0)
    words, said = iter(["two", "two", "one", ""]), list[str]()
    assert follow(lambda: next(words), 60, said.append) == ""
    assert said == ["two", "one"]
    assert follow(lambda: "two", 0, said.append) == "two"


# -- an end, and a new beginning ---------------------------------------------------------------------------------------


class Control:
    """A control topic's records."""

    def __init__(self, *records: LogRecord) -> None:
        self._records = records

    def read(self, partition: int) -> tuple[LogRecord, ...]:
        return self._records


def known(*records: LogRecord) -> layout.AppRecord:
    return read_app_record(Control(*records))  # type: ignore[arg-type]


def numbered(number: int) -> LogRecord:
    return record(b"layout/%d/x" % number, LayoutRecord(number, "app", (), {}))


def test_layouts_of_before_a_reset_do_not_count_and_their_numbers_are_not_used_again() -> None:
    begins = record(BEGINS, Begins(2, {"bids": Start("id", (7,))}, "ann", 0))
    found = known(numbered(1), numbered(2), begins)
    assert (found.layout, found.next, found.last and found.last.number) == (None, 3, 2)
    found = known(numbered(1), begins, numbered(2), numbered(3))
    assert found.layout is not None
    assert (found.layout.number, found.next) == (3, 4)
    assert (known().next, known(numbered(1)).next) == (1, 2)


def test_nobody_runs_an_app_whose_deletion_or_reset_is_not_finished() -> None:
    ending = record(ENDING, Ending("reset", "ann@host", 0))
    with pytest.raises(StateError, match="a reset of app 'shop' was begun, and is not finished"):
        layout.check_not_ending("shop", known(numbered(1), ending))
    layout.check_not_ending("shop", known(numbered(1), ending, record(ENDING)))


class Ends:
    """Stands for the cluster's topics: each partition has offsets 5 to 20."""

    def offsets(self, places: Any, at: str | int) -> dict[TopicPartition, Offset]:
        return {place: Offset(5 if at == "earliest" else 20) for place in places}


def test_a_task_begins_where_the_reset_says_unless_the_topic_is_another_by_now() -> None:
    place = InputPartition("", "bids", "id", 1)
    bound = BoundInput(Input("bids", "bids", "source", "latest"), TopicPartition("bids", 1), place)
    task, topics = BoundTask(SimpleNamespace(), SimpleNamespace(), (bound,)), Ends()  # type: ignore[arg-type]

    def begins(starts: dict[str, Start]) -> int:
        return start_offsets(task, topics, (), starts)[place]  # type: ignore[arg-type]

    assert begins({}) == 20
    assert begins({"bids": Start("id", (7, 9))}) == 9
    assert begins({"bids": Start("another", (7, 9))}) == 20
    assert begins({"bids": Start("id", (7,))}) == 5, "all of it has come since the reset"
    with pytest.raises(SourceError, match="the app was reset to offset 3 of topic 'bids', and what follows is deleted"):
        begins({"bids": Start("id", (7, 3))})
