"""Versions in a checkpoint store: what is copied, what that costs, and what another host gets."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import obstore
import pytest
from obstore.store import MemoryStore, ObjectStore
from tests.state.checkpoints.copies import NOW, WHOSE, advance, contents, objects, restored, upload

from falkirk.errors import ConfigError, DamagedError, DiskError
from falkirk.state import checkpoints
from falkirk.state.checkpoints import CheckpointStore
from falkirk.state.objects import connect
from falkirk.state.rocks import RocksStore, install_version
from falkirk.state.store import Progress


def test_the_newest_version_is_restored_on_a_host_without_the_store(
    store: RocksStore, remote: ObjectStore, tmp_path: Path
) -> None:
    there = CheckpointStore(remote, WHOSE)
    assert (there.versions(), there.newest()) == ([], None)
    for step in range(3):
        upload(store, remote, advance(store, step))
    assert there.versions() == [0, 1, 2]
    for limit, step in [(None, 2), (9, 2), (1, 1)]:
        newest = there.newest(limit)
        assert newest is not None
        assert newest.step == step
    assert there.newest(-1) is None
    for step in there.versions():
        assert restored(remote, step, tmp_path / str(step)) == (contents(step), Progress(step, step, step))


def test_workers_that_number_their_versions_otherwise_leave_each_other_s_newer_ones(
    store: RocksStore, remote: ObjectStore, tmp_path: Path
) -> None:
    """One slept with many versions behind it; the other took over from the newest, and counts from one."""
    for step in range(4):
        upload(store, remote, advance(store, step))
    there = CheckpointStore(remote, WHOSE)
    install_version(tmp_path / "other", WHOSE, 1, lambda empty: there.download(there.read(2), empty))
    other = RocksStore(tmp_path / "other", WHOSE)
    for step in range(3, 6):
        upload(other, remote, advance(other, step))
    other.close()
    oldest = store.version_progress(store.versions()[0])
    assert upload(store, remote, store.versions()[-1]).step == 3
    there.delete_below(oldest.step, grace=NOW)
    assert there.versions() == [2, 3, 4, 5]
    assert restored(remote, 5, tmp_path / "restored")[0] == contents(5)


def test_only_new_files_are_uploaded_and_progress_is_told(
    store: RocksStore, remote: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write({b"big%d" % i: bytes([i % 256]) * 1000 for i in range(1000)}, Progress(0, 0, 0))
    upload(store, remote, store.commit())
    puts: list[str] = []
    put = obstore.put

    def noting(to: ObjectStore, path: str, data: Any, **options: Any) -> object:
        puts.append(path)
        return put(to, path, data, **options)

    monkeypatch.setattr(obstore, "put", noting)
    told: list[tuple[int, int]] = []
    version = upload(store, remote, advance(store, 1), report=lambda done, total: told.append((done, total)))
    new = {f"app/stats/0/files/{file.hash}" for file in version.files}
    assert puts[-1] == "app/stats/0/versions/1.json"
    assert set(puts[:-1]) < new
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1] < version.size / 2


def test_a_download_tells_how_far_it_is(store: RocksStore, remote: ObjectStore, tmp_path: Path) -> None:
    version = upload(store, remote, advance(store, 0))
    told: list[tuple[int, int]] = []
    (tmp_path / "there").mkdir()
    CheckpointStore(remote, WHOSE).download(version, tmp_path / "there", lambda done, total: told.append((done, total)))
    assert told[-1] == (version.size, version.size)
    assert told == sorted(told)


def test_a_table_file_is_hashed_once(store: RocksStore, remote: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    there = CheckpointStore(remote, WHOSE)
    hashed: list[str] = []
    digest = hashlib.file_digest

    def noting(file: Any, kind: Any) -> object:
        hashed.append(Path(file.name).name)
        return digest(file, kind)

    monkeypatch.setattr(hashlib, "file_digest", noting)
    for step in range(3):
        number = advance(store, step)
        there.upload(store.version_folder(number), store.version_progress(number))
    tables = [name for name in hashed if name.endswith(".sst")]
    assert len(tables) == len(set(tables)) >= 3


def test_only_the_hashes_of_the_last_version_are_remembered(store: RocksStore, remote: ObjectStore) -> None:
    """Each version has new tables: a worker that runs for months would remember millions."""
    there = CheckpointStore(remote, WHOSE)
    for step in range(12):
        number = advance(store, step)
        version = there.upload(store.version_folder(number), store.version_progress(number))
    assert set(there._hashes.values()) == {file.hash for file in version.files}


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of the checkpoint store."""
    asked: list[str] = []

    def noting(name: str) -> Callable[..., object]:
        operation: Callable[..., object] = getattr(obstore, name)

        def run(to: ObjectStore, what: Any, *rest: Any, **options: Any) -> object:
            asked.append(f"{name} {what if isinstance(what, str) else f'{len(what)} objects'}")
            return operation(to, what, *rest, **options)

        return run

    for name in ("put", "get", "head", "list", "delete"):
        monkeypatch.setattr(obstore, name, noting(name))
    return asked


