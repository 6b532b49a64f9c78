"""A checkpoint store that is away: obstore's S3 client against a server that hangs, refuses or loses; a folder that hangs."""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import obstore
import pytest
from tests.s3 import S3

from falkirk.checkpoint.ids import Offset, Step, TaskId, TopicPartition
from falkirk.checkpoint.regimes import Eager, Lazy
from falkirk.checkpoint.tasks import Revoked, Task
from falkirk.errors import AwayError, DamagedError
from falkirk.runtime.worker import store_health
from falkirk.runtime.worker.stores import RECOVERIES, TaskStores
from falkirk.state import checkpoints, objects
from falkirk.state.engine import Memory
from falkirk.state.rocks import RocksStore
from falkirk.state.store import Progress, Store

LAZY = Task(TaskId("lazy", 0), TopicPartition("steps", 0), Lazy())
EAGER = Task(TaskId("eager", 0), TopicPartition("steps", 1), Eager((TopicPartition("changes", 1),)))
MORE = [Task(TaskId("more", n), TopicPartition("steps", 2 + n), Lazy()) for n in range(RECOVERIES + 2)]
HANG = 30.0
"""Seconds after which a test that should not wait is taken to hang."""

each_outage = pytest.mark.parametrize("outage", ["hangs", "refuses", "loses"])


@pytest.fixture
def folder(no_waiting_for_the_disk: None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="falkirk-") as folder:
        yield Path(folder)


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    server = S3()
    for name, value in {**server.environment(), "AWS_READ_TIMEOUT": "1s"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(store_health, "PATIENCE", 0.5)
    monkeypatch.setattr(store_health, "AGAIN", 0.1)
    yield server
    server.close()


def worker(folder: Path, name: str, url: str = "s3://bucket/copies") -> TaskStores:
    stage = SimpleNamespace(fingerprint="f00", state_schema="rows")
    tasks = [SimpleNamespace(task=task, stage=stage) for task in (LAZY, EAGER, *MORE)]
    app: Any = SimpleNamespace(name="app", incarnation="i", tasks=tasks)
    return TaskStores(app, folder / name, url, Memory(8 << 20, 8 << 20), lambda: None)


def opened(stores: TaskStores, task: Task = LAZY, go_on: Callable[[], None] = lambda: None) -> Store:
    stores.prefetch(task.id, go_on)
    return asyncio.run(stores.open(task.id, go_on))


def advance(stores: TaskStores, step: int, task: Task = LAZY) -> None:
    """Go on to a step, and copy a version of it."""
    store = opened(stores, task)
    assert isinstance(store, RocksStore)
    try:
        store.write({b"a": b"%d" % step}, Progress(step, step, step))
        version = store.commit()
        stores.upload(task.id, store.version_folder(version), store.version_progress(version), lambda: None)
    finally:
        store.close()


def at(store: Store) -> int:
    store.close()
    return store.progress.step


class Waiting:
    """A take-over in a thread of its own."""

    def __init__(self, ask: Callable[[Callable[[], None]], Any]) -> None:
        self.revoked = False
        self.outcome: Any = None
        self._thread = threading.Thread(target=self._run, args=(ask,), daemon=True)
        self._thread.start()

    def _run(self, ask: Callable[[Callable[[], None]], Any]) -> None:
        try:
            self.outcome = ask(self._go_on)
        except BaseException as error:  # noqa: BLE001
            self.outcome = error

    def _go_on(self) -> None:
        if self.revoked:
            raise Revoked

    def ends(self) -> Any:
        self._thread.join(HANG)
        assert not self._thread.is_alive()
        return self.outcome

    @property
    def waits(self) -> bool:
        return self._thread.is_alive()


def until(there: Callable[[], object]) -> None:
    end = time.monotonic() + HANG
    while not there():
        assert time.monotonic() < end
        time.sleep(0.01)


@each_outage
def test_a_store_that_is_here_does_while_the_checkpoint_store_is_away(folder: Path, s3: S3, outage: str) -> None:
    here = worker(folder, "here")
    advance(here, 7)
    with s3.behaving(outage):
        assert Waiting(lambda go_on: at(opened(here, go_on=go_on))).ends() == 7
    advance(worker(folder, "there"), 9)
    time.sleep(2 * store_health.AGAIN)
    until(lambda: at(opened(here)) == 9)


@each_outage
def test_a_changelog_does_while_the_checkpoint_store_is_away(folder: Path, s3: S3, outage: str) -> None:
    advance(worker(folder, "there"), 7, EAGER)
    with s3.behaving(outage):
        assert Waiting(lambda go_on: at(opened(worker(folder, "here"), EAGER, go_on))).ends() == -1


@each_outage
def test_a_lazy_task_without_a_store_waits_and_says_what_for(
    folder: Path, s3: S3, outage: str, caplog: pytest.LogCaptureFixture
) -> None:
    advance(worker(folder, "there"), 7)
    here = worker(folder, "here")
    with s3.behaving(outage):
        waiting = Waiting(lambda go_on: at(opened(here, go_on=go_on)))
        until(lambda: here.waits(LAZY.id))
        assert (here.waits(LAZY.id) or "").startswith("the checkpoint store, unavailable since 20")
        assert waiting.waits
    assert waiting.ends() == 7
    assert here.waits(LAZY.id) is None
    assert "task lazy/0 waits for the checkpoint store" in caplog.text
    assert "the checkpoint store is unavailable since" in caplog.text
    assert "answers again" in caplog.text


@each_outage
def test_a_store_that_the_logs_no_longer_reach_waits_for_a_newer_one(folder: Path, s3: S3, outage: str) -> None:
    here = worker(folder, "here")
    advance(here, 7)
    advance(worker(folder, "there"), 9)
    with s3.behaving(outage):
        waiting = Waiting(lambda go_on: at(asyncio.run(here.newer(LAZY.id, Step(7), go_on))))
        until(lambda: here.waits(LAZY.id))
    assert waiting.ends() == 9
    assert at(asyncio.run(here.newer(LAZY.id, Step(9), lambda: None))) == 9, "there is none newer"


@each_outage
def test_who_waits_ends_when_the_task_is_taken_away(folder: Path, s3: S3, outage: str) -> None:
    """The server answers only after the test, and a task that comes back finds its folder free."""
    advance(worker(folder, "there"), 7)
    here = worker(folder, "here")
    asks: list[Callable[[Callable[[], None]], object]] = [
        lambda go_on: opened(here, go_on=go_on),
        lambda go_on: asyncio.run(here.newer(LAZY.id, Step(3), go_on)),
        lambda go_on: asyncio.run(here.before(LAZY.id, Step(3), go_on)),
        lambda go_on: asyncio.run(here.based(LAZY.id, Offset(3), go_on)),
    ]
    with s3.behaving(outage):
        for ask in asks:
            waiting = Waiting(ask)
            until(lambda: here.waits(LAZY.id))
            waiting.revoked = True
            assert isinstance(waiting.ends(), Revoked)
    until(lambda: at(opened(here)) == 7)


def test_who_waits_holds_up_no_other_recovery(folder: Path, s3: S3) -> None:
    here = worker(folder, "here")
    advance(here, 7)

    def recover(task: Task) -> Callable[[Callable[[], None]], int]:
        def run(go_on: Callable[[], None]) -> int:
            with here.recovering:
                return at(opened(here, task, go_on))

        return run

    with s3.behaving("hangs"):
        waiting = [Waiting(recover(task)) for task in MORE]
        until(lambda: all(here.waits(task.id) for task in MORE))
        assert Waiting(recover(LAZY)).ends() == 7
        assert Waiting(recover(EAGER)).ends() == -1
        assert all(w.waits for w in waiting)
    assert [w.ends() for w in waiting] == [-1] * len(MORE)


def test_a_hanging_folder_is_asked_once_and_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch, s3: S3) -> None:
    """As a dead mount does, which no time-out of a client ends."""
    url, hangs, asked = (folder / "copies").as_uri(), threading.Event(), list[object]()
    advance(worker(folder, "there", url), 7)
    here, listing = worker(folder, "here", url), obstore.list

    def hanging(*given: Any, **options: Any) -> Any:
        asked.append(given)
        hangs.wait()
        return listing(*given, **options)

    monkeypatch.setattr(obstore, "list", hanging)
    waiting = Waiting(lambda go_on: at(opened(here, go_on=go_on)))
    until(lambda: here.waits(LAZY.id))
    time.sleep(5 * store_health.AGAIN)
    assert waiting.waits
    assert len(asked) == 1
    hangs.set()
    assert waiting.ends() == 7


