"""The clauses of `falkirk.state.store`, on every implementation."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from falkirk.errors import StateError
from falkirk.state.memory import MemoryDisk, MemoryStore
from falkirk.state.rocks import RocksStore
from falkirk.state.store import EMPTY, Identity, Progress, Store

WHOSE = Identity("app", "stats/0", "f00", "stats v1 n:Int64")
pytestmark = pytest.mark.usefixtures("still_files", "no_waiting_for_the_disk")
LAST_KEY = b"\xfe"


class Place(Protocol):
    """Where a store lives on when its process dies."""

    def store(self, identity: Identity = WHOSE) -> Store: ...

    def crash(self, keep: int = 0) -> None:
        """Kill the process. `keep` unflushed writes survive at the least where the place can choose."""
        ...

    def clear(self) -> None: ...


class MemoryPlace:
    def __init__(self) -> None:
        self.disk = MemoryDisk()

    def store(self, identity: Identity = WHOSE) -> Store:
        return MemoryStore(identity, self.disk)

    def crash(self, keep: int = 0) -> None:
        self.disk.crash(keep)

    def clear(self) -> None:
        pass


class RocksPlace:
    """A crash leaves what the files held at that moment: so it is a copy of them that goes on."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="falkirk-"))
        self.lives = 0
        self.open: list[RocksStore] = []

    @property
    def folder(self) -> Path:
        return self.root / str(self.lives)

    def store(self, identity: Identity = WHOSE) -> Store:
        store = RocksStore(self.folder, identity)
        self.open.append(store)
        return store

    def crash(self, keep: int = 0) -> None:
        before = self.folder
        self.lives += 1
        shutil.copytree(before, self.folder)

    def clear(self) -> None:
        for store in self.open:
            store.close()
        shutil.rmtree(self.root)


@pytest.fixture(params=[MemoryPlace, RocksPlace])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    place: Place = request.param()
    yield place
    place.clear()


def at(step: int) -> Progress:
    return Progress(step, step + 1, 10 * step, clock=1000 + step)


def write(store: Store, step: int) -> None:
    """Step n sets every key to n but one, which it deletes: any torn or missing write shows."""
    store.write({b"%d" % i: None if i == step % 5 else b"%d" % step for i in range(5)}, at(step))


def contents(store: Store) -> dict[bytes, bytes]:
    return dict(store.scan(b"", LAST_KEY))


def after(step: int) -> dict[bytes, bytes]:
    """What the store holds after steps 0..n."""
    return {b"%d" % i: b"%d" % step for i in range(5) if i != step % 5} if step >= 0 else {}


def assert_is_at(store: Store, step: int) -> None:
    assert store.progress == (EMPTY if step < 0 else at(step))
    assert contents(store) == after(step)


def test_a_new_store_is_empty_and_version_0(place: Place) -> None:
    store = place.store()
    assert_is_at(store, -1)
    assert store.versions() == range(1)


def test_reads_see_writes(place: Place) -> None:
    store = place.store()
    store.write({b"a": b"1", b"b": b"", b"c": b"3"}, at(0))
    assert store.get([b"c", b"x", b"b", b"c"]) == [b"3", None, b"", b"3"]
    assert store.get([]) == []
    assert list(store.scan(b"a", b"c")) == [(b"a", b"1"), (b"b", b"")]
    assert list(store.scan(b"b", b"b")) == []
    assert list(store.scan(b"", b"\xff\xff\xff")) == [(b"a", b"1"), (b"b", b""), (b"c", b"3")]
    store.write({b"a": None, b"missing": None}, at(1))
    assert store.get([b"a"]) == [None]


def test_a_scan_is_of_the_moment_it_begins(place: Place) -> None:
    store = place.store()
    store.write({b"a": b"1", b"b": b"1"}, at(0))
    scan = store.scan(b"a", b"z")
    assert next(scan) == (b"a", b"1")
    store.write({b"b": b"2", b"c": b"2"}, at(1))
    assert list(scan) == [(b"b", b"1")]


@pytest.mark.parametrize("keep", range(4))
def test_clauses_1_2_and_4_a_crash_leaves_a_prefix_that_holds_what_was_flushed(place: Place, keep: int) -> None:
    store = place.store()
    for step in range(7):
        write(store, step)
        if step == 3:
            store.flush()
    place.crash(keep)
    store = place.store()
    assert 3 <= store.progress.step <= 6
    assert_is_at(store, store.progress.step)
    write(store, store.progress.step + 1)


@pytest.mark.parametrize("back", [Progress(4, 6, 50), Progress(5, 5, 50), Progress(5, 6, 49)])
def test_clause_3_progress_never_goes_back(place: Place, back: Progress) -> None:
    store = place.store()
    write(store, 5)
    with pytest.raises(StateError, match="back"):
        store.write({b"0": b"old"}, back)
    assert_is_at(store, 5)


def test_clause_5_commit_adds_a_version_and_keeps_the_one_before(place: Place) -> None:
    store = place.store()
    for step, versions in enumerate([range(2), range(1, 3), range(2, 4)]):
        write(store, step)
        assert store.commit() == step + 1
        assert store.versions() == versions
    place.crash()
    store = place.store()
    assert store.versions() == range(2, 4)
    assert_is_at(store, 2)


