"""A recovery is planned while the app runs; then its host dies, and what the take-overs did is what the plan said."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.cli.live import kill_all
from tests.cli.test_app import Running
from tests.waiting import PATIENCE_S

from falkirk.cli.main import falkirk
from falkirk.errors import FalkirkError

pytestmark = pytest.mark.kafka

FLOW = """
from __future__ import annotations
import falkirk as fk

flow = fk.Flow("{name}", regime=fk.EagerCheckpoint(every="1h"))
bids = flow.source("{prefix}bids", key="auction", value=fk.Json({{"auction": fk.Int64}}))
bids.group_by("auction", id="counts").agg(n=fk.len()).sink("{prefix}counts", key="auction", value=fk.Json())
again = bids.with_regime(fk.LazyCheckpoint(every="1h"))
again.group_by("auction", id="sums").agg(n=fk.sum("auction")).sink("{prefix}sums", key="auction", value=fk.Json())
"""
WITHIN = """
from __future__ import annotations
import falkirk as fk

flow = fk.Flow("{name}", regime=fk.LazyCheckpoint(step="10ms", every=fk.RecoverWithin("600ms")))
bids = flow.source("{prefix}bids", key="auction", value=fk.Json({{"auction": fk.Int64}}))
bids.group_by("auction", id="sums").agg(n=fk.len()).sink("{prefix}sums", key="auction", value=fk.Json())
"""
TOOK = re.compile(r"task (\S+) was taken over in ([0-9.]+) s \(predicted ([0-9.]+) s\): (.*)")


class Living(Running):
    """An app whose workers log what they do."""

    def __init__(self, brokers: str, prefix: str, folder: Path) -> None:
        super().__init__(brokers, prefix, folder)
        self.prefix = prefix
        self.define(FLOW)
        self.copies = (folder / "copies").as_uri()

    def define(self, flow: str) -> None:
        (self.folder / "app.py").write_text(flow.format(name=self.name, prefix=self.prefix))

    def live(self, state_dir: str, *options: str) -> None:
        command = ["run", "app.py:flow", "--brokers", self.brokers, "--state-dir", state_dir, "--log-level", "info"]
        with (self.folder / "log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "falkirk", *command, *options],
                cwd=self.folder,
                text=True,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        self.processes.append(process)

    def give(self, *command: str) -> tuple[int, str]:
        """The exit code, and all that was said."""
        result = CliRunner().invoke(falkirk, [*command, "--brokers", self.brokers])
        if isinstance(error := result.exception, FalkirkError):
            return error.exit_code, f"{result.output}error: {error}"
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, result.output

    def asked(self, dies: str) -> dict[str, Any]:
        """The plan, by task."""
        code, said = self.give("plan", self.name, "--if-dies", dies, "--json")
        assert code == 0, said
        found = json.loads(said)
        return {**found, "tasks": {t["task"]: t for t in found["tasks"]}}

    def settle(self, records: int) -> None:
        """Wait until all tasks run, and have read so many records of each source in all."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            code, said = self.give("status", self.name, "--json")
            if code == 0 and (found := json.loads(said))["state"] == "running":
                read = sum(i["position"] for t in found["tasks"] for i in t["inputs"])
                stages = {t["task"].partition("/")[0] for t in found["tasks"]}
                if found["lag"] == 0 and read >= len(stages) * records:
                    return
            assert time.monotonic() < deadline, said
            time.sleep(0.2)

    def settle_sources(self, records: int) -> None:
        """Wait until all tasks run, nothing is left to read, and so many records of sources have been read."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            code, said = self.give("status", self.name, "--json")
            if code == 0 and (found := json.loads(said))["state"] == "running" and found["lag"] == 0:
                inputs = [i for t in found["tasks"] for i in t["inputs"] if i["topic"] == self.source]
                if sum(i["position"] for i in inputs) >= records:
                    return
            assert time.monotonic() < deadline, said
            time.sleep(0.2)

    def die(self) -> str:
        """Returns what its workers have said."""
        kill_all(self.processes[-1])
        return (self.folder / "log").read_text()


@pytest.fixture
def app(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[Living]:
    running = Living(kafka, topic_prefix, tmp_path)
    yield running
    running.close()


@pytest.mark.slow
def test_what_is_replayed_after_the_loss_of_a_host_is_what_was_planned(app: Living) -> None:
    tasks = {"counts/0", "counts/1", "sums/0", "sums/1"}
    app.feed(300)
    app.live("ant", "--checkpoints", app.copies)
    app.settle(300)
    code, said = app.give("checkpoint", app.name)
    assert code == 0, said
    app.feed(700)
    app.settle(1_000)

    planned = app.asked(socket.gethostname())
    found = planned["tasks"]
    assert (found.keys(), planned["also"], planned["stay"], planned["takers"]) == (tasks, [], 0, [])
    assert {t["begins_with"] for t in found.values()} == {"copied"}
    assert sum(found[f"sums/{p}"]["records"] for p in (0, 1)) == 700
    assert all(found[f"sums/{p}"]["steps"] > 0 for p in (0, 1))
    assert all(found[f"counts/{p}"]["steps"] == 0 < found[f"counts/{p}"]["records"] for p in (0, 1))
    assert all("replay" in t["presumed"] and "open" not in t["presumed"] for t in found.values())
    assert all(t["back_to"] > t["version"] >= 0 for t in found.values())
    assert planned["noticed_s"] == 10.0

    near = app.asked("counts/0")
    assert (near["kind"], near["noticed_s"], near["tasks"].keys()) == ("worker", 0.0, tasks)
    assert {(t["begins_with"], t["records"], t["bytes"]) for t in near["tasks"].values()} == {("local", 0, 0)}
    code, said = app.give("plan", app.name, "--if-dies", "count/0")
    assert code == 2
    assert "did you mean counts/0?" in said
    code, said = app.give("plan", app.name, "--if-dies", "counts/0", "--apply")
    assert code == 2

    app.die()
    shutil.rmtree(app.folder / "ant")
    app.live("bee", "--checkpoints", app.copies)
    deadline = time.monotonic() + PATIENCE_S
    while {task for task, *_ in TOOK.findall((app.folder / "log").read_text())} != tasks:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    app.settle(1_000)
    deadline = time.monotonic() + PATIENCE_S  # the next report of the worker says what it has measured
    while any(t["presumed"] for t in app.asked(socket.gethostname())["tasks"].values()):
        assert time.monotonic() < deadline
    after = app.asked(socket.gethostname())["tasks"]
    # A changelog has one record more: the mark of the take-over.
    again = {task: t["records"] + (1 if t["steps"] == 0 else 0) for task, t in found.items()}
    assert {task: t["records"] for task, t in after.items()} == again
    log = app.die()
    took = {task: words for task, _, _, words in TOOK.findall(log)}
    assert took.keys() == tasks, log
    for task in tasks:
        assert f"fetching {found[task]['bytes']:,} bytes" in took[task], (task, took)
        assert f"replay of {found[task]['records']:,} records" in took[task], (task, took)


@pytest.mark.slow
def test_versions_keep_what_a_lost_host_has_to_replay_within_the_time_of_a_recovery(app: Living) -> None:
    """Until a replay is measured, a step is presumed to take 2 ms: with the rest, 150 to 220 of them fit into 0.6 s."""
    app.define(WITHIN)
    app.live("ant", "--checkpoints", app.copies)
    planned: dict[str, Any] = {}
    deadline, fed = time.monotonic() + PATIENCE_S, 0
    while not planned or any(t["back_to"] < 100 or t["begins_with"] != "copied" for t in planned.values()):
        assert time.monotonic() < deadline, planned
        app.feed(7, bursts=200)
        fed += 1_400
        app.settle(fed)
        planned = app.asked(socket.gethostname())["tasks"]
    assert planned.keys() == {"sums/0", "sums/1"}
    for task in planned.values():
        assert 0 <= task["steps"] < 220, task

    app.die()
    shutil.rmtree(app.folder / "ant")
    app.live("bee", "--checkpoints", app.copies)
    deadline = time.monotonic() + PATIENCE_S
    while len(TOOK.findall((app.folder / "log").read_text())) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    took = {task: words for task, _, _, words in TOOK.findall(app.die())}
    for name, task in planned.items():
        replayed = re.search(r"replay of ([0-9,]+) records", took[name])
        assert int(replayed[1].replace(",", "") if replayed else 0) == task["records"], (name, took)


@pytest.mark.slow
def test_a_lazy_task_whose_copies_die_with_their_host_cannot_recover_elsewhere(app: Living) -> None:
    """Their steps are trimmed below the second version. An eager task is rebuilt from its changelog."""
    app.live("ant")
    fed = 0
    for _ in range(3):
        app.feed(100)
        fed += 100
        app.settle(fed)
        code, said = app.give("checkpoint", app.name)
        assert code == 0, said
    code, said = app.give("plan", str(app.folder / "app.py:flow"), "--if-dies", socket.gethostname())
    assert code == 7, said
    assert said.count("cannot recover") == 2
    assert said.count("an empty store") == 2
    assert "to do: run the workers with --checkpoints" in said