def test_a_folder_that_goes_away_is_waited_for(folder: Path, s3: S3) -> None:
    url = (folder / "copies").as_uri()
    advance(worker(folder, "there", url), 7)
    here = worker(folder, "here", url)
    (folder / "copies").rename(folder / "unmounted")
    waiting = Waiting(lambda go_on: at(opened(here, go_on=go_on)))
    until(lambda: here.waits(LAZY.id))
    assert "not there" in (here.waits(LAZY.id) or "")
    (folder / "unmounted").rename(folder / "copies")
    assert waiting.ends() == 7


@each_outage
def test_while_it_is_away_few_requests_are_made_for_all_copies_together(
    folder: Path, s3: S3, outage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = worker(folder, "here")
    with s3.behaving(outage):
        with pytest.raises(AwayError):
            advance(here, 7, EAGER)
        monkeypatch.setattr(store_health, "AGAIN", 3600.0)
        asked = sum(s3.requests.values())
        for step in (8, 9):
            with pytest.raises(AwayError):
                advance(here, step, EAGER)
        # One attempt may have been under way. Two copies that asked for themselves would be two more.
        assert sum(s3.requests.values()) <= asked + 1
    monkeypatch.setattr(store_health, "AGAIN", 0.0)
    until(lambda: Waiting(lambda _: advance(here, 10, EAGER)).ends() is None)
    assert here.copies(EAGER.id).versions() == [10]


def test_a_damaged_copy_gives_way_to_the_one_before(
    folder: Path, s3: S3, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(checkpoints, "SMALL", -1)
    there = worker(folder, "there")
    for step in (3, 7):
        advance(there, step)
    version = there.copies(LAZY.id).read(7)
    older = {file.hash for file in there.copies(LAZY.id).read(3).files}
    damaged = next(file.hash for file in version.files if file.hash not in older)
    s3.objects[f"copies/app/i/lazy/0/files/{damaged}"] = (b"other", s3.objects[next(iter(s3.objects))][1])
    here = worker(folder, "here")
    assert at(opened(here)) == 3
    assert "step 7 cannot be used" in caplog.text
    advance(here, 7)
    assert at(opened(worker(folder, "next"))) == 7
    for name in [n for n in s3.objects if "/versions/" in n]:
        s3.objects[name] = (b"{", s3.objects[name][1])
    with pytest.raises(DamagedError):
        opened(worker(folder, "last"))
    assert at(opened(here)) == 7, "what is here does"


def test_a_request_has_time_outs_and_few_tries(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_READ_TIMEOUT")
    store = objects.connect("s3://bucket/copies")
    assert store.client_options is not None
    assert store.client_options["read_timeout"] == "20s"
    assert store.client_options["allow_http"] == "true"
    with s3.behaving("refuses"), pytest.raises(AwayError):
        objects.try_out("s3://bucket/copies")
    assert 1 < sum(s3.requests.values()) <= 5
