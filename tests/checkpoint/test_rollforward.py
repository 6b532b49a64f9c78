"""Stores that are rolled forward by workers that die, or give up, while they do it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from falkirk.checkpoint import driver, invariants
from falkirk.checkpoint.digest import digest
from falkirk.checkpoint.ids import InputPartition, Millis, Nonce, Offset, OwnerId, Step, TaskId, TopicPartition
from falkirk.checkpoint.overlay import Overlay
from falkirk.checkpoint.ports import Output
from falkirk.checkpoint.records import Range, StepRecord
from falkirk.checkpoint.regimes import Eager, Lazy, LogBounds, Means, lazy
from falkirk.checkpoint.regimes.lazy import roll_divisions, torn
from falkirk.checkpoint.tasks import InvariantError, Owned, Phase, Revoked, Task
from falkirk.state.memory import MemoryDisk, MemoryStore
from falkirk.state.store import Changes, Identity, Progress

PLACE = InputPartition("", "bids", "id", 0)
TASK = Task(TaskId("lazy", 0), TopicPartition("steps", 0), Lazy())
STEPS = [
    (Offset(n), StepRecord("lazy/0", Step(n), Nonce("n"), OwnerId("o"), Millis(n), (), (), digest([])))
    for n in range(25)
]


class Died(Exception):
    pass


class Dying:
    """Runs so many steps again, and dies."""

    corrects = False

    def __init__(self, steps: int) -> None:
        self.left, self.ran = steps, list[int]()

    async def replay(self, _: TaskId, record: StepRecord, state: Overlay) -> list[Output]:
        if not self.left:
            raise Died
        self.left -= 1
        self.ran.append(record.step)
        state.put([b"n"], [str(record.step).encode()])
        return []

    async def difference(self, *_: Any) -> list[Output]:
        raise NotImplementedError


def test_a_worker_that_dies_while_it_runs_steps_again_has_spared_the_next_one_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or else, killed more often than that takes, none would ever come to an end of them."""
    monkeypatch.setattr(lazy, "FLUSH_STEPS", 4)
    disk, identity = MemoryDisk(), Identity("app", "lazy/0", "")
    began = []
    while True:
        replayer, store = Dying(steps=9), MemoryStore(identity, disk)
        began.append(store.progress.step + 1)
        try:
            driver.run(roll_divisions(replayer, Owned(TASK, Phase.FENCING, Nonce("n"), store), STEPS))
            break
        except Died:
            assert replayer.ran == list(range(began[-1], began[-1] + 9)), "none is left out"
            disk.crash()
    assert began == [0, 8, 16]
    assert store.progress.step == 24
    assert store.get([b"n"]) == [b"24"]


# -- changelogs --------------------------------------------------------------------------------------------------------

CHANGELOG = TopicPartition("changelog", 0)
EAGER = Task(TaskId("eager", 0), TopicPartition("steps", 0), Eager((CHANGELOG,)))
BOUNDS = LogBounds({CHANGELOG: Offset(0)}, {CHANGELOG: Offset(10)})
IDENTITY = Identity("app", "eager/0", "")
DAY = 24 * 3600 * 1000


class Changelog:
    """Ten keys, a chunk each. It may end a recovery before a chunk is given."""

    def __init__(self, chunks: int = 10) -> None:
        self.left, self.read = chunks, list[int]()

    async def read_changes(self, _: TopicPartition, start: Offset, end: Offset) -> tuple[Changes, Offset]:
        if not self.left:
            raise Died
        self.left -= 1
        self.read.append(start)
        return {b"%d" % start: b"new"}, Offset(start + 1)


class At:
    def __init__(self, now: int) -> None:
        self.millis = now

    def now(self) -> Millis:
        return Millis(self.millis)


def means(log: object, clock: At, stores: object = None) -> Means:
    return Means(log, stores, None, clock)  # type: ignore[arg-type]


def roll(log: Changelog, store: MemoryStore, *, now: int = 0, revoked: bool = False) -> None:
    owned = Owned(EAGER, Phase.FENCING, Nonce("n"), store, revoked=revoked)
    driver.run(EAGER.recovery.recover(means(log, At(now)), owned, STEPS[9:10], BOUNDS))


def test_a_changelog_goes_on_where_a_worker_that_died_had_come_to() -> None:
    disk, first, second = MemoryDisk(), Changelog(chunks=4), Changelog()
    with pytest.raises(Died):
        roll(first, MemoryStore(IDENTITY, disk))
    disk.crash(keep=3)  # of what it had written
    store = MemoryStore(IDENTITY, disk)
    assert store.progress.step == -1, "it is at no step before all of the changelog is there"
    with pytest.raises(InvariantError, match="at no step"):
        invariants.prefix(store.progress, STEPS[9][1])
    roll(second, store)
    assert (first.read, second.read) == ([0, 1, 2, 3], [3, 4, 5, 6, 7, 8, 9])
    assert store.progress == Progress(9, 10, 11, 9)
    assert store.get([b"%d" % n for n in range(10)]) == [b"new"] * 10


