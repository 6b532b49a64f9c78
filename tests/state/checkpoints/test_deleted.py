"""What is deleted from a checkpoint store, and what stays."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import obstore
from obstore.store import ObjectStore
from tests.state.checkpoints.copies import NOW, WHOSE, advance, made, objects, upload

from falkirk.state.checkpoints import CheckpointStore
from falkirk.state.objects import Leftovers, connect
from falkirk.state.rocks import RocksStore, install_version
from falkirk.state.store import Identity, Progress


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


def test_what_a_killed_upload_has_left_in_a_folder_goes_when_it_is_old(store: RocksStore, tmp_path: Path) -> None:
    """The library names it so, and does not list it."""
    there = connect((tmp_path / "copies").as_uri())
    version = upload(store, there, advance(store, 0))
    folder = tmp_path / "copies" / "app" / "stats" / "0"
    old, young = folder / "files" / f"{version.files[0].hash}#1", folder / "versions" / "1.json#1"
    for part in (old, young):
        part.write_bytes(b"a part")
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    assert len(objects(there)) == len(version.files) + 1, "they are not listed"
    CheckpointStore(there, WHOSE).delete_below(0)
    assert (old.exists(), young.exists()) == (False, True)


def test_clear_leaves_nothing_of_the_task_and_everything_of_others(store: RocksStore, remote: ObjectStore) -> None:
    upload(store, remote, advance(store, 0))
    obstore.put(remote, "app/stats/00/files/other", b"1")
    CheckpointStore(remote, Identity("app", "stats/0", "f77")).clear()
    assert objects(remote) == {"app/stats/00/files/other"}


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
    copies.download(copies.read(1), made(tmp_path / "again"))
    store.close()


def test_two_who_delete_an_app_at_once_both_come_to_the_end(tmp_path: Path) -> None:
    url, begin = (tmp_path / "remote").as_uri(), threading.Barrier(2)

    def delete(_: int) -> None:
        begin.wait()
        Leftovers(connect(url), "app", "one").delete()

    for _ in range(10):
        for task in range(8):
            obstore.put(connect(url), f"app/one/stats/{task}/files/f", b"1")
        with ThreadPoolExecutor(2) as both:
            list(both.map(delete, range(2)))
        assert not (tmp_path / "remote/app/one").exists()
