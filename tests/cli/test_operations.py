"""Commands for people who live with an app: on one that runs, on one that is stopped, and on none."""

from __future__ import annotations

import json
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.bad_input.stand import Stand
from tests.cli.test_app import Running
from tests.waiting import PATIENCE_S

import falkirk as fk
from falkirk.checkpoint.ids import TopicPartition
from falkirk.cli.main import falkirk
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.errors import ConfigError, FalkirkError, SourceError, StateError
from falkirk.runtime.layout.deleting import app_resources, delete, ending
from falkirk.runtime.layout.layout import Start
from falkirk.runtime.layout.resetting import reset
from falkirk.runtime.messages.requests import current_requests
from falkirk.stream.definition.names import control_topic, steps_topic

pytestmark = pytest.mark.kafka


class Desk:
    """Commands, as a person gives them; in this process, which saves their imports."""

    def __init__(self, brokers: str, state_dir: Path) -> None:
        self.brokers, self.state_dir = brokers, state_dir

    def give(self, *command: str, stateful: bool = False, answer: str = "") -> tuple[int, str]:
        """The exit code, and all that was said."""
        more = ["--state-dir", str(self.state_dir)] if stateful else []
        result = CliRunner().invoke(falkirk, [*command, "--brokers", self.brokers, *more], input=answer)
        if isinstance(error := result.exception, FalkirkError):
            return error.exit_code, f"{result.output}error: {error}"
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, result.output

    def refused(self, code: int, *words: str, of: tuple[int, str]) -> None:
        """A command ended with this code, and said so in these words, and what to do."""
        assert of[0] == code, of[1]
        for word in (*words, "to do: "):
            assert word in of[1], of[1]


