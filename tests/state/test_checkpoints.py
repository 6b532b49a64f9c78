"""Versions in a checkpoint store: whole or absent, wherever an upload or a deletion is killed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import obstore
import pytest
from obstore.store import MemoryStore, ObjectStore

from falkirk.errors import ConfigError, DamagedError, DiskError, StateError
from falkirk.state import checkpoints
from falkirk.state.checkpoints import CheckpointStore
from falkirk.state.objects import connect
from falkirk.state.remote import RemoteVersion
from falkirk.state.rocks import RocksStore, install_version
from falkirk.state.store import Identity, Progress

WHOSE = Identity("app", "stats/0", "f00", "stats v1")
NOW = timedelta(0)


class Crash(BaseException):
    pass


@pytest.fixture(autouse=True)
def objects_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stores of these tests are small: their files would all lie in the version's json."""
    monkeypatch.setattr(checkpoints, "SMALL", -1)


@pytest.fixture(params=["file", "memory"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return connect("memory:///" if request.param == "memory" else (tmp_path / "re mote" / "checkpoints").as_uri())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksStore]:
    store = RocksStore(tmp_path / "local", WHOSE)
    yield store
    store.close()


def contents(step: int) -> dict[bytes, bytes]:
    return {b"base": b"x" * 1000, **{b"%d" % i: b"%d" % step for i in range(step + 1)}}


def advance(store: RocksStore, step: int) -> int:
    store.write(contents(step), Progress(step, step, step))
    return store.commit()


def upload(store: RocksStore, to: ObjectStore, number: int, **options: Any) -> RemoteVersion:
    folder, progress = store.version_folder(number), store.version_progress(number)
    return CheckpointStore(to, WHOSE).upload(folder, progress, **options)


def restored(from_: ObjectStore, step: int, folder: Path) -> tuple[dict[bytes, bytes], Progress]:
    """What a host without the store gets."""
    source = CheckpointStore(from_, WHOSE)
    install_version(folder, WHOSE, 7, lambda empty: source.download(source.read(step), empty))
    store = RocksStore(folder, WHOSE)
    try:
        assert store.versions() == range(7, 8)
        return dict(store.scan(b"", b"\xfe")), store.progress
    finally:
        store.close()


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


def objects(remote: ObjectStore) -> set[str]:
    return {meta["path"] for page in obstore.list(remote) for meta in page}


def test_deleting_below_a_watermark_leaves_no_file_that_no_version_needs(
    store: RocksStore, remote: ObjectStore
) -> None:
    versions = [upload(store, remote, advance(store, step)) for step in range(4)]
    there = CheckpointStore(remote, WHOSE)
    assert there.delete_below(2, grace=NOW) == [0, 1]
    kept = {f"app/stats/0/files/{file.hash}" for version in versions[2:] for file in version.files}
    assert objects(remote) == kept | {"app/stats/0/versions/2.json", "app/stats/0/versions/3.json"}
    assert there.delete_below(99, grace=NOW) == [2]  # the newest is kept whatever the watermark
    assert there.versions() == [3]


def test_a_young_file_is_left_for_the_upload_that_may_need_it(store: RocksStore, remote: ObjectStore) -> None:
    upload(store, remote, advance(store, 0))
    obstore.put(remote, "app/stats/0/files/young", b"1")
    there = CheckpointStore(remote, WHOSE)
    there.delete_below(0)
    assert "app/stats/0/files/young" in objects(remote)
    there.delete_below(0, grace=NOW)
    assert "app/stats/0/files/young" not in objects(remote)


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


def test_clear_leaves_nothing_of_the_task_and_everything_of_others(store: RocksStore, remote: ObjectStore) -> None:
    upload(store, remote, advance(store, 0))
    obstore.put(remote, "app/stats/00/files/other", b"1")
    CheckpointStore(remote, Identity("app", "stats/0", "f77")).clear()
    assert objects(remote) == {"app/stats/00/files/other"}


def damage_file(remote: ObjectStore, version: RemoteVersion) -> None:
    obstore.put(remote, f"app/stats/0/files/{version.files[0].hash}", b"other")


def drop_file(remote: ObjectStore, version: RemoteVersion) -> None:
    obstore.delete(remote, f"app/stats/0/files/{version.files[0].hash}")


def damage_version(remote: ObjectStore, version: RemoteVersion) -> None:
    obstore.put(remote, "app/stats/0/versions/0.json", b"{")


def other_shape(remote: ObjectStore, version: RemoteVersion) -> None:
    obstore.put(remote, "app/stats/0/versions/0.json", b'{"format": [1, 1], "progress": "one"}')


def other_format(remote: ObjectStore, version: RemoteVersion) -> None:
    obstore.put(remote, "app/stats/0/versions/0.json", b'{"format": [9, 1]}')


def escaping_name(remote: ObjectStore, version: RemoteVersion) -> None:
    first = msgspec.structs.replace(version.files[0], name="../../outside")
    changed = msgspec.structs.replace(version, files=(first, *version.files[1:]))
    obstore.put(remote, "app/stats/0/versions/0.json", msgspec.json.encode(changed))


def of_another_app(remote: ObjectStore, version: RemoteVersion) -> None:
    changed = msgspec.structs.replace(version, identity=Identity("other", "stats/0", "f00"))
    obstore.put(remote, "app/stats/0/versions/0.json", msgspec.json.encode(changed))


def of_another_schema(remote: ObjectStore, version: RemoteVersion) -> None:
    changed = msgspec.structs.replace(version, identity=Identity("app", "stats/0", "f01", "stats v2"))
    obstore.put(remote, "app/stats/0/versions/0.json", msgspec.json.encode(changed))


@pytest.mark.parametrize(
    "damage",
    [
        damage_file,
        drop_file,
        damage_version,
        other_shape,
        other_format,
        escaping_name,
        of_another_app,
        of_another_schema,
    ],
)
def test_a_checkpoint_that_cannot_be_read_is_an_error_and_never_an_empty_state(
    store: RocksStore, remote: ObjectStore, tmp_path: Path, damage: Callable[[ObjectStore, RemoteVersion], None]
) -> None:
    damage(remote, upload(store, remote, advance(store, 0)))
    there = CheckpointStore(remote, WHOSE)

    def fetch(folder: Path) -> None:
        newest = there.newest()
        assert newest is not None
        there.download(newest, folder)

    with pytest.raises(StateError) as caught:
        install_version(tmp_path / "new", WHOSE, 1, fetch)
    assert caught.value.hint
    assert not (tmp_path / "new" / "manifest.json").exists()
    assert not (tmp_path / "outside").exists()


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


def test_bases_are_no_versions_and_go_when_versions_have_followed_on_them(tmp_path: Path) -> None:
    copies = CheckpointStore(connect((tmp_path / "copies").as_uri()), WHOSE)
    for base in (3, 8):
        store = RocksStore(tmp_path / f"made-{base}", WHOSE)
        store.write({b"\0\0k": b"%d" % base}, Progress(-1, 0, 0, 7, base))
        version = store.commit()
        for _ in range(2):  # a task of Spark's that is run again
            copies.upload(store.version_folder(version), store.version_progress(version))
        store.close()
    assert copies.versions() == []
    assert copies.newest() is None
    assert copies.base(4) is None
    found = copies.base(8)
    assert found is not None
    copies.delete_below(-1, grace=timedelta(0))
    install_version(tmp_path / "here", WHOSE, 1, lambda folder: copies.download(found, folder))
    store = RocksStore(tmp_path / "here", WHOSE)
    assert store.get([b"\0\0k"]) == [b"8"]
    assert store.progress == Progress(-1, 0, 0, 7, 8)
    for step in (0, 1):
        store.write({}, store.progress.at(step, step + 1, 0, 8))
        version = store.commit()
        copies.upload(store.version_folder(version), store.version_progress(version))
        copies.delete_below(store.version_progress(store.versions()[0]).step, grace=timedelta(0))
        assert (copies.base(8) is None) == (step == 1), "the version before the newest stands on it"
    assert copies.base(3) is None
    copies.download(copies.read(1), _made(tmp_path / "again"))
    store.close()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


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
        assert kinds[-2:] == ["put", "head" if step else "put"]
        assert kinds.count("list") == (step == 0)
    assert len(requests) <= 4, "a new table or two, the version, and whether the one before is there"
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


@pytest.mark.parametrize("damage", [damage_file, drop_file, damage_version])
def test_a_damaged_version_is_replaced_by_the_next_upload_of_its_step(
    store: RocksStore, remote: ObjectStore, tmp_path: Path, damage: Callable[[ObjectStore, RemoteVersion], None]
) -> None:
    """The worker that found it damaged went on from an older one, and is at the same step again."""
    number = advance(store, 0)
    damage(remote, upload(store, remote, number))
    copies = CheckpointStore(remote, WHOSE)
    with pytest.raises(DamagedError):
        copies.download(copies.read(0), _made(tmp_path / "damaged"))
    copies.upload(store.version_folder(number), store.version_progress(number))
    assert restored(remote, 0, tmp_path / "there")[0] == contents(0)


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


def test_a_folder_that_is_away_is_not_taken_for_an_empty_one(store: RocksStore, tmp_path: Path) -> None:
    remote = connect((tmp_path / "there").as_uri())
    upload(store, remote, advance(store, 0))
    (tmp_path / "there").rename(tmp_path / "away")
    copies = CheckpointStore(remote, WHOSE)
    for ask in (copies.versions, lambda: upload(store, remote, advance(store, 1))):
        with pytest.raises(DiskError, match="not there"):
            ask()
    assert not (tmp_path / "there").exists()