def test_a_version_costs_few_requests(store: RocksStore, requests: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "SMALL", 4 << 10)
    copies = CheckpointStore(MemoryStore(), WHOSE)
    for step in range(6):
        store.write({b"%d-%d" % (step, i): b"v" * 400 for i in range(100)}, Progress(step, step, step))
        number = store.commit()
        requests.clear()
        copies.upload(store.version_folder(number), store.version_progress(number))
        kinds = [asked.split()[0] for asked in requests]
        assert kinds[-2:] == ["put", "get" if step else "put"]
        assert kinds.count("list") == (step == 0)
    assert len(requests) <= 4, "a new table or two, the version, and whether the one before is the same"
    requests.clear()
    copies.delete_below(copies.floor.step, grace=NOW)
    assert [asked.split()[0] for asked in requests] == ["list", "delete", "list", "get", "get"]
    assert copies.versions() == [4, 5]


def test_small_files_lie_in_the_version_itself(
    store: RocksStore, remote: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "SMALL", 16 << 10)
    upload(store, remote, advance(store, 0))
    assert objects(remote) == {"app/stats/0/versions/0.json"}
    assert restored(remote, 0, tmp_path / "there")[0] == contents(0)
    damaged = msgspec.json.decode(bytes(obstore.get(remote, "app/stats/0/versions/0.json").bytes()))
    damaged["files"][0]["data"] = "AAAA"
    obstore.put(remote, "app/stats/0/versions/0.json", msgspec.json.encode(damaged))
    with pytest.raises(DamagedError):
        restored(remote, 0, tmp_path / "damaged")


def test_the_floor_is_the_older_of_the_last_two_versions_that_are_there(
    store: RocksStore, remote: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = CheckpointStore(remote, WHOSE)

    def copied(step: int) -> int:
        number = advance(store, step)
        copies.upload(store.version_folder(number), store.version_progress(number))
        return copies.floor.step

    def away(*_: Any, **__: Any) -> None:
        raise PermissionError("not today")

    assert [copied(0), copied(1)] == [-1, 0]
    with monkeypatch.context() as patch:
        patch.setattr(obstore, "put", away)
        with pytest.raises(DiskError):
            copied(2)
    assert copies.floor.step == 0
    assert copied(3) == 1
    copies.delete_below(copies.floor.step, grace=NOW)
    assert copies.versions() == [1, 3]


@pytest.mark.parametrize("url", ["nonsense", "foo://bucket/x", "file:///proc/none/x"])
def test_a_url_that_cannot_be_used_is_an_error(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        connect(url)
    assert url in str(caught.value)
    assert "s3://" in caught.value.hint


def test_a_store_that_cannot_be_written_is_a_disk_error(store: RocksStore, tmp_path: Path) -> None:
    remote = connect((tmp_path / "there").as_uri())
    (tmp_path / "there" / "app").write_text("a file where a folder must be")
    with pytest.raises(DiskError, match="checkpoint store"):
        upload(store, remote, advance(store, 0))


def test_a_folder_that_is_away_is_not_taken_for_an_empty_one(store: RocksStore, tmp_path: Path) -> None:
    remote = connect((tmp_path / "there").as_uri())
    upload(store, remote, advance(store, 0))
    (tmp_path / "there").rename(tmp_path / "away")
    copies = CheckpointStore(remote, WHOSE)
    for ask in (copies.versions, lambda: upload(store, remote, advance(store, 1))):
        with pytest.raises(DiskError, match="not there"):
            ask()
    assert not (tmp_path / "there").exists()
