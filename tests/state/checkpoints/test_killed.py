"""Versions in a checkpoint store: whole or absent, wherever an upload or a deletion is killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import obstore
import pytest
from obstore.store import MemoryStore, ObjectStore
from tests.state.checkpoints.copies import NOW, WHOSE, Crash, advance, contents, restored, upload

from falkirk.errors import DiskError
from falkirk.state.checkpoints import CheckpointStore
from falkirk.state.remote import RemoteVersion
from falkirk.state.rocks import RocksStore, install_version


def kill_at_each(
    monkeypatch: pytest.MonkeyPatch, name: str, prepare: Callable[[], ObjectStore], act: Callable[[ObjectStore], object]
) -> Iterator[ObjectStore]:
    """What is left of a checkpoint store after a crash before, or after, each call of an operation in turn."""
    operation: Callable[..., object] = getattr(obstore, name)
    for after in (False, True):
        fatal = 0
        while True:
            remote = prepare()
            calls = 0

            def run(*args: Any, fatal: int = fatal, after: bool = after, **options: Any) -> object:
                nonlocal calls
                calls += 1
                if calls > fatal and not after:
                    raise Crash
                result = operation(*args, **options)
                if calls > fatal:
                    raise Crash
                return result

            with monkeypatch.context() as patch:
                patch.setattr(obstore, name, run)
                try:
                    act(remote)
                    break
                except Crash:
                    pass
            yield remote
            fatal += 1
        assert fatal > 1


def copy(remote: ObjectStore) -> ObjectStore:
    twin = MemoryStore()
    for page in obstore.list(remote):
        for meta in page:
            obstore.put(twin, meta["path"], bytes(obstore.get(remote, meta["path"]).bytes()))
    return twin


def test_an_upload_killed_at_any_put_leaves_the_older_versions_and_can_be_done_again(
    store: RocksStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = MemoryStore()
    upload(store, first, advance(store, 0))
    number = advance(store, 1)
    seen = set()
    for life, left in enumerate(
        kill_at_each(monkeypatch, "put", lambda: copy(first), lambda remote: upload(store, remote, number))
    ):
        versions = CheckpointStore(left, WHOSE).versions()
        seen.add(tuple(versions))
        for version in versions:
            assert restored(left, version, tmp_path / f"{life}-{version}")[0] == contents(version)
        upload(store, left, number)
        CheckpointStore(left, WHOSE).delete_below(1, grace=NOW)
        assert restored(left, 1, tmp_path / f"{life}-again")[0] == contents(1)
    assert seen == {(0,), (0, 1)}


def test_a_deletion_killed_anywhere_leaves_the_newer_versions(
    store: RocksStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = MemoryStore()
    for step in range(3):
        upload(store, full, advance(store, step))

    def delete(remote: ObjectStore) -> None:
        CheckpointStore(remote, WHOSE).delete_below(2, grace=NOW)

    for life, left in enumerate(kill_at_each(monkeypatch, "delete", lambda: copy(full), delete)):
        for version in CheckpointStore(left, WHOSE).versions():
            assert restored(left, version, tmp_path / f"{life}-{version}")[0] == contents(version)
        delete(left)
        assert CheckpointStore(left, WHOSE).versions() == [2]


def test_an_upload_whose_files_are_deleted_meanwhile_fails_and_the_next_is_whole(
    store: RocksStore, remote: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker has gone on, and deletes the version that the upload shares files with."""
    upload(store, remote, advance(store, 0))
    number = advance(store, 1)
    copies, put = CheckpointStore(remote, WHOSE), obstore.put

    def racing(to: ObjectStore, path: str, data: Any, **options: Any) -> object:
        if path.endswith("1.json"):
            obstore.delete(to, "app/stats/0/versions/0.json")
            shared = msgspec.json.decode(data, type=RemoteVersion).files[0].hash
            obstore.delete(to, f"app/stats/0/files/{shared}")
        return put(to, path, data, **options)

    with monkeypatch.context() as patch:
        patch.setattr(obstore, "put", racing)
        with pytest.raises(DiskError, match="meanwhile"):
            copies.upload(store.version_folder(number), store.version_progress(number))
    assert copies.versions() == []
    copies.upload(store.version_folder(number), store.version_progress(number))
    assert restored(remote, 1, tmp_path / "restored")[0] == contents(1)


def test_files_of_a_version_that_another_worker_has_replaced_are_not_relied_on(
    store: RocksStore, remote: ObjectStore, tmp_path: Path
) -> None:
    """It slept while it uploaded its last step, which is also where the task was taken over: both have a version of it."""
    slept, copies = CheckpointStore(remote, WHOSE), CheckpointStore(remote, WHOSE)
    first = advance(store, 0)
    version = slept.upload(store.version_folder(first), store.version_progress(first))
    install_version(tmp_path / "there", WHOSE, 1, lambda empty: copies.download(version, empty))
    there = RocksStore(tmp_path / "there", WHOSE)
    number = advance(there, 1)
    copies.upload(there.version_folder(number), there.version_progress(number))

    number = advance(store, 1)
    slept.upload(store.version_folder(number), store.version_progress(number))
    slept.delete_below(slept.floor.step, grace=NOW)  # an hour has passed: what the other one has uploaded is nobody's

    number = advance(there, 2)
    with pytest.raises(DiskError, match="meanwhile"):
        copies.upload(there.version_folder(number), there.version_progress(number))
    copies.upload(there.version_folder(number), there.version_progress(number))
    there.close()
    assert copies.versions() == [0, 1, 2]
    for step in range(3):
        assert restored(remote, step, tmp_path / f"restored-{step}")[0] == contents(step)


def test_what_a_killed_upload_has_left_is_not_uploaded_again(
    store: RocksStore, remote: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, put, puts = advance(store, 0), obstore.put, list[str]()

    def killed(to: ObjectStore, path: str, data: Any, **options: Any) -> object:
        if path.endswith(".json"):
            raise Crash
        puts.append(path)
        return put(to, path, data, **options)

    monkeypatch.setattr(obstore, "put", killed)
    for _ in range(2):
        with pytest.raises(Crash):
            upload(store, remote, number)
    assert len(puts) == len(set(puts)) > 0


def test_an_upload_that_is_given_up_names_no_version(store: RocksStore, remote: ObjectStore) -> None:
    number = advance(store, 0)

    def gone() -> None:
        raise Crash

    with pytest.raises(Crash):
        upload(store, remote, number, go_on=gone)
    assert CheckpointStore(remote, WHOSE).versions() == []
