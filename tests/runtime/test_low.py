"""The low-watermarks of an app, and what holds them back, from what it has recorded."""

from __future__ import annotations

from typing import Any

import pytest

from falkirk.checkpoint.ids import Millis, Nonce, OwnerId, Step, TopicPartition
from falkirk.checkpoint.records import StepRecord
from falkirk.runtime.inspect.low import Facts, Hold, LowWatermark, low_watermarks
from falkirk.runtime.inspect.owners import TaskOwner
from falkirk.runtime.layout.layout import LayoutRecord, StageRecord, TopicRecord
from falkirk.runtime.messages.epochs import EpochStatus
from falkirk.runtime.messages.protocol import TaskReport

NOW = 100_000


def stage(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], tasks: int = 1, **other: Any) -> StageRecord:
    return StageRecord(name, tasks, **{"regime": "eager", "stateful": True, **other}, fingerprint="f", state="",
                       inputs=inputs, outputs=outputs)  # fmt: skip


STATS = stage("stats", ("bids",), ("edge", "falkirk.app.files.out", "sink"))
TOP = stage("top", ("edge",), (), 2, regime="lazy")
ROLES: dict[str, Any] = {"bids": "source", "edge": "edge", "falkirk.app.files.out": "edge", "sink": "sink"}
LAYOUT = LayoutRecord(1, "app", (STATS, TOP), {name: TopicRecord("i", 2, role) for name, role in ROLES.items()})


def step(number: int) -> StepRecord:
    """A step a second."""
    return StepRecord("t", Step(number), Nonce("n"), OwnerId("o"), Millis(1000 * number), (), (), "")


def said(task: str, version: int = -1, *copies: int, phase: str = "running") -> TaskOwner:
    """By its worker."""
    return TaskOwner(
        "w",
        said=TaskReport(task, phase, versioned=(version, 1000 * version), copies=tuple((n, 1000 * n) for n in copies)),
    )


def low_of(
    owner: TaskOwner, of: StageRecord = STATS, *, last: int | None = 90, first: int | None = None, stopped: str = ""
) -> LowWatermark:
    """Of one task of an app of one stage."""
    facts = Facts(f"{of.id}/0", of, None if last is None else step(last), None if first is None else step(first), owner)
    layout = LayoutRecord(1, "app", (of,), {})
    (found,) = low_watermarks(layout, [facts], {}, [], {stopped}, NOW)
    return found


@pytest.mark.parametrize(
    ("owner", "first", "at", "held"),
    [
        (said("stats/0", 80, 70, 80), None, 70, Hold("version", "stats/0", 80, 20.0)),
        (said("stats/0", 80, 70, 80), 50, 70, Hold("version", "stats/0", 80, 20.0)),
        (said("stats/0", 85, 70, 80), None, 70, Hold("copy", "stats/0", 85, 15.0)),
        (said("stats/0", 90, 70, 90), None, 70, Hold("idle", "stats/0", 90, 10.0)),
        (said("stats/0", 80, 80), 50, 50, Hold("version", "stats/0", 80, 20.0)),
        (said("stats/0", 80), 50, 50, Hold("version", "stats/0", 80, 20.0)),
        (said("stats/0", 80, 80), None, None, Hold("version", "stats/0", 80, 20.0)),
        (said("stats/0"), None, None, Hold("version", "stats/0")),
        (said("stats/0", phase="rolling"), 50, 50, Hold("worker", "stats/0", why="rolling")),
        (TaskOwner("w", silent_ms=30_000), 50, 50, Hold("worker", "stats/0")),
        (TaskOwner(), None, None, Hold("worker", "stats/0")),
    ],
    ids=[
        "two copies", "more is kept for a while", "the newest is not copied", "no step since", "one copy by this worker",
        "no copy by this worker", "the first copy", "no version", "taken over", "silent", "no worker",
    ],
)  # fmt: skip
def test_it_is_the_older_of_two_copies_or_else_what_is_left_of_the_steps(
    owner: TaskOwner, first: int | None, at: int | None, held: Hold
) -> None:
    age = None if at is None else float(100 - at)
    assert low_of(owner, first=first) == LowWatermark("stats/0", at, age, [held])


def test_a_stopped_part_holds_its_tasks_back_whoever_has_them() -> None:
    for owner in (said("stats/0", 80, 70, 80), TaskOwner()):
        assert low_of(owner, stopped="stats").held_by == [Hold("part", "stats/0")]


def test_a_task_without_state_goes_back_to_its_last_step() -> None:
    parse = stage("parse", (), (), stateful=False)
    assert low_of(said("parse/0"), parse, first=20) == LowWatermark("parse/0", 90, 10.0, [])


def test_nothing_holds_back_what_has_all_steps() -> None:
    assert low_of(TaskOwner(), last=70, first=70) == LowWatermark("stats/0", 70, 30.0, [])


def test_before_the_first_step_there_is_none() -> None:
    assert low_of(said("stats/0"), last=None) == LowWatermark("stats/0", None, None, [Hold("version", "stats/0")])


def test_rows_stay_for_the_reader_that_goes_back_furthest_and_for_a_sink_that_has_not_written_them() -> None:
    facts = [
        Facts("stats/0", STATS, step(90), None, said("stats/0", 90, 80, 90)),
        Facts("top/0", TOP, step(95), None, said("top/0", 90, 80, 90)),
        Facts("top/1", TOP, step(95), step(40), said("top/1", 60, 60)),
    ]
    waits = {
        TopicPartition("falkirk.app.files.out", 0): 7,
        TopicPartition("falkirk.app.files.out", 1): 3,
        TopicPartition("edge", 0): 9,
    }
    found = low_watermarks(LAYOUT, facts, waits, [], set(), NOW)
    assert [(low.of, low.at) for low in found] == [("stats/0", 80), ("top/0", 80), ("top/1", 40)]
    assert found[0].held_by == [
        Hold("idle", "stats/0", 90, 10.0),
        Hold("reader", "top/1", 40, 60.0, why="lazy"),
        Hold("outlet", "out", records=7),
    ]
    written = low_watermarks(LAYOUT, facts, dict.fromkeys(waits, 0), [], set(), NOW)
    assert [hold.what for hold in written[0].held_by] == ["idle", "reader"]


def test_an_open_epoch_holds_a_batch_part_back_behind_the_newest_complete_one() -> None:
    complete = EpochStatus("usual", 4, "complete", 60.0, 10, 10, 2, 2, 4, None, complete_s_ago=60.0)
    opened = EpochStatus("usual", 5, "open", 5.0, 10, 3, 1, 2, 4, None, complete_s_ago=60.0)
    hold = Hold("epoch", "usual", 5, 5.0, "1 of 2 partitions are published")
    for stopped, held in ((set[str](), [[], [hold]]), ({"usual"}, [[Hold("part", "usual")]] * 2)):
        found = low_watermarks(LAYOUT, [], {}, [complete, opened], stopped, NOW)
        assert found == [LowWatermark("usual", 4, 60.0, one) for one in held]