@pytest.fixture
def running(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[Running]:
    app = Running(kafka, topic_prefix, tmp_path)
    yield app
    for process in app.processes:
        process.kill()
        process.wait()


@pytest.fixture
def stand(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[Stand]:
    one = Stand(kafka, topic_prefix, tmp_path)
    yield one
    one.close()


def settled(running: Running, desk: Desk, **wanted: Any) -> dict[str, Any]:
    """The app's status, once it is this."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        code, said = desk.give("status", running.name, "--json")
        if code == 0 and wanted.items() <= (found := json.loads(said)).items():
            assert isinstance(found, dict)
            return found
        assert time.monotonic() < deadline, said
        time.sleep(0.2)


@pytest.mark.slow
def test_an_app_is_paused_killed_resumed_and_drained_and_its_state_is_looked_at(running: Running) -> None:
    name, desk = running.name, Desk(running.brokers, running.folder / ".falkirk")
    target = str(running.folder / "app.py:flow")
    running.feed(70)
    run = running.start("run", "app.py:flow")
    settled(running, desk, state="running", lag=0)

    for command in (("delete", name, "--yes"), ("reset", name, "--yes")):
        desk.refused(2, f"app '{name}' is running", "stop it first", of=desk.give(*command, stateful=True))

    code, said = desk.give("pause", name)
    assert (code, f"{name}: paused, 1 worker waiting" in said) == (0, True), said
    running.feed(14)
    found = settled(running, desk, state="paused", lag=14)
    assert "@" in found["paused"]["by"]
    assert f"{name} is paused since" in desk.give("pause", name)[1]
    desk.refused(2, f"app '{name}' is paused since", "falkirk resume", of=desk.give("drain", name))

    code, said = desk.give("checkpoint", name)
    assert code == 0, said
    for task in found["tasks"]:
        assert any(line.split()[:2] == [task["task"], str(task["step"])] for line in said.splitlines()), said
    assert current_requests(Cluster(running.brokers), control_topic("falkirk", name)).checkpoint is None

    # The pause outlives the workers, and what was paused is not lost.
    run.kill()
    run.wait()
    before = found["workers"][0]["pid"]
    run = running.start("run", "app.py:flow")
    while (settled(running, desk, state="paused", lag=14)["workers"] or [{"pid": before}])[0]["pid"] == before:
        time.sleep(0.2)
    code, said = desk.give("resume", name)
    assert (code, f"{name}: resumed, 1 worker running" in said) == (0, True), said
    settled(running, desk, state="running", lag=0, paused=None)
    assert f"{name}: is not paused" in desk.give("resume", name)[1]

    code, said = desk.give("state", "get", target, "counts", "3", stateful=True)
    assert code == 0, said
    row = json.loads(said)
    assert (row["key"], row["value"]) == ({"auction": 3}, {"n": {"rows": 12}})
    code, said = desk.give("state", "scan", target, "counts", "-n", "0", stateful=True)
    rows = [json.loads(line) for line in said.splitlines()]
    assert {row["key"]["auction"]: row["value"]["n"]["rows"] for row in rows} == dict.fromkeys(range(7), 12)
    steps = {row["task"]: row["step"] for row in rows}
    code, said = desk.give("state", "scan", target, "counts", "--as-of", str(found["tasks"][0]["step"]), "--task", "0",
                           stateful=True)  # fmt: skip
    assert code == 0, said
    assert all(json.loads(line)["step"] <= steps["counts/0"] for line in said.splitlines())
    code, said = desk.give("state", "get", target, "counts", "99", stateful=True)
    assert (code, said) == (1, "nothing is kept for 99\n")

    running.feed(7)
    code, said = desk.give("drain", name)
    assert (code, f"{name}: drained, 1 worker stopped" in said) == (0, True), said
    assert run.wait(PATIENCE_S) == 0
    settled(running, desk, state="stopped", lag=0)

    # Now there is nobody to ask.
    desk.refused(2, f"app '{name}' has no workers", of=desk.give("drain", name))
    answer = desk.give("checkpoint", name, "--timeout", "600ms")
    desk.refused(1, "has not made a version of every task", "waiting for workers: there are none", of=answer)
    assert current_requests(Cluster(running.brokers), control_topic("falkirk", name)).checkpoint is None
    assert "it has no workers now. Workers that start will wait" in desk.give("pause", name)[1]
    assert settled(running, desk, state="stopped")["paused"] is not None
    assert f"{name}: resumed; it has no workers now" in desk.give("resume", name)[1]

    # What was drained before does not concern who starts now.
    run = running.start("worker", "app.py:flow")
    settled(running, desk, state="running")
    run.send_signal(signal.SIGTERM)
    assert run.wait(PATIENCE_S) == 0


@pytest.mark.parametrize(
    "command",
    [
        *[("pause",), ("resume",), ("checkpoint",), ("drain",), ("reset", "--yes"), ("delete", "--yes"), ("status",)],
        *[("epoch", "totals"), ("dlq", "list")],
    ],
)
def test_a_command_for_an_app_that_is_not_there(kafka: str, tmp_path: Path, command: tuple[str, ...]) -> None:
    name, *more = ("dlq list", *command[2:]) if command[0] == "dlq" else command
    stateful = name in ("reset", "delete")
    answer = Desk(kafka, tmp_path).give(*name.split(), "nobody", *more, stateful=stateful)
    Desk(kafka, tmp_path).refused(2, "there is no app 'nobody' on this cluster", of=answer)


# -- the end of an app, and a new beginning ----------------------------------------------------------------------------


def topics_of(stand: Stand) -> set[str]:
    names = stand.admin.list_topics(timeout=PATIENCE_S).topics
    return {t for t in names if t.startswith((f"falkirk.{stand.name}.", stand.prefix))}


def ends_of(stand: Stand, topic: str) -> dict[int, int]:
    places = [TopicPartition(topic, p) for p in range(stand.partitions(topic))]
    return {p.partition: at for p, at in Topics(stand.settings.cluster()).offsets(places, "latest").items()}


def desk_of(stand: Stand) -> Desk:
    return Desk(stand.brokers, Path(stand.settings.state_dir))


REGIMES = [fk.EagerCheckpoint(), fk.LazyCheckpoint()]


@pytest.mark.slow
@pytest.mark.parametrize("regime", REGIMES, ids=["eager", "lazy"])
def test_a_deleted_app_begins_anew_and_takes_nothing_of_the_old_on_another_host(
    stand: Stand, tmp_path: Path, regime: fk.EagerCheckpoint | fk.LazyCheckpoint
) -> None:
    desk, elsewhere, versions = desk_of(stand), tmp_path / "elsewhere", (tmp_path / "versions").as_uri()
    stand.topic()
    stand.bids(60)
    stand.run(stand.flow(regime), checkpoints=versions)
    shutil.copytree(stand.settings.state_dir, elsewhere)
    shutil.copytree(tmp_path / "versions", tmp_path / "kept")

    answer = desk.give("delete", stand.name, "--checkpoints", versions, stateful=True, answer="other\n")
    desk.refused(2, "is not deleted: its name was not given", of=answer)
    assert f"topic     falkirk.{stand.name}.steps" in answer[1]
    letters = f"falkirk.{stand.name}.dead-letters"
    assert f"and this stays, without --sinks: {letters}, {stand.prefix}stats" in answer[1]
    code, said = desk.give("delete", stand.name, "--checkpoints", versions, stateful=True, answer=f"{stand.name}\n")
    assert (code, f"{stand.name}: deleted" in said) == (0, True), said
    assert topics_of(stand) == {f"{stand.prefix}bids", f"{stand.prefix}stats", letters}
    assert not (Path(stand.settings.state_dir) / stand.name).exists()
    assert not any(path.is_file() for path in (tmp_path / "versions").rglob("*"))
    answer = desk.give("delete", stand.name, "--yes", stateful=True)
    desk.refused(2, f"there is no app '{stand.name}'", of=answer)

    # The old stores on another host, and the old versions brought back, are of step n too; they are not this app's.
    stand.delete("stats")
    shutil.copytree(tmp_path / "kept", tmp_path / "versions", dirs_exist_ok=True)
    stand.run(stand.flow(regime), checkpoints=versions, state_dir=str(elsewhere))
    stand.bids(30)
    stand.run(stand.flow(regime), checkpoints=versions, state_dir=str(elsewhere))
    stand.assert_exact()

    code, said = desk.give("delete", stand.name, "--sinks", "--yes", "--checkpoints", versions, stateful=True)
    assert code == 0, said
    assert topics_of(stand) == {f"{stand.prefix}bids"}
    # On the other host the app's folder is left, and goes by the same command.
    code, said = Desk(stand.brokers, elsewhere).give("delete", stand.name, "--yes", stateful=True)
    assert (code, (elsewhere / stand.name).exists()) == (0, False), said


@pytest.mark.slow
def test_an_app_that_was_created_and_has_never_run_is_deleted_without_its_namesakes(stand: Stand) -> None:
    desk, bids = desk_of(stand), stand.topic()
    topics = Topics(stand.settings.cluster())
    stays = {f"falkirk.{stand.name}.epochs.control", f"falkirk.{stand.name}.epochs.steps"}  # of the app NAME.epochs
    for name in stays:
        topics.create(name, 1, 1, {})
    flow = (
        'flow = fk.Flow(NAME)\nbids = flow.source(PREFIX + "bids", value=fk.Json({"auction": int, "price": int}))\n'
        'bids.group_by("price", id="prices").agg(n=fk.len()).sink(PREFIX + "n", key="price", value=fk.Json())'
    )
    code, said = desk.give("topics", stand.target(flow), "--create")
    assert code == 0, said
    published = {f"falkirk.{stand.name}.dead-letters", f"{stand.prefix}n"}
    assert len(topics_of(stand) - stays - published) == 5, topics_of(stand)  # the source, and four of its own
    code, said = desk.give("delete", stand.name, "--yes", stateful=True)
    assert code == 0, said
    deadline = time.monotonic() + PATIENCE_S
    while (left := topics_of(stand)) != {bids, *published, *stays}:
        assert time.monotonic() < deadline, (left, said)


def test_a_sink_that_the_flow_reads_too_is_never_deleted_and_is_said_to_stay(stand: Stand) -> None:
    desk, stats = desk_of(stand), stand.topic("stats")
    stand.topic()
    stand.bids(20)
    flow = stand.flow()
    seen = flow.source("seen", topic=stats, key="auction", value=fk.Json({"auction": fk.Int64, "n": fk.Int64}))
    seen.sink(f"{stand.prefix}often", key="auction", value=fk.Json())
    stand.run(flow)

    letters, stays = (
        f"falkirk.{stand.name}.dead-letters",
        "and this stays in any case, because the flow also reads it",
    )
    code, said = desk.give("delete", stand.name, stateful=True, answer="other\n")
    assert (code, f"{stays}: {stats}\n" in said) == (2, True), said
    assert f"and this stays, without --sinks: {letters}, {stand.prefix}often\n" in said
    code, said = desk.give("delete", stand.name, "--sinks", "--yes", stateful=True)
    assert (code, f"{stays}: {stats}\n" in said) == (0, True), said
    assert "without --sinks" not in said
    assert f"  topic     {stand.prefix}often\n" in said
    assert f"  topic     {stats}\n" not in said
    assert topics_of(stand) == {f"{stand.prefix}bids", stats}


@pytest.mark.slow
def test_an_app_is_reset_to_offsets_with_empty_state(stand: Stand) -> None:
    desk, bids, regime = desk_of(stand), stand.topic(), fk.LazyCheckpoint()
    stand.bids(60)
    stand.run(stand.flow(regime))
    stand.bids(40)
    ends = ends_of(stand, bids)
    for wrong, words in [
        ((f"{bids}:7=0",), f"reads no partition 7 of a topic '{bids}'"),
        ((f"{bids}:0=1000",), "and 1000 is none of them"),
        (("tomorrow",), "'tomorrow' is not a valid position in a topic"),
        (("2026-01-01T00:00:00",), "does not say in which time zone"),
        (("earliest", "latest"), "--to is given twice for all sources"),
    ]:
        to = [word for one in wrong for word in ("--to", one)]
        answer = desk.give("reset", stand.name, *to, "--yes", stateful=True)
        desk.refused(4 if "1000" in words else 2, words, of=answer)

    code, said = desk.give("reset", stand.name, "--to", "latest", "--to", f"{bids}:0=3", stateful=True,
                           answer=f"{stand.name}\n")  # fmt: skip
    assert (code, f"keeps what it holds: falkirk.{stand.name}.dead-letters, {stand.prefix}stats" in said) == (
        0,
        True,
    ), said
    stand.bids(20)  # "latest" was the end when the command was given
    stand.delete("stats")
    stand.run(stand.flow(regime))
    after = ends_of(stand, bids)
    assert sum(stand.counts("stats").values()) == after[0] - 3 + after[1] - ends[1]
    stand.bids(5)
    stand.run(stand.flow(regime))
    assert sum(stand.counts("stats").values()) == sum(ends_of(stand, bids).values()) - 3 - ends[1]

    # Reset again, and whole: as if it had never run. Then it may be another flow, too.
    another = fk.Flow(stand.name)
    bids_by = another.source(bids, key="auction", value=fk.Json({"auction": fk.Int64}))
    bids_by.group_by("auction", id="others").agg(n=fk.len()).sink(f"{bids}-n", key="auction", value=fk.Json())
    with pytest.raises(StateError, match="a different flow has already used the name"):
        stand.app(another)
    code, said = desk.give("reset", stand.name, "--yes", stateful=True)
    assert code == 0, said
    stand.app(another)
    assert desk.give("reset", stand.name, "--yes", stateful=True)[0] == 0
    stand.delete("stats")
    stand.run(stand.flow(regime))
    stand.assert_exact()


@pytest.mark.slow
def test_of_two_who_reset_or_delete_an_app_at_once_the_later_spares_what_has_begun_since(stand: Stand) -> None:
    stand.topic()
    stand.run(stand.flow())
    settings, topics = stand.settings, Topics(stand.settings.cluster())
    elsewhere = replace(settings, state_dir=str(stand.folder / "elsewhere"))
    first, second = (app_resources(stand.name, one, topics) for one in (elsewhere, settings))
    begun = threading.Event()

    def told(_: str) -> None:
        """When the second person's command has deleted a topic, the first one's comes to its end, and the app is run."""
        if not begun.is_set():
            begun.set()
            reset(first, elsewhere, topics, {}, lambda _: None)
            stand.app(stand.flow())

    with pytest.raises(ConfigError, match=f"app '{stand.name}' was reset meanwhile, by "):
        reset(second, settings, topics, {}, told)
    assert begun.is_set()
    assert steps_topic("falkirk", stand.name) in topics_of(stand), "it is the topic of the app that was prepared since"
    stand.delete("stats")
    stand.run(stand.flow())
    stand.assert_exact()


def test_a_pause_is_said_to_outlive_a_reset_and_can_be_ended_before_the_next_run(stand: Stand) -> None:
    desk = desk_of(stand)
    stand.topic()
    stand.run(stand.flow())
    assert desk.give("pause", stand.name)[0] == 0
    code, said = desk.give("reset", stand.name, "--yes", stateful=True)
    assert (code, f"{stand.name} is paused since" in said, f"falkirk resume {stand.name}" in said) == (0, True, True), (
        said
    )
    assert "is paused since" in desk.give("pause", stand.name)[1]
    code, said = desk.give("resume", stand.name)
    assert (code, f"{stand.name}: resumed; it has no workers now" in said) == (0, True), said
    assert current_requests(stand.settings.cluster(), control_topic("falkirk", stand.name)).pause is None
    desk.refused(2, f"app '{stand.name}' was reset, and has not run since", of=desk.give("drain", stand.name))
    answer = desk.give("resume", stand.name, "--part", "nothing")
    desk.refused(2, f"app '{stand.name}' has no part 'nothing'", of=answer)


def dying(topics: Topics, deletions: int) -> Topics:
    """Topics that fail after so many deletions, as a command does that is killed."""
    whole, left = topics.delete, [deletions]

    def delete(names: Any) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        whole(names)

    topics.delete = delete  # type: ignore[method-assign]
    return topics


@pytest.mark.slow
@pytest.mark.parametrize(("what", "deletions"), [("reset", 1), ("delete", 0)])
def test_a_reset_or_deletion_that_was_killed_keeps_the_app_from_running_until_it_is_finished(
    stand: Stand, what: str, deletions: int
) -> None:
    stand.topic()
    stand.bids(30)
    stand.run(stand.flow())
    settings, topics = stand.settings, dying(Topics(stand.settings.cluster()), deletions)
    found = app_resources(stand.name, settings, topics)
    do: Callable[[], None] = {
        "reset": lambda: reset(found, settings, topics, {}, lambda _: None),
        "delete": lambda: delete(found, settings, topics, lambda _: None, published=False),
    }[what]
    with pytest.raises(KeyboardInterrupt):
        do()
    with pytest.raises(StateError, match=f"a {what} of app '{stand.name}' was begun, and is not finished"):
        stand.app(stand.flow())
    desk = desk_of(stand)
    desk.refused(7, f"run falkirk {what} {stand.name} again", of=desk.give("status", stand.name))
    code, said = desk.give(what, stand.name, "--yes", stateful=True)
    assert code == 0, said
    stand.delete("stats")
    stand.run(stand.flow())
    stand.assert_exact()


def test_what_a_reset_chose_and_retention_deleted_is_not_passed_over(stand: Stand) -> None:
    bids = stand.topic()
    stand.bids(40)
    stand.run(stand.flow())
    settings, topics = stand.settings, Topics(stand.settings.cluster())
    found = app_resources(stand.name, settings, topics)
    reset(found, settings, topics, {bids: Start(topics.describe([bids])[bids].id, (2, 2))}, lambda _: None)
    stand.trim(5)
    with pytest.raises(
        SourceError, match=rf"the app was reset to offset 2 of topic '{bids}', and what follows is deleted"
    ):
        stand.run(stand.flow())


def test_the_group_itself_refuses_a_deletion_beside_a_worker_that_joins(stand: Stand) -> None:
    """Between the first look and the deletion a worker may have joined: then all stays as it was."""
    stand.topic()
    stand.bids(10)
    stand.run(stand.flow())
    settings, topics = stand.settings, Topics(stand.settings.cluster())
    found = app_resources(stand.name, settings, topics)
    with stand.worker(stand.flow()) as worker:
        worker._membership.join()
        [domain] = worker.domains.values()
        while not domain.core.assigned:
            worker._membership.poll()
        with pytest.raises(FalkirkError, match="is running"), ending("delete", found, settings, topics):
            raise AssertionError("the app runs")
    stand.app(stand.flow())
    assert steps_topic("falkirk", stand.name) in topics_of(stand)


def test_a_checkpoint_that_is_interrupted_is_taken_back(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    stand.topic()
    stand.run(stand.flow())

    def interrupted(seconds: float, sleep: Callable[[float], None] = time.sleep) -> None:
        sleep(seconds)
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt

    monkeypatch.setattr("falkirk.runtime.messages.request_progress.time.sleep", interrupted)
    code, _ = desk_of(stand).give("checkpoint", stand.name)
    assert code == 1
    assert current_requests(stand.settings.cluster(), control_topic("falkirk", stand.name)).checkpoint is None
