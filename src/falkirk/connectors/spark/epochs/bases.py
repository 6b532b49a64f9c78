"""Where a backfill's histories keep their states, and where these go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from falkirk.state.checkpoints import CheckpointStore
from falkirk.state.engine import Memory
from falkirk.state.objects import connect
from falkirk.state.rocks import RocksStore
from falkirk.state.store import Identity, Store


class Bases:
    """`falkirk.stream.backfill.Keeper`: a store of only this Spark task, and the checkpoint store.

    A copy of the task, or a second run, makes the same base: files that exist already are left, and of two bases made at
    once the last one counts, as a whole.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self._folder, self._url = folder, url

    @contextmanager
    def keeping(self, identity: Identity) -> Iterator[Store]:
        """An empty store. After the block its state is in the checkpoint store, if the block raised nothing."""
        with (
            TemporaryDirectory(dir=self._folder, prefix="falkirk-base-") as folder,
            closing(RocksStore(Path(folder) / "state", identity, _memory())) as store,
        ):
            yield store
            version = store.commit()
            copies = CheckpointStore(connect(self._url), identity)
            copies.upload(store.version_folder(version), store.version_progress(version))


@lru_cache(1)
def _memory() -> Memory:
    """Of this process, for all its tasks."""
    return Memory()
