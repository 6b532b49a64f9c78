"""A worker's publisher: outages delay no step and are told, and a worker that leaves publishes what is committed."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from tests.waiting import PATIENCE_S

from falkirk.checkpoint.ids import Offset, TaskId, TopicPartition
from falkirk.checkpoint.outlets import Chunk
from falkirk.connectors.files.parquet import StepRows
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.errors import AwayError
from falkirk.runtime.worker import outlets
from falkirk.runtime.worker.outlets import Patience, Publisher, publish_rest
from falkirk.stream.dataflow.topics import Output
from falkirk.stream.definition.outlets import FilesPlan

TOPIC = "falkirk.app.files.archive"
SHORT = Patience(0.1, 0.1, "it ends")


class Log:
    """A log in memory: one row and one offset for each step."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.begins: dict[TopicPartition, Offset] = {}
        """Of each sink's partition: what one has published and trimmed, another may still wait for."""
        self.undecided = 0
        """So many more times, a transaction seems to be open, which hides the last row."""

    async def begin(self, place: TopicPartition) -> Offset:
        return self.begins.get(place, Offset(0))

    async def trim(self, place: TopicPartition, below: Offset) -> None:
        self.begins[place] = below

    def is_decided(self, place: TopicPartition) -> bool:
        self.undecided -= 1
        return self.undecided < 0

    async def read(self, place: TopicPartition, start: Offset) -> Chunk[Sequence[StepRows]] | None:
        seen = self.rows[: len(self.rows) - (self.undecided > 0)]
        rows = [StepRows("t/0", n, pl.DataFrame({"n": [n]})) for n in seen[start:]]
        return Chunk(place, start, Offset(len(seen)), rows) if rows else None


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log()
    monkeypatch.setattr(outlets, "Outbox", lambda _: log)
    monkeypatch.setattr(outlets, "AGAIN", 0.01)
    return log


def publisher_to(folder: Path, every: float) -> tuple[Publisher, list[Any]]:
    """A publisher, and the one task that it publishes for."""
    app: Any = SimpleNamespace(name="app", topics={TOPIC: SimpleNamespace(id="id")})
    output = Output("archive", TOPIC, "edge", FilesPlan(str(folder), timedelta(seconds=every)))
    bound = SimpleNamespace(task=SimpleNamespace(id=TaskId("t", 0)), stage=SimpleNamespace(outputs=[output]))
    app.tasks = [bound]
    return Publisher(app, Cluster("nowhere:1"), {}), [SimpleNamespace(bound=bound)]


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def rows(folder: Path) -> list[int]:
    files = sorted(folder.glob("*.parquet")) if folder.is_dir() else []
    return [n for file in files for n in pl.read_parquet(file)["n"]]


def test_rows_are_published_and_then_trimmed(tmp_path: Path, log: Log) -> None:
    made, tasks = publisher_to(tmp_path, every=0.01)
    for n in range(3):
        log.rows.append(n)
        made.tick(tasks)
        until(lambda: rows(tmp_path) == log.rows)
    until(lambda: log.begins == {TopicPartition(TOPIC, 0): 3})
    assert made.waits() == ""
    made.close()


def test_a_worker_that_leaves_publishes_what_is_committed_even_if_that_is_seen_late(tmp_path: Path, log: Log) -> None:
    made, tasks = publisher_to(tmp_path, every=3600)
    made.tick(tasks)
    until(lambda: made._sinks["archive"]._due[TopicPartition(TOPIC, 0)].when > 0)
    log.rows += [0, 1, 2]
    log.undecided = 3
    made.close()
    assert rows(tmp_path) == [0, 1, 2]


def test_an_outage_is_told_with_its_beginning_and_ends_by_itself(tmp_path: Path, log: Log) -> None:
    blocked = tmp_path / "files"
    blocked.write_text("no folder")
    made, tasks = publisher_to(blocked, every=0.01)
    log.rows.append(0)
    made.tick(tasks)
    until(made.waits)
    assert made.waits().startswith("files wait since 2")
    assert str(blocked) in made.waits()
    made.tick(tasks)
    blocked.unlink()
    until(lambda: rows(blocked) == [0])
    until(lambda: not made.waits())
    made.close()


