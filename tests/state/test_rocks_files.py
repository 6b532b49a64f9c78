"""The files of a RocksStore: damaged ones are errors, and a version from elsewhere is installed as a whole or not at all."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
from tests.state.stats import LAST_KEY, WHOSE, at

from falkirk.errors import StateError
from falkirk.state import codec, files, manifest
from falkirk.state.rocks import RocksStore, install_version
from falkirk.state.store import EMPTY, Identity


@pytest.mark.parametrize(
    "text", ["", "{}", '{"format": [1, 1]}', '{"format": [1, 1], "identity": 3}', "\0\0", '{"format": "1"}']
)
def test_a_damaged_manifest_is_an_error(store: RocksStore, folder: Path, text: str) -> None:
    store.close()
    (folder / manifest.FILE).write_text(text)
    with pytest.raises(StateError, match="damaged"):
        RocksStore(folder, WHOSE)


def test_a_lost_manifest_is_an_error_and_not_an_empty_store(store: RocksStore, folder: Path) -> None:
    store.close()
    (folder / manifest.FILE).unlink()
    with pytest.raises(StateError, match="missing"):
        RocksStore(folder, WHOSE)


def test_another_format_is_refused(store: RocksStore, folder: Path) -> None:
    store.close()
    file = folder / manifest.FILE
    content = json.loads(file.read_text())
    assert content["format"] == [manifest.FOLDER_FORMAT, codec.FORMAT]
    content["format"] = [manifest.FOLDER_FORMAT, codec.FORMAT + 1]
    content["versions"] = "of another shape"
    file.write_text(json.dumps(content))
    with pytest.raises(StateError, match="format") as caught:
        RocksStore(folder, WHOSE)
    assert "release" in caught.value.hint


def fill(store: RocksStore) -> None:
    noise = random.Random(0)
    for step in range(2):
        store.write({b"%d" % i: noise.randbytes(20) for i in range(20_000)}, at(step))
        store.flush()


@pytest.mark.parametrize("damage", ["sst gone", "sst cut", "CURRENT gone", "MANIFEST garbled", "live gone"])
def test_damaged_files_are_an_error_and_not_an_empty_store(store: RocksStore, folder: Path, damage: str) -> None:
    fill(store)
    store.close()
    live = folder / "live-0"
    sst = min(live.glob("*.sst"))
    match damage:
        case "sst gone":
            sst.unlink()
        case "sst cut":
            sst.write_bytes(sst.read_bytes()[:100])
        case "CURRENT gone":
            (live / "CURRENT").unlink()
        case "MANIFEST garbled":
            (file,) = live.glob("MANIFEST-*")
            file.write_bytes(b"\xff" * file.stat().st_size)
        case "live gone":
            live.rename(folder.parent / "elsewhere")
    with pytest.raises(StateError, match="cannot be read"):
        RocksStore(folder, WHOSE)
    assert (folder / manifest.FILE).exists()


def test_a_damaged_block_is_an_error_to_gets_and_to_scans(store: RocksStore, folder: Path) -> None:
    """RocksDB's iterators end at a damaged block as if nothing came after it."""
    fill(store)
    store.close()
    for sst in (folder / "live-0").glob("*.sst"):
        if sst.stat().st_size < 200_000:
            continue
        content = bytearray(sst.read_bytes())
        content[100_000:150_000] = b"\xff" * 50_000
        sst.write_bytes(content)
    store = RocksStore(folder, WHOSE)
    with pytest.raises(StateError, match="mismatch"):
        list(store.scan(b"", LAST_KEY))
    with pytest.raises(StateError, match="mismatch"):
        store.get([b"%d" % i for i in range(20_000)])
    store.close()


@pytest.mark.parametrize("key", [b"identity", b"progress"])
def test_a_live_copy_that_does_not_say_what_it_is_is_an_error(store: RocksStore, folder: Path, key: bytes) -> None:
    store._live.write({b"\xff\xff" + key: None})
    store.close()
    with pytest.raises(StateError, match="does not say"):
        RocksStore(folder, WHOSE)
    with pytest.raises(StateError, match="does not say"):  # and nothing keeps the files
        RocksStore(folder, WHOSE)


def test_a_version_from_elsewhere_can_be_installed(store: RocksStore, tmp_path: Path) -> None:
    store.write({b"a": b"1"}, at(0))
    store.commit()
    there = store.version_folder(1)

    def fetch(target: Path) -> None:
        for file in there.iterdir():
            (target / file.name).write_bytes(file.read_bytes())

    install_version(tmp_path / "new", WHOSE, 41, fetch)
    with pytest.raises(StateError, match="app"):
        install_version(tmp_path / "new", Identity("other", "stats/0", "f00"), 1, fetch)
    with pytest.raises(StateError, match="schema"):
        install_version(tmp_path / "other", Identity("app", "stats/0", "f01"), 1, fetch)
    assert not (tmp_path / "other" / manifest.FILE).exists()
    for installed in (42, 44):
        new = RocksStore(tmp_path / "new", WHOSE)
        assert new.versions() == range(installed - 1, installed)
        assert new.progress == at(0)
        assert new.get([b"a"]) == [b"1"]
        new.write({b"a": b"2"}, at(1))
        assert new.commit() == installed
        new.close()
        with pytest.raises(StateError, match="already"):
            install_version(tmp_path / "new", WHOSE, installed, fetch)
        install_version(tmp_path / "new", WHOSE, installed + 1, fetch)


def test_the_files_of_an_installed_version_are_synced_before_they_count(
    store: RocksStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut leaves a manifest that names files without their contents."""
    store.write({b"a": b"1"}, at(0))
    store.commit()
    there, fsync, replace = store.version_folder(1), os.fsync, files.replace_file
    synced, unsynced = set[str](), list[str]()

    def fetch(target: Path) -> None:
        for file in there.iterdir():
            (target / file.name).write_bytes(file.read_bytes())

    def noting(descriptor: int) -> None:
        synced.add(str(os.stat(descriptor).st_ino))
        fsync(descriptor)

    def counting(path: Path, data: bytes) -> None:
        version = tmp_path / "new" / "version-1"
        parts = [version.parent, version, *version.iterdir()]
        unsynced.extend(part.name for part in parts if str(part.stat().st_ino) not in synced)
        replace(path, data)

    monkeypatch.setattr(os, "fsync", noting)
    monkeypatch.setattr(files, "replace_file", counting)
    install_version(tmp_path / "new", WHOSE, 1, fetch)
    assert unsynced == []
    assert len(synced) > 4


def test_an_install_that_fails_changes_nothing(store: RocksStore, folder: Path, tmp_path: Path) -> None:
    store.write({b"a": b"1"}, at(0))
    store.close()

    def fetch(target: Path) -> None:
        (target / "half").touch()
        raise ConnectionError("the object store is gone")

    for place in (folder, tmp_path / "new"):
        with pytest.raises(ConnectionError):
            install_version(place, WHOSE, 7, fetch)
        assert not list(place.glob("incoming*"))
    assert RocksStore(folder, WHOSE).progress == at(0)
    assert RocksStore(tmp_path / "new", WHOSE).progress == EMPTY
    assert not list(tmp_path.glob("*/incoming*"))
