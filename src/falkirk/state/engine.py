"""RocksDB as a store needs it: bytes in and out, and errors that say what to do.

Its write-ahead log is on and never synced. It makes a write no slower, and the write outlives the process. So after a kill
hardly any step must be rolled forward, even if the last flush was long ago. A crash of the machine leaves an older prefix,
which the app's own logs roll forward.

Memory is bounded for a process, not for a store: all its stores share one block cache and one budget of write buffers. Open
files are bounded too: the process's limit is divided among the stores that it may open.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    Checkpoint,
    DBCompressionType,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
)

from falkirk.errors import FalkirkError
from falkirk.state.files import disk_error
from falkirk.state.meta import damaged
from falkirk.state.store import Changes

MIB = 1 << 20
T = TypeVar("T")

FILES = (20, 256)
"""Table files that a store keeps open: the fewest that RocksDB needs, and the most that it can use."""

PER_STORE = 8
"""Other files that a store has open: its logs, its manifest, its locks and folders."""

_BLOCK_BYTES = 8 << 10
_FILTER_BITS = 10
_HELD_HERE = "lock hold by current process"
"""How RocksDB says that this process has a folder open already."""


class Memory:
    """What the stores of one process may use together, in bytes.

    Index and filter blocks are in the cache too. Beyond `write_buffers` a store that is written to flushes. What is being
    flushed is extra: for each store at most a quarter of it and one write.
    """

    def __init__(self, cache: int = 128 * MIB, write_buffers: int = 64 * MIB, open_files: int = FILES[1]) -> None:
        """`open_files`: table files that each store may keep open (`files_each`)."""
        self.open_files = open_files
        # Not the LRU cache: it is cut into shards of about 2 MiB, and a file's filter that is larger than a shard is read
        # from disk at every get (5,000 a second instead of 400,000).
        self.cache = Cache.new_hyper_clock_cache(cache, _BLOCK_BYTES)
        self.write_buffers = WriteBufferManager(write_buffers, allow_stall=False)
        self.one_buffer = max(write_buffers // 4, MIB)


def files_each(limit: int, stores: int) -> int:
    """Table files that each of so many stores may keep open, if a process may open `limit` files: half of them are for the
    stores, the rest for connections, logs, and files that are being written.

    >>> files_each(65_536, 10), files_each(65_536, 500), files_each(1_024, 100)
    (256, 57, 20)
    """
    fewest, most = FILES
    return max(fewest, min(most, limit // 2 // max(stores, 1) - PER_STORE))


def files_needed(stores: int) -> int:
    """Below this limit so many stores may run out of files."""
    return 2 * stores * (FILES[0] + PER_STORE)


class Engine:
    """One open RocksDB folder. After `close`, iterators still open keep its files locked."""

    def __init__(self, folder: Path, memory: Memory, *, create: bool = False, read_only: bool = False) -> None:
        self._folder = folder
        access = AccessType.read_only(False) if read_only else AccessType.read_write()
        # With `create`, a folder that lost its CURRENT file would be taken for a new, empty database.

        def opened() -> Rdict:
            return Rdict(str(folder), _options(memory, create), access_type=access)

        try:
            self._db: Rdict = opened()
        except Exception as error:
            if _HELD_HERE not in str(error):
                raise _explain(error, folder) from error
            # By an iterator of an engine that was closed: in the frames of an error, which only the collector ends.
            gc.collect()
            self._db = self._run(opened)

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values in the order of keys. Raises StateError if a file is damaged."""
        if not keys:
            return []
        found: list[bytes | None] | None = self._run(lambda: self._db.get(list(keys)))
        assert found is not None
        return found

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Pairs with start ≤ key < end, as of now. Raises StateError if a file is damaged."""
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        rows = self._db.iter(options)
        rows.seek(start)
        while rows.valid():
            yield rows.key(), rows.value()
            rows.next()
        # At a damaged block an iterator ends as if the data ended there: only its status shows the damage.
        self._run(rows.status)

    def snapshot(self) -> EngineSnapshot:
        """What is written now. Close it before the engine: until then the files stay locked."""
        return EngineSnapshot(self, self._run(lambda: self._db.iter(ReadOptions())))

    def write(self, *changes: Changes) -> None:
        """Apply all changes at once; None deletes. Raises DiskError: then nothing is applied."""
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for part in changes:
            # Sorted keys cost a third less in all: each finds its place in memory beside the one before it.
            for key in sorted(part):
                value = part[key]
                if value is None:
                    delete(key)
                else:
                    put(key, value)
        self._run(lambda: self._db.write(batch))

    def flush(self) -> None:
        """Write what is in memory to files. Other threads continue to run."""
        self._run(self._db.flush)

    def checkpoint(self, folder: Path) -> None:
        """A copy of everything written so far, by hard links, in a new folder."""
        # A checkpoint flushes too, but holds the interpreter's lock during it: so flush before.
        self.flush()
        self._run(lambda: Checkpoint(self._db).create_checkpoint(str(folder)))

    def close(self) -> None:
        """Flush, and close the files."""
        self._run(self._db.close)

    def _run(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except Exception as error:  # rocksdict raises nothing narrower; the text tells them apart
            raise _explain(error, self._folder) from error


class EngineSnapshot:
    """An engine's pairs at one moment: writes after it change nothing here. For one thread.

    It is one iterator, because that keeps the view with which it was made. (rocksdict's own Snapshot does so only for single
    keys: its iterators show what has been written since.)
    """

    def __init__(self, engine: Engine, rows: RdictIter) -> None:
        self._engine = engine
        self._rows: RdictIter | None = rows

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values in the order of keys. Raises StateError if a file is damaged."""
        rows = self._open
        found = self._engine._run(lambda: [_scan(rows, key, key + b"\0", 1) for key in keys])
        return [pairs[0][1] if pairs else None for pairs in found]

    def scan(self, start: bytes, end: bytes, most: int) -> list[tuple[bytes, bytes]]:
        """The first `most` pairs with start ≤ key < end. Raises StateError if a file is damaged."""
        rows = self._open
        return self._engine._run(lambda: _scan(rows, start, end, most))

    @property
    def _open(self) -> RdictIter:
        if self._rows is None:
            raise ValueError("the snapshot is closed")
        return self._rows

    def close(self) -> None:
        """Let go of the files."""
        self._rows = None


def _scan(rows: RdictIter, start: bytes, end: bytes, most: int) -> list[tuple[bytes, bytes]]:
    rows.seek(start)
    found: list[tuple[bytes, bytes]] = []
    while len(found) < most and rows.valid() and (key := rows.key()) < end:
        found.append((key, rows.value()))
        rows.next()
    rows.status()  # at a damaged block an iterator ends as if the data ended there
    return found


def _explain(error: Exception, folder: Path) -> FalkirkError:
    text = str(error)
    missing = "No such file" in text or "does not exist" in text
    if text.startswith("IO error") and not missing:
        return disk_error(text.rpartition("IO error: ")[2], folder)  # one within another: the last is the cause
    return damaged(text, str(folder.parent))


def _options(memory: Memory, create: bool) -> Options:
    blocks = BlockBasedOptions()
    blocks.set_block_cache(memory.cache)
    blocks.set_block_size(_BLOCK_BYTES)
    blocks.set_bloom_filter(_FILTER_BITS, False)
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
    options = Options(raw_mode=True)
    options.create_if_missing(create)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_write_buffer_manager(memory.write_buffers)
    options.set_write_buffer_size(memory.one_buffer)
    options.set_max_open_files(memory.open_files)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(MIB)
    return options
