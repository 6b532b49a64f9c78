"""RocksDB as a store needs it: bytes in and out, and errors that say what to do.

Its write-ahead log is on and never synced: a write costs no more for it, and outlives the process, so that after a kill
there is hardly a step to roll forward, however long ago the last flush was. A crash of the machine leaves an older prefix,
which the app's own logs roll forward.

Memory is bounded for a process, not for a store: all its stores share one block cache and one budget of write buffers.
"""

from __future__ import annotations

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

_OPEN_FILES = 256
_BLOCK_BYTES = 8 << 10
_FILTER_BITS = 10


class Memory:
    """What the stores of one process may use together, in bytes.

    Index and filter blocks lie in the cache too. Beyond `write_buffers` a store that is written to flushes; what is
    being flushed comes on top, for each store at most a quarter of it and one write.
    """

    def __init__(self, cache: int = 128 * MIB, write_buffers: int = 64 * MIB) -> None:
        # Not the LRU cache: it is cut into shards of 2 MiB or so, and a file's filter that is larger than one is read
        # from disk at every get (5,000 a second instead of 400,000).
        self.cache = Cache.new_hyper_clock_cache(cache, _BLOCK_BYTES)
        self.write_buffers = WriteBufferManager(write_buffers, allow_stall=False)
        self.one_buffer = max(write_buffers // 4, MIB)


class Engine:
    """One open RocksDB folder. Closed by `close`; iterators still open then keep its files locked."""

    def __init__(self, folder: Path, memory: Memory, *, create: bool = False, read_only: bool = False) -> None:
        self._folder = folder
        access = AccessType.read_only(False) if read_only else AccessType.read_write()
        # With create, a folder that lost its CURRENT file would be taken for a new, empty database.
        self._db: Rdict = self._run(lambda: Rdict(str(folder), _options(memory, create), access_type=access))

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
        # An iterator that meets a damaged block ends as if that were the end of the data: only its status tells.
        self._run(rows.status)

    def write(self, *changes: Changes) -> None:
        """Apply all changes at once; None deletes. Raises DiskError: nothing is applied then."""
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for part in changes:
            # In their order keys cost a third less altogether: each finds its place in memory beside the one before it.
            for key in sorted(part):
                value = part[key]
                if value is None:
                    delete(key)
                else:
                    put(key, value)
        self._run(lambda: self._db.write(batch))

    def flush(self) -> None:
        """Write what is in memory to files. Other threads go on meanwhile."""
        self._run(self._db.flush)

    def checkpoint(self, folder: Path) -> None:
        """A copy of everything written so far, by hard links, in a new folder."""
        # Making a checkpoint flushes too, but holds the interpreter's lock meanwhile: hence the flush before it.
        self.flush()
        self._run(lambda: Checkpoint(self._db).create_checkpoint(str(folder)))

    def size(self) -> int:
        """Bytes in files and in memory, roughly."""
        names = ("rocksdb.total-sst-files-size", "rocksdb.cur-size-all-mem-tables")
        return sum(self._db.property_int_value(name) or 0 for name in names)

    def close(self) -> None:
        """Flush and let go of the files."""
        self._run(self._db.close)

    def _run(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except Exception as error:  # rocksdict raises nothing narrower; the text tells them apart
            raise _explain(error, self._folder) from error


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
    options.set_max_open_files(_OPEN_FILES)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(MIB)
    return options