def test_a_sink_that_is_away_delays_no_other(tmp_path: Path, log: Log) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("no folder")
    made, tasks = publisher_to(tmp_path / "files", every=0.01)
    other = Output("other", "falkirk.app.files.other", "edge", FilesPlan(str(blocked), timedelta(seconds=0.01)))
    made._app.topics["falkirk.app.files.other"] = made._app.topics[TOPIC]  # type: ignore[index]
    tasks[0].bound.stage.outputs.append(other)
    log.rows.append(0)
    made.tick(tasks)
    until(made.waits)
    for n in range(1, 4):
        log.rows.append(n)
        until(lambda: rows(tmp_path / "files") == log.rows)
    assert made.waits().count("wait since") == 1
    assert str(blocked) in made.waits()
    made.close(SHORT)


def test_a_place_that_is_away_does_not_keep_a_worker_from_leaving(
    tmp_path: Path, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "files"
    blocked.write_text("no folder")
    made, tasks = publisher_to(blocked, every=0.01)
    log.rows.append(0)
    made.tick(tasks)
    until(made.waits)
    made.close(SHORT)
    assert "the last files of sink archive are not written yet" in caplog.text
    blocked.unlink()


def test_a_run_that_ends_publishes_what_no_worker_did(tmp_path: Path, log: Log) -> None:
    made, _ = publisher_to(tmp_path / "files", every=3600)
    log.rows += [0, 1]
    publish_rest(made._app, Cluster("nowhere:1"), {})
    assert rows(tmp_path / "files") == [0, 1]
    log.rows.append(2)
    blocked, _ = publisher_to(tmp_path / "files" / next((tmp_path / "files").iterdir()).name, every=3600)
    with pytest.raises(AwayError, match="last rows of archive are not written yet") as caught:
        publish_rest(blocked._app, Cluster("nowhere:1"), {}, SHORT)
    assert "files wait since 2" in caught.value.where


def test_a_run_that_ends_says_what_it_waits_for_and_gives_up_a_place_that_stays_away(
    tmp_path: Path, log: Log, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlets, "SAY", 0.1)
    blocked = tmp_path / "files"
    blocked.write_text("no folder")
    made, _ = publisher_to(blocked, every=3600)
    log.rows.append(0)
    with pytest.raises(AwayError, match="last rows of archive are not written yet"):
        publish_rest(made._app, Cluster("nowhere:1"), {}, Patience(math.inf, 0.3, "the run ends with an error"))
    [said] = [record.message for record in caplog.records if "waiting for" in record.message]
    assert said.startswith("waiting for the last rows: files wait since 2")
    assert said.endswith("the run ends with an error")


def test_a_place_that_comes_back_in_time_gets_the_last_rows(tmp_path: Path, log: Log) -> None:
    blocked = tmp_path / "files"
    blocked.write_text("no folder")
    made, tasks = publisher_to(blocked, every=0.01)
    log.rows.append(0)
    made.tick(tasks)
    until(made.waits)
    threading.Timer(0.3, blocked.unlink).start()
    made.close(Patience(math.inf, math.inf, ""))
    assert rows(blocked) == [0]


def test_a_place_that_stays_away_is_tried_less_and_less_often(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlets, "RARELY", 0.04)
    blocked = tmp_path / "files"
    blocked.write_text("no folder")
    made, tasks = publisher_to(blocked, every=0.01)
    log.rows.append(0)
    made.tick(tasks)
    due = made._sinks["archive"]._due[TopicPartition(TOPIC, 0)]
    until(lambda: due.pause == 0.04)
    tried = due.when
    until(lambda: due.when > tried + 0.1)
    assert due.pause == 0.04
    blocked.unlink()
    until(lambda: rows(blocked) == [0])
    until(lambda: due.pause == 0)
    made.close()


def test_what_no_retry_can_fix_ends_the_worker(tmp_path: Path, log: Log) -> None:
    made, tasks = publisher_to(tmp_path, every=0.01)
    log.rows += [0]
    made.tick(tasks)
    until(lambda: rows(tmp_path))
    made.close()
    (file,) = tmp_path.glob("*.parquet")
    file.write_bytes(b"damaged")
    log.begins.clear()
    again, tasks = publisher_to(tmp_path, every=0.01)
    again.tick(tasks)
    with pytest.raises(Exception, match="cannot be read"):
        until(lambda: again.tick(tasks))
