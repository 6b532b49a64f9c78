"""Who has a task, where, and which of the workers' reports still count."""

from __future__ import annotations

import pytest

from falkirk.checkpoint.ids import Millis, Nonce, Offset, OwnerId, Step
from falkirk.checkpoint.records import Named, Released, StepRecord, TaskRecord
from falkirk.connectors.kafka.admin.members import Group, Member
from falkirk.runtime.inspect.owners import FRESH_MS, TaskOwner, owners_of
from falkirk.runtime.messages.protocol import Report, SentReport, TaskReport

NOW = 1_000_000


def name(nonce: str, worker: str, host: str) -> Named:
    return Named(Nonce(nonce), OwnerId(f"{worker}/stats"), host)


def step(task: str, nonce: str, worker: str) -> StepRecord:
    return StepRecord(task, Step(7), Nonce(nonce), OwnerId(f"{worker}/stats"), Millis(0), (), (), "")


def history(*records: TaskRecord) -> list[tuple[Offset, TaskRecord]]:
    return [(Offset(40 + i), record) for i, record in enumerate(records)]


def heard(worker: str, host: str, *tasks: str, at: int = NOW - 1000) -> dict[str, SentReport]:
    return {worker: SentReport(host, at, Report(0, worker, 1, [TaskReport(task, "running", 7) for task in tasks]))}


def group(stable: bool = True, **members: tuple[int, ...]) -> Group:
    return Group(stable, {f"app.{name}": Member("10.0.0.1", partitions) for name, partitions in members.items()})


def phase(one: TaskOwner) -> str | None:
    return None if one.said is None else one.said.phase


def test_the_host_of_a_task_is_known_after_its_name_is_trimmed() -> None:
    tasks = ["stats/0", "stats/1", "stats/2"]
    histories = [
        history(step("stats/0", "a", "app.x-0")),
        history(step("stats/1", "b", "app.y-0")),
        history(name("c", "app.y-0", "bee"), step("stats/2", "c", "app.y-0")),
    ]
    found = owners_of(tasks, histories, group(), heard("app.x-0", "ant", at=0), NOW)
    assert [(one.worker, one.host) for one in found] == [("app.x-0", "ant"), ("app.y-0", "bee"), ("app.y-0", "bee")]


def test_the_name_of_a_task_says_more_of_its_host_than_an_old_report() -> None:
    histories = [history(name("a", "app.x-0", "ant"), name("b", "app.x-0", "bee"))]
    [one] = owners_of(["stats/0"], histories, group(), heard("app.x-0", "ant", at=0), NOW)
    assert one.host == "bee"


def test_nobody_has_a_task_after_a_release() -> None:
    histories = [history(name("a", "app.x-0", "ant"), Released(Nonce("a"))), []]
    found = owners_of(
        ["stats/0", "stats/1"], histories, group(**{"x-0": (0, 1)}), heard("app.x-0", "ant", "stats/0"), NOW
    )
    assert found == [TaskOwner(), TaskOwner()]


@pytest.mark.parametrize(
    ("told", "now"),
    [
        (group(**{"x-0": (0,)}), "running"),
        (group(), None),
        (group(**{"y-0": (0,)}), None),
        (group(**{"x-0": (1,), "y-0": (0,)}), None),
        # During a rebalance the group says of nobody what it has.
        (group(stable=False, **{"x-0": ()}), "running"),
    ],
    ids=["has it", "nobody", "another member", "has another", "rebalance"],
)
def test_a_report_counts_only_if_the_group_gives_the_task_to_its_worker(told: Group, now: str | None) -> None:
    histories = [history(step("stats/0", "a", "app.x-0"))]
    [one] = owners_of(["stats/0"], histories, told, heard("app.x-0", "ant", "stats/0"), NOW)
    assert (phase(one), one.silent_ms) == (now, None)


def test_a_report_counts_only_until_another_worker_is_named() -> None:
    histories = [history(step("stats/0", "a", "app.x-0"), name("b", "app.y-0", "bee"))]
    members = group(**{"x-0": (), "y-0": (0,)})
    [one] = owners_of(["stats/0"], histories, members, heard("app.x-0", "ant", "stats/0"), NOW)
    assert (one.worker, one.host, phase(one)) == ("app.y-0", "bee", None)


def test_of_a_worker_that_reports_no_more_it_is_known_since_when() -> None:
    histories = [history(step("stats/0", "a", "app.x-0"))]
    members = group(**{"x-0": (0,)})
    for age, known in ((FRESH_MS - 1, ("running", None)), (FRESH_MS, (None, FRESH_MS))):
        [one] = owners_of(["stats/0"], histories, members, heard("app.x-0", "ant", "stats/0", at=NOW - age), NOW)
        assert (phase(one), one.silent_ms) == known
