"""A version that cannot be read is an error, and never an empty state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import obstore
import pytest
from obstore.store import ObjectStore
from tests.state.checkpoints.copies import WHOSE, advance, contents, made, restored, upload

from falkirk.errors import DamagedError, StateError
from falkirk.state.checkpoints import CheckpointStore
from falkirk.state.remote import RemoteVersion
from falkirk.state.rocks import RocksStore, install_version
from falkirk.state.store import Identity


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


@pytest.mark.parametrize("damage", [damage_file, drop_file, damage_version])
def test_a_damaged_version_is_replaced_by_the_next_upload_of_its_step(
    store: RocksStore, remote: ObjectStore, tmp_path: Path, damage: Callable[[ObjectStore, RemoteVersion], None]
) -> None:
    """The worker that found it damaged went on from an older one, and is at the same step again."""
    number = advance(store, 0)
    damage(remote, upload(store, remote, number))
    copies = CheckpointStore(remote, WHOSE)
    with pytest.raises(DamagedError):
        copies.download(copies.read(0), made(tmp_path / "damaged"))
    copies.upload(store.version_folder(number), store.version_progress(number))
    assert restored(remote, 0, tmp_path / "there")[0] == contents(0)


@pytest.mark.parametrize(("damage", "read"), [(damage_file, True), (drop_file, True), (drop_file, False)])
def test_a_version_that_was_found_damaged_is_not_what_a_recovery_may_need(
    store: RocksStore,
    remote: ObjectStore,
    tmp_path: Path,
    damage: Callable[[ObjectStore, RemoteVersion], None],
    read: bool,
) -> None:
    """Whoever finds it so goes on from the one before, which must stay until two more are there."""
    older = upload(store, remote, advance(store, 0))
    newest = upload(store, remote, advance(store, 1))
    own = [file for file in newest.files if file.hash not in older.objects()]
    damage(remote, msgspec.structs.replace(newest, files=tuple(own)))
    copies = CheckpointStore(remote, WHOSE)
    if read:
        with pytest.raises(DamagedError):
            copies.download(copies.read(1), made(tmp_path / "damaged"))
    install_version(tmp_path / "there", WHOSE, 1, lambda empty: copies.download(older, empty))
    there, floors = RocksStore(tmp_path / "there", WHOSE), []
    for step in (2, 3):
        number = advance(there, step)
        copies.upload(there.version_folder(number), there.version_progress(number))
        floors.append(copies.floor.step)
    there.close()
    assert floors == [-1, 2]


def test_a_plan_begins_with_the_newest_version_that_can_be_read_as_a_take_over_does(
    store: RocksStore, remote: ObjectStore
) -> None:
    older = upload(store, remote, advance(store, 1))
    upload(store, remote, advance(store, 2))
    copies = CheckpointStore(remote, WHOSE)
    for damaged, limit in ((2, 2), (3, 9)):
        obstore.put(remote, f"app/stats/0/versions/{damaged}.json", b"{")
        assert copies.newest_readable(limit) == older
    assert copies.newest_readable(0) is None
    obstore.put(remote, "app/stats/0/versions/1.json", b"{")
    with pytest.raises(DamagedError):
        copies.newest_readable(9)
