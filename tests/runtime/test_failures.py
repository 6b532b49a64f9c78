"""What a name means that is to die, and how the plan of its recovery is shown."""

from __future__ import annotations

import pytest
from rich.console import Console

from falkirk.checkpoint.planning import Cost, Kept, Lost, Replay, TaskFacts, plan
from falkirk.cli.commands.plan_recovery import shown
from falkirk.errors import ConfigError
from falkirk.runtime.inspect.failure import Answer, answer, failure, takers
from falkirk.runtime.inspect.recovery import edges
from falkirk.runtime.inspect.status import Status, TaskStatus, WorkerStatus
from falkirk.runtime.layout.layout import LayoutRecord, StageRecord, TopicRecord


def task(name: str, owner: str | None, host: str | None) -> TaskStatus:
    return TaskStatus(name, owner, host, "running", 95, 0.0, None, None, 0, [])


STATUS = Status(
    "app", "running", "app", 1, "1", 0, [],
    [
        task("bids/0", "app.x-0", "ant"), task("bids/1", "app.x-1", "ant"), task("stats/0", "app.y-0", "bee"),
        task("stats/1", None, None),
    ],
    [
        WorkerStatus("app.x-0", "ant", 1, True, 1), WorkerStatus("app.x-1", "ant", 2, True, 1),
        WorkerStatus("app.y-0", "bee", 3, True, 1), WorkerStatus("app.z-0", "cow", 4, False, 0),
    ],
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kind", "tasks", "by"),
    [
        ("ant", "host", {"bids/0", "bids/1"}, ["app.y-0"]),
        ("bee", "host", {"stats/0"}, ["app.x-0", "app.x-1"]),
        ("bids/1", "worker", {"bids/1"}, ["app.x-1"]),
        ("app.x-0", "worker", {"bids/0"}, ["app.x-0"]),
        ("x-0", "worker", {"bids/0"}, ["app.x-0"]),
    ],
)
def test_a_host_takes_its_workers_along_and_a_task_stands_for_its_worker(
    name: str, kind: str, tasks: set[str], by: list[str]
) -> None:
    dies = failure(name, STATUS)
    assert (str(dies.kind), set(dies.tasks), takers(STATUS, dies)) == (kind, tasks, by)
    assert dies.lost == Lost(frozenset(tasks), name if kind == "host" else "")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("stat/0", "did you mean stats/0?"),
        ("be", "did you mean bee?"),
        ("zzzzz", "it has: ant, bee, cow, bids/0, bids/1, stats/0, stats/1, x-0, x-1, y-0, z-0"),
    ],
)
def test_a_name_that_the_app_does_not_have_is_refused_with_the_closest(name: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        failure(name, STATUS)
    assert refused.value.hint == words
    with pytest.raises(ConfigError, match="task stats/1 has no worker now"):
        failure("stats/1", STATUS)


def asked(name: str, kept: list[Kept]) -> Answer:
    """If it dies, and all tasks have kept this beside their hosts' stores."""
    facts = [
        TaskFacts(t.task, "lazy", 95, [Kept("local", 95, on=t.host or "?"), *kept], presumed=Cost(0.01, 0.0))
        for t in STATUS.tasks
    ]
    dies = failure(name, STATUS)
    found = plan(facts, [], dies.lost, len(takers(STATUS, dies)))
    return answer(STATUS, dies, found, 10.0 if dies.kind == "host" else 0.0, {"stats/0": "changelog[0]"})


def text_of(found: Answer) -> list[str]:
    console = Console(width=200)
    with console.capture() as text:
        console.print(shown(found))
    return [" ".join(line.split()) for line in text.get().splitlines() if line.strip()]


def test_the_plan_says_what_is_replayed_from_where_and_how_long_it_takes() -> None:
    lines = text_of(asked("bee", [Kept("copied", 70, Replay(25, 4_000), size=5_200_000)]))
    assert lines[:3] == [
        "app: host bee dies, with 1 worker",
        "1 task is taken over by 2 workers; 3 tasks stay as they are",
        "noticed after up to 10.0 s; then all run again within 0.8 s",
    ]
    assert lines[4] == (
        "stats/0 lazy step 95 version of step 70, 5.2 MB steps 71..95: 4,000 records 0.30* 0.15* 0.30* 0.25* 0.85 s"
    )
    assert lines[5] == "* not measured yet: presumed, until a take-over shows it"
    changes = asked("bee", [Kept("copied", 70, Replay(1, 300), size=1, log=(20, 320))])
    assert "its changelog, 20..320: up to 300 records" in text_of(changes)[4]
    assert (changes.tasks[0].steps, changes.tasks[0].records) == (0, 300)


def test_the_store_on_its_host_needs_nothing_more() -> None:
    lines = text_of(asked("bids/1", []))
    assert lines[1] == "1 task is taken over by the spare of its host; 3 tasks stay as they are"
    assert lines[2].startswith("noticed at once; then all run again within 0.6 s")
    assert lines[4].startswith("bids/1 lazy step 95 the store on its host nothing 0.30* – 0.30* – ")


def test_a_task_that_could_not_recover_is_shown_with_what_to_do() -> None:
    found = asked("bee", [])
    assert [(t.task, t.begins_with) for t in found.tasks] == [("stats/0", None)]
    lines = text_of(found)
    assert lines[2] == "noticed after up to 10.0 s; then 0 of them run again within 0.0 s"
    assert "stats/0 lazy cannot recover nothing is left that leads on" in lines
    assert lines[-1].startswith("to do: run the workers with --checkpoints")


def test_every_task_that_sends_to_a_stage_has_an_edge_to_each_of_its_tasks() -> None:
    def stage(name: str, tasks: int, reads: str, writes: str) -> StageRecord:
        return StageRecord(name, tasks, "lazy", True, "f", "s", (reads,), (writes,))

    roles = {"bids": "source", "edge": "edge", "out": "sink"}
    topics = {name: TopicRecord("id", 2, role) for name, role in roles.items()}  # type: ignore[arg-type]
    stages = (stage("a", 2, "bids", "edge"), stage("b", 1, "edge", "out"), stage("c", 1, "out", "none"))
    assert edges(LayoutRecord(1, "app", stages, topics)) == [("a/0", "b/0", True), ("a/1", "b/0", True)]
