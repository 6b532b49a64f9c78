"""A crash at every file operation of a store, before it, after it, and within a write."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from falkirk.state import files, manifest
from falkirk.state.engine import Engine, Memory
from falkirk.state.rocks import RocksStore, install_version
from falkirk.state.store import EMPTY, Identity, Progress

WHOSE = Identity("app", "stats/0", "f00")
pytestmark = pytest.mark.usefixtures("still_files", "no_waiting_for_the_disk")
MEMORY = Memory(cache=8 << 20, write_buffers=8 << 20)


@pytest.fixture
def tmp_path(no_waiting_for_the_disk: None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="falkirk-") as folder:
        yield Path(folder) / "test"


class Crash(BaseException):
    """The process is gone; nothing that the code under test does afterwards counts."""


class Disk:
    """Lets operations through, and at one of them keeps what the files hold, as a kill there would."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.seen, self.fatal, self.when = folder, 0, -1, ""
        self.left = folder.with_name("left")
        for name in ("write_file", "sync_folder", "rename", "link_file", "remove_folder", "make_folder"):
            monkeypatch.setattr(files, name, self._wrap(getattr(files, name), torn=name == "write_file"))
        for name in ("__init__", "write", "flush", "checkpoint", "close"):
            monkeypatch.setattr(Engine, name, self._wrap(getattr(Engine, name), torn=False))

    def _wrap(self, operation: Callable[..., None], *, torn: bool) -> Callable[..., None]:
        def run(*args: Any, **kwargs: Any) -> None:
            self.seen += 1
            fatal = self.seen == self.fatal
            if fatal and self.when == "before":
                self._crash()
            if fatal and self.when == "within" and torn:
                args[0].write_bytes(args[1][: len(args[1]) // 2])
                self._crash()
            operation(*args, **kwargs)
            if fatal:
                self._crash()

        return run

    def _crash(self) -> None:
        shutil.copytree(self.folder, self.left)
        raise Crash


def lives(tmp_path: Path, prepare: Callable[[RocksStore], None], act: Callable[[RocksStore], object]) -> Iterator[Path]:
    """What is left of a store after a crash at each operation of `act` in turn."""
    for when in ("before", "within", "after"):
        fatal, ended = 0, False
        while not ended:
            fatal += 1
            shutil.rmtree(tmp_path, ignore_errors=True)
            store = RocksStore(tmp_path / "store", WHOSE, MEMORY)
            prepare(store)
            with pytest.MonkeyPatch.context() as monkeypatch:
                disk = Disk(tmp_path / "store", monkeypatch)
                disk.fatal, disk.when = fatal, when
                try:
                    act(store)
                    ended = True
                except Crash:
                    pass
            store.close()
            if not ended:
                yield disk.left
        assert fatal > 5


def put(store: RocksStore, step: int) -> None:
    store.write({b"%d" % i: b"%d" % step for i in range(20)}, Progress(step, step, step))


def check(store: RocksStore, steps: set[int]) -> None:
    """The store holds exactly what was there after one of `steps`."""
    step = store.progress.step
    assert step in steps
    pairs = {b"%d" % i: b"%d" % step for i in range(20)} if step >= 0 else {}
    assert dict(store.scan(b"", b"\xfe")) == pairs


def two_versions(store: RocksStore) -> None:
    put(store, 1)
    store.commit()
    put(store, 2)
    store.commit()
    put(store, 3)


def test_a_crash_in_commit_leaves_the_old_versions_with_or_without_the_new_one(tmp_path: Path) -> None:
    seen = set()
    for left in lives(tmp_path, two_versions, RocksStore.commit):
        store = RocksStore(left, WHOSE, MEMORY)
        check(store, {2, 3})
        assert store.versions() in (range(1, 3), range(2, 4))
        seen.add(store.versions())
        assert_tidy(left)
        for version in reversed(store.versions()):
            store.open(version)
            check(store, {version})
        put(store, 9)
        assert store.commit() == store.versions()[-1]
        store.close()
    assert seen == {range(1, 3), range(2, 4)}


@pytest.mark.parametrize("version", [1, 2])
def test_a_crash_in_open_leaves_the_store_as_before_or_as_after(tmp_path: Path, version: int) -> None:
    for left in lives(tmp_path, two_versions, lambda store: store.open(version)):
        store = RocksStore(left, WHOSE, MEMORY)
        check(store, {2, 3, version})
        assert store.versions() in (range(1, 3), range(1, version + 1))
        assert_tidy(left)
        store.open(1)
        check(store, {1})
        store.close()


def test_a_crash_while_a_store_is_made_leaves_one_that_can_be_made(tmp_path: Path) -> None:
    def make(store: RocksStore) -> None:
        RocksStore(tmp_path / "store" / "new", WHOSE, MEMORY).close()

    for left in lives(tmp_path, lambda _: None, make):
        store = RocksStore(left / "new", WHOSE, MEMORY)
        assert store.progress == EMPTY
        check(store, {-1})
        assert_tidy(left / "new")
        store.close()


@pytest.mark.slow
@pytest.mark.parametrize("there_before", [True, False])
def test_a_crash_while_a_version_is_installed_leaves_what_was_there_or_the_version(
    tmp_path: Path, there_before: bool
) -> None:
    def fetch(folder: Path) -> None:
        for file in (tmp_path / "store" / manifest.version_folder(2)).iterdir():
            files.write_file(folder / file.name, file.read_bytes())

    def prepare(store: RocksStore) -> None:
        two_versions(store)
        if there_before:
            other = RocksStore(tmp_path / "store" / "new", WHOSE, MEMORY)
            put(other, 0)
            other.close()

    def install(store: RocksStore) -> None:
        install_version(tmp_path / "store" / "new", WHOSE, 17, fetch, MEMORY)
        RocksStore(tmp_path / "store" / "new", WHOSE, MEMORY).close()

    for left in lives(tmp_path, prepare, install):
        store = RocksStore(left / "new", WHOSE, MEMORY)
        before = 0 if there_before else -1
        check(store, {before, 2})
        assert store.versions() == (range(17, 18) if store.progress.step == 2 else range(1))
        assert_tidy(left / "new")
        store.close()


def assert_tidy(folder: Path) -> None:
    """Nothing is left of what the crash interrupted, but the file that the next manifest is written to."""
    current = manifest.read_manifest(folder)
    assert current is not None
    named = current.folders() | {manifest.FILE, "lock"}
    assert {file.name for file in folder.iterdir()} - {"new", manifest.FILE + ".new"} == named
