"""A task's versions, and what a checkpoint store has of them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
from obstore.store import ObjectStore

from falkirk.state.checkpoints import CheckpointStore
from falkirk.state.remote import RemoteVersion
from falkirk.state.rocks import RocksStore, install_version
from falkirk.state.store import Identity, Progress

WHOSE = Identity("app", "stats/0", "f00", "stats v1")
NOW = timedelta(0)


class Crash(BaseException):
    pass


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


def objects(remote: ObjectStore) -> set[str]:
    return {meta["path"] for page in obstore.list(remote) for meta in page}


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder
