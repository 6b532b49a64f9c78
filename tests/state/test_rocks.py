"""What RocksStore adds to the contract: real crashes, damaged files, full disks, locks, threads."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.state.stats import LAST_KEY, WHOSE, at
from tests.waiting import PATIENCE_S

from falkirk.errors import DiskError, IdentityError
from falkirk.state.engine import PER_STORE, Memory, files_each
from falkirk.state.rocks import RocksStore, install_version
from falkirk.state.store import Identity, Progress

WRITER = """
import sys
from pathlib import Path
from falkirk.state.engine import Memory
from falkirk.state.rocks import RocksStore
from falkirk.state.store import Identity, Progress
store = RocksStore(Path(sys.argv[1]), Identity("app", "stats/0", "f00", "stats v1"), Memory(write_buffers=1 << 20))
first = step = store.progress.step + 1
while True:
    store.write({b"%d" % i: b"%d" % step * 50 for i in range(200)}, Progress(step, step + 1, step))
    if step % 100 == 0:
        store.flush()
        print(step, flush=True)
    if step % 150 == 0:
        store.commit()
    step += 1
"""


def test_kill_9_leaves_a_prefix_that_holds_what_was_flushed(folder: Path) -> None:
    reached = -1
    for life in range(5):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        flushed = int(writer.stdout.readline())
        time.sleep(0.02 + 0.05 * life)
        writer.send_signal(signal.SIGKILL)
        flushed = max([flushed, *map(int, writer.stdout.read().split())])
        writer.wait()
        writer.stdout.close()
        store = RocksStore(folder, WHOSE)
        step = store.progress.step
        assert step >= flushed > reached
        assert {value for _, value in store.scan(b"", LAST_KEY)} == {b"%d" % step * 50}
        for version in reversed(store.versions()):
            store.open(version)
            step = store.progress.step
            assert {value for _, value in store.scan(b"", LAST_KEY)} == ({b"%d" % step * 50} if step >= 0 else set())
        reached = store.progress.step
        store.close()


def test_flush_and_commit_run_beside_writes(store: RocksStore) -> None:
    done = threading.Event()
    errors: list[BaseException] = []

    def maintain() -> None:
        try:
            while not done.is_set():
                store.flush()
                store.commit()
        except BaseException as error:
            errors.append(error)
            raise

    thread = threading.Thread(target=maintain)
    thread.start()
    for step in range(400):
        store.write({b"%d" % i: b"%d" % step for i in range(50)}, at(step))
    done.set()
    thread.join()
    assert not errors
    assert len(store.versions()) == 2
    for version in reversed(store.versions()):
        promised = store.version_progress(version)
        store.open(version)
        assert store.progress == promised
        assert {value for _, value in store.scan(b"", LAST_KEY)} <= {b"%d" % promised.step}


def test_two_processes_cannot_open_one_store(store: RocksStore, folder: Path) -> None:
    with pytest.raises(IdentityError, match="in use") as caught:
        RocksStore(folder, WHOSE)
    assert str(folder) in str(caught.value)
    with pytest.raises(IdentityError):
        install_version(folder, WHOSE, 3, lambda _: None)
    store.close()
    RocksStore(folder, WHOSE).close()


def test_an_iterator_in_the_frames_of_an_error_does_not_keep_a_store_closed(folder: Path) -> None:
    def fails(store: RocksStore) -> None:
        rows = store.scan(b"", LAST_KEY)
        assert next(rows)
        raise ValueError

    store = RocksStore(folder, WHOSE)
    store.write({b"a": b"1", b"b": b"2"}, at(0))
    gc.disable()
    try:
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            fails(store)
        raised.value.args = (raised.value,)  # a cycle, as frames and errors often are
        del raised
        store.close()
        again = RocksStore(folder, WHOSE)
        assert again.get([b"b"]) == [b"2"]
        again.close()
    finally:
        gc.enable()


def test_a_closed_store_says_so(store: RocksStore) -> None:
    store.close()
    with pytest.raises(ValueError, match="closed"):
        store.get([b"a"])
    store.close()


KILLED = """
import os, signal, sys
from pathlib import Path
from falkirk.state.rocks import RocksStore
from falkirk.state.store import Identity, Progress
store = RocksStore(Path(sys.argv[1]), Identity("app", "stats/0", "f00", "stats v1"))
for step in range(500):
    store.write({b"%d" % i: b"%d" % step for i in range(step % 50, 50)}, Progress(step, step + 1, step))
    if step == 200:
        store.commit()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_written_outlives_a_kill_without_a_flush(folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(folder)], check=False)
    assert done.returncode == -signal.SIGKILL
    store = RocksStore(folder, WHOSE)
    assert store.progress == Progress(499, 500, 499)
    assert dict(store.scan(b"", b"\xff")) == {b"%d" % i: b"%d" % (450 + i) for i in range(50)}
    store.open(store.versions()[-1])
    assert store.progress == Progress(200, 201, 200)
    store.close()


FULL = """
import resource, sys
from pathlib import Path
from falkirk.errors import DiskError
from falkirk.state.engine import Memory
from falkirk.state.rocks import RocksStore
from falkirk.state.store import Identity, Progress
import random
store = RocksStore(Path(sys.argv[1]), Identity("app", "stats/0", "f00", "stats v1"), Memory(write_buffers=1 << 20))
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
step = 0
try:
    while True:
        value = b"%6d" % step + random.randbytes(50)
        store.write({b"%d" % i: value for i in range(2000)} | {b"r%d" % step: random.randbytes(20_000)},
                    Progress(step, step + 1, step))
        step += 1
except DiskError as error:
    assert "make room" in error.hint, error
assert store.progress.step == step - 1
assert {v[:6] for k, v in store.scan(b"0", b"a")} == {b"%6d" % (step - 1)}
versions = store.versions()
for call in (store.flush, store.commit):
    try:
        call()
    except DiskError:
        assert store.versions() == versions and store.progress.step == step - 1
    else:
        raise AssertionError(call)
print(step - 1)
"""


def test_a_full_disk_is_an_error_and_nothing_is_applied(folder: Path) -> None:
    """A limit on file size stands in for the disk: writing beyond it fails in the same calls."""
    done = subprocess.run([sys.executable, "-c", FULL, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    store = RocksStore(folder, WHOSE)
    assert -1 <= store.progress.step <= int(done.stdout)
    seen = {value[:6] for _, value in store.scan(b"0", b"a")}
    assert seen == ({b"%6d" % store.progress.step} if store.progress.step >= 0 else set())
    store.write({b"a": b"1"}, Progress(10**6, 10**6, 10**6))
    store.commit()
    store.close()


def test_a_folder_that_cannot_be_made_is_a_disk_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DiskError, match="cannot be written"):
        RocksStore(tmp_path / "file" / "store", WHOSE)


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def test_a_process_has_a_budget_of_open_files_for_all_its_stores(tmp_path: Path) -> None:
    """A store with 60 tables, and others beside it: each keeps its share open and no more."""
    stores = 6
    each = files_each(2 * stores * (PER_STORE + 24), stores)
    assert each == 24
    memory = Memory(cache=32 << 20, write_buffers=8 << 20, open_files=each)
    before, opened = open_files(), list[RocksStore]()
    for n in range(stores):
        store = RocksStore(tmp_path / str(n), WHOSE, memory)
        opened.append(store)
        for step in range(30):
            store.write({b"%02d-%d" % (step, key): bytes(40) for key in range(20)}, at(step))
            store.flush()
        assert len(store.get([b"%02d-%d" % (step, 0) for step in range(30)])) == 30
    assert open_files() - before <= stores * (each + PER_STORE)
    for store in opened:
        store.close()


def test_stores_share_bounded_memory(tmp_path: Path) -> None:
    memory = Memory(cache=32 << 20, write_buffers=8 << 20)
    stores = [RocksStore(tmp_path / str(n), Identity("app", f"stats/{n}", "f00"), memory) for n in range(3)]
    one_write = 1 << 20
    for step in range(20):
        for store in stores:
            store.write({b"%d-%d" % (step, i): b"v" * 400 for i in range(2000)}, at(step))
    assert memory.write_buffers.get_usage() <= (8 << 20) + len(stores) * ((2 << 20) + one_write)
    assert memory.cache.get_usage() <= 32 << 20
    for store in stores:
        assert sum(1 for _ in store.scan(b"", b"\xff")) == 20 * 2000
        store.close()


def test_a_snapshot_stays_as_it_was_and_says_how_far_it_is(store: RocksStore) -> None:
    store.write({b"a": b"1", b"b": b"1"}, at(3))
    with store.snapshot() as taken:
        store.write({b"a": None, b"b": b"2", b"c": b"2"}, at(4))
        assert taken.progress == at(3)
        assert taken.pairs.get([b"b", b"c", b"a"]) == [b"1", None, b"1"]
        assert taken.pairs.scan(b"a", b"c", 9) == [(b"a", b"1"), (b"b", b"1")]
        assert taken.pairs.scan(b"a", b"c", 1) == [(b"a", b"1")]
    with store.snapshot() as after:
        assert (after.progress, after.pairs.get([b"a", b"b"])) == (at(4), [None, b"2"])
    with pytest.raises(ValueError, match="the snapshot is closed"):
        after.pairs.get([b"a"])


def test_a_step_is_in_a_snapshot_as_a_whole_while_another_thread_writes(store: RocksStore) -> None:
    store.write({b"%d" % i: b"0" for i in range(50)}, at(0))
    stop = threading.Event()

    def write() -> None:
        step = 0
        while not stop.is_set():
            step += 1
            store.write({b"%d" % i: b"%d" % step for i in range(50)}, at(step))

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    for _ in range(200):
        with store.snapshot() as taken:
            keys = [b"%d" % i for i in range(50)]
            assert set(taken.pairs.get(keys)) == {b"%d" % taken.progress.step}
            assert {value for _, value in taken.pairs.scan(b"0", b"9", 99)} == {b"%d" % taken.progress.step}
            seen.add(taken.progress.step)
    stop.set()
    writer.join()
    assert len(seen) > 1


def test_a_store_that_is_read_closes_after_the_reader_and_can_be_opened_again(folder: Path) -> None:
    store = RocksStore(folder, WHOSE)
    store.write({b"a": b"1"}, at(0))
    reading, go, closed = threading.Event(), threading.Event(), threading.Event()

    def read() -> None:
        with store.snapshot() as taken:
            reading.set()
            go.wait(PATIENCE_S)
            assert not closed.is_set()
            assert taken.pairs.get([b"a"]) == [b"1"]

    def close() -> None:
        store.close()
        closed.set()

    reader, closer = threading.Thread(target=read), threading.Thread(target=close)
    reader.start()
    reading.wait(PATIENCE_S)
    closer.start()
    go.set()
    closer.join()
    reader.join()
    with pytest.raises(ValueError, match="is closed"), store.snapshot():
        pass
    again = RocksStore(folder, WHOSE)  # its files are locked no more
    assert again.get([b"a"]) == [b"1"]
    again.close()