def test_clause_6_open_gives_what_was_committed_and_discards_later_versions(place: Place) -> None:
    store = place.store()
    for step in range(4):
        write(store, step)
        if step:
            store.commit()
    write(store, 4)
    store.open(2)
    assert_is_at(store, 2)
    assert store.versions() == range(2, 3)
    write(store, 9)
    assert store.commit() == 3
    store.open(2)
    assert_is_at(store, 2)
    place.crash()
    store = place.store()
    assert_is_at(store, 2)
    assert store.versions() == range(2, 3)


def test_clause_6_the_last_version_can_be_opened_and_the_one_before_kept(place: Place) -> None:
    store = place.store()
    write(store, 0)
    store.commit()
    write(store, 1)
    store.open(1)
    assert_is_at(store, 0)
    assert store.versions() == range(2)
    store.open(0)
    assert_is_at(store, -1)
    assert store.versions() == range(1)


@pytest.mark.parametrize("version", [-1, 0, 4])
def test_clause_6_a_version_that_is_not_there_is_refused(place: Place, version: int) -> None:
    store = place.store()
    for step in range(3):
        write(store, step)
        store.commit()
    with pytest.raises(StateError, match=f"no version {version}"):
        store.open(version)
    assert_is_at(store, 2)


def test_clause_7_anothers_state_is_refused_and_kept(place: Place) -> None:
    store = place.store()
    write(store, 0)
    store.close()
    for other in [
        Identity("b", "stats/0", "f00"),
        Identity("app", "stats/1", "f00"),
        Identity("app", "stats/0", "f01"),
        Identity("app", "stats/0", "f00", "stats v1 n:Int64", "the next"),
    ]:
        with pytest.raises(StateError):
            place.store(other)
    assert_is_at(place.store(), 0)


def test_clause_7_a_changed_schema_is_shown(place: Place) -> None:
    place.store().close()
    changed = Identity("app", "stats/0", "f01", "stats v1 n:Int64 top:Int64")
    with pytest.raises(StateError) as caught:
        place.store(changed)
    assert "− stats v1 n:Int64\n" in str(caught.value)
    assert "+ stats v1 n:Int64 top:Int64\n" in str(caught.value)
    assert "another name" in caught.value.hint


def test_close_flushes(place: Place) -> None:
    store = place.store()
    write(store, 0)
    store.close()
    place.crash()
    assert_is_at(place.store(), 0)


KEYS = st.sampled_from([b"a", b"b", b"c"])


class Model(RuleBasedStateMachine):
    """Any sequence of operations and crashes, against a list of writes."""

    make_place: type[MemoryPlace | RocksPlace]
    versions = Bundle("versions")

    @initialize()
    def begin(self) -> None:
        self.place: Place = self.make_place()
        self.live = self.place.store()
        self.states: list[tuple[dict[bytes, bytes], Progress]] = [({}, EMPTY)]
        self.flushed = 0
        self.kept = {0: self.states[0]}

    @rule(changes=st.dictionaries(KEYS, st.binary(max_size=2) | st.none()), steps=st.integers(0, 2))
    def write(self, changes: dict[bytes, bytes | None], steps: int) -> None:
        pairs, progress = self.states[-1]
        progress = Progress(progress.step + steps, progress.step_offset + 1, progress.log_offset + 5)
        self.live.write(changes, progress)
        self.states.append(({k: v for k, v in ({**pairs, **changes}).items() if v is not None}, progress))

    @rule()
    def flush(self) -> None:
        self.live.flush()
        self.flushed = len(self.states) - 1

    @rule()
    def commit(self) -> None:
        number = self.live.commit()
        self.flushed = len(self.states) - 1
        last = max(self.kept)
        assert number == last + 1
        self.kept = {last: self.kept[last], number: self.states[-1]}

    @rule(which=st.integers(0, 1))
    def open(self, which: int) -> None:
        version = sorted(self.kept)[-1 - which % len(self.kept)]
        self.live.open(version)
        self.kept = {n: state for n, state in self.kept.items() if n <= version}
        self.states, self.flushed = [self.kept[version]], 0

    @rule(keep=st.integers(0, 3))
    def crash(self, keep: int) -> None:
        self.place.crash(keep)
        self.live = self.place.store()
        survived = [state for _, state in self.states].index(self.live.progress, 0)
        assert survived >= self.flushed
        self.states, self.flushed = self.states[: survived + 1], survived

    @rule()
    def close(self) -> None:
        self.live.close()
        self.live = self.place.store()
        self.flushed = len(self.states) - 1

    @invariant()
    def holds(self) -> None:
        pairs, progress = self.states[-1]
        assert (contents(self.live), self.live.progress) == (pairs, progress)
        assert self.live.versions() == range(min(self.kept), max(self.kept) + 1)

    def teardown(self) -> None:
        if hasattr(self, "place"):
            self.place.clear()


@pytest.mark.parametrize(("where", "examples"), [(MemoryPlace, 100), (RocksPlace, 20)])
def test_any_sequence_of_operations_and_crashes(where: type[MemoryPlace | RocksPlace], examples: int) -> None:
    class Bound(Model):
        make_place = where

    run_state_machine_as_test(Bound, settings=settings(max_examples=examples, stateful_step_count=20, deadline=None))