def test_a_step_is_committed_with_one_division() -> None:
    ours = STEPS[9][1]
    invariants.once(ours, ours)
    with pytest.raises(InvariantError, match="step 9 was committed with another division"):
        invariants.once(ours, structs.replace(ours, division=(Range(PLACE, Offset(0), Offset(5)),)))


def test_a_recovery_that_is_given_up_keeps_what_it_has() -> None:
    store = MemoryStore(IDENTITY)
    with pytest.raises(Died):
        roll(Changelog(chunks=6), store)
    with pytest.raises(Revoked):
        roll(Changelog(), store, revoked=True)
    assert store.progress == Progress(-1, 0, 0, 0, -1, ahead=6)


def test_a_changelog_that_takes_days_to_read_is_not_trusted() -> None:
    """Tombstones may have gone between two chunks."""
    store, clock = MemoryStore(IDENTITY), At(0)

    class Slow(Changelog):
        async def read_changes(self, partition: TopicPartition, start: Offset, end: Offset) -> tuple[Changes, Offset]:
            clock.millis += DAY
            return await super().read_changes(partition, start, end)

    owned = Owned(EAGER, Phase.FENCING, Nonce("n"), store)
    means_ = means(Slow(), clock, OneStore(store))
    assert not driver.run(EAGER.recovery.recover(means_, owned, STEPS[9:10], BOUNDS))
    assert owned.opened() is not store, "another is open"
    assert store.progress == Progress(-1, 0, 0, 0, -1, ahead=4), "it is at no step, and as old as the recovery"


class OneStore:
    """The task's store, or an empty one in its place."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store

    async def open(self, *_: object) -> MemoryStore:
        return self.store

    async def fresh(self, *_: object) -> MemoryStore:
        return MemoryStore(IDENTITY)


@pytest.mark.parametrize(("days", "kept"), [(1, True), (6, False)])
def test_a_part_of_a_changelog_that_is_old_is_read_again(days: int, kept: bool) -> None:
    """What was deleted after it was read may have been compacted away with its tombstone."""
    store = MemoryStore(IDENTITY)
    with pytest.raises(Died):
        roll(Changelog(chunks=6), store, now=100 * DAY)
    assert rolled(store, (100 + days) * DAY, STEPS[9:10]) == ([*range(6, 10)] if kept else [*range(10)])


@pytest.mark.parametrize(
    ("first_missed", "days_ago", "kept"),
    [(None, 0, True), (4, 1, True), (4, 6, False), (5, 1, False)],
    ids=["nothing", "a new step", "an old step", "nobody knows how old"],
)
def test_a_store_of_a_task_that_was_idle_for_long_is_good_if_what_it_lacks_is_new(
    first_missed: int | None, days_ago: int, kept: bool
) -> None:
    """Otherwise, all state was read from the changelog after some idle days, whatever its size."""
    store, now = MemoryStore(IDENTITY), 100 * DAY
    store.write({}, Progress(3, 4, 8, now - 50 * DAY))
    own = (Offset(3), structs.replace(STEPS[3][1], clock=Millis(now - 50 * DAY)))
    missed = [] if first_missed is None else STEPS[first_missed : first_missed + 1]
    steps = [own, *((offset, structs.replace(r, clock=Millis(now - days_ago * DAY))) for offset, r in missed)]
    assert rolled(store, now, steps) == ([8, 9] if kept else [*range(10)])


def rolled(store: MemoryStore, now: int, steps: list[tuple[Offset, StepRecord]]) -> list[int]:
    """The offsets of the changelog that were read until the task has recovered."""
    log, owned = Changelog(), Owned(EAGER, Phase.FENCING, Nonce("n"), store)
    while not driver.run(EAGER.recovery.recover(means(log, At(now), OneStore(store)), owned, steps, BOUNDS)):
        pass
    assert owned.opened().progress.step == steps[-1][1].step
    return log.read


def test_a_task_that_is_lazy_now_begins_with_a_store_that_has_no_part_of_a_changelog() -> None:
    """It would run the steps after its own once more, over changes of theirs."""
    store = MemoryStore(IDENTITY)
    store.write({b"a": b"1"}, Progress(3, 4, 4, 3))
    assert torn(Owned(TASK, store=store)) is None
    store.write({b"b": b"2"}, store.progress.partly(6, 3))
    assert torn(Owned(TASK, store=store)) == 4
