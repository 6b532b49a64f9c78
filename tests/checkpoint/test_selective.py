"""Selective rollback: where it begins, what it does when it fails, and who may go on in its store."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from falkirk.checkpoint import driver
from falkirk.checkpoint.digest import digest
from falkirk.checkpoint.ids import Millis, Nonce, Offset, OwnerId, Step, TaskId, TopicPartition
from falkirk.checkpoint.overlay import Overlay
from falkirk.checkpoint.ports import Output
from falkirk.checkpoint.records import Move, SelectiveCheckpoint, StepRecord
from falkirk.checkpoint.regimes import Lazy, LogBounds, Means, selective
from falkirk.checkpoint.regimes.selective import plan_rollback
from falkirk.checkpoint.tasks import Owned, Phase, Revoked, Task
from falkirk.errors import DivergenceError, SourceError
from falkirk.state.memory import MemoryDisk, MemoryStore
from falkirk.state.store import EMPTY, GoOn, Identity, Progress

TASK = Task(TaskId("lazy", 0), TopicPartition("steps", 0), Lazy(), layout=1)
IDENTITY = Identity("app", "lazy/0", "")
LAST = 20
Steps = list[tuple[Offset, StepRecord]]


def checkpoint(n: int) -> SelectiveCheckpoint:
    """Of a step that has read up to time n, where a row counts for 3 after its time, and the watermark is 1 behind."""
    return SelectiveCheckpoint(Millis(n - 1), Millis(n + 3), ((b"watermark", b"%d" % (n - 1)),))


def recorded(every: int = 2, first: int = 0) -> Steps:
    """Steps, some of them with a checkpoint, at offsets of which each second one is a marker's."""
    of = ("lazy/0", Nonce("n"), OwnerId("o"))
    return [
        (
            Offset(2 * n),
            StepRecord(
                of[0], Step(n), of[1], of[2], Millis(n), (), (), digest([]), layout=1,
                selective=checkpoint(n) if n % every == 0 else None,
            ),
        )
        for n in range(first, first + LAST + 1)
    ]  # fmt: skip


def changed(steps: Steps, n: int, **change: Any) -> Steps:
    """One of them is another."""
    return [(offset, structs.replace(r, **change) if r.step == n else r) for offset, r in steps]


class Disk:
    """Stores, in memory. `copied`: the step of the newest version that was copied; −1: none was."""

    def __init__(self, copied: int = -1) -> None:
        self.copied = copied
        self.disk = MemoryDisk()

    def store(self) -> MemoryStore:
        return MemoryStore(IDENTITY, self.disk)

    async def open(self, _: TaskId, go_on: GoOn) -> MemoryStore:
        return self.store()

    async def fresh(self, _: TaskId) -> MemoryStore:
        self.disk = MemoryDisk()
        return self.store()

    async def newer(self, _: TaskId, than: Step, go_on: GoOn) -> MemoryStore:
        if self.copied > than:
            store = await self.fresh(TASK.id)
            store.write({b"times": b"whole"}, Progress(self.copied, 2 * self.copied + 1, 0))
        return self.store()


class Times:
    """Runs steps again. The state is the last time read, and the steps whose rows count."""

    def __init__(self, *, corrects: bool = False, fails_at: int = -1, other: bool = False, dies_at: int = -1) -> None:
        self.corrects, self.fails_at, self.other, self.dies_at = corrects, fails_at, other, dies_at
        self.ran: list[int] = []

    async def replay(self, _: TaskId, record: StepRecord, state: Overlay) -> list[Output]:
        if record.step == self.dies_at:
            raise Revoked
        if record.step == self.fails_at:
            self.fails_at = -1
            raise SourceError("the records are gone")
        self.ran.append(record.step)
        state.put([b"watermark", b"step %d" % record.step], [b"%d" % (record.step - 1), b""])
        return []

    def selective(self, _: TaskId, state: Overlay) -> SelectiveCheckpoint | None:
        (watermark,) = state.get([b"watermark"])
        return None if self.other else checkpoint(int(watermark or b"0") + 1)

    async def difference(self, *_: Any) -> list[Output]:
        raise NotImplementedError


def test_it_begins_at_the_newest_step_that_the_newest_checkpoint_makes_superfluous() -> None:
    found = plan_rollback(recorded(), EMPTY)
    assert found is not None
    assert (found.after, found.end) == (16, 20), "16 + 3 ≤ 20 − 1, and not 18 + 3"
    assert found.kept == ((b"watermark", b"15"),)
    for every in (1, 2, 3, 5):
        marked = [r for _, r in recorded(every) if r.selective]
        reached = marked[-1].selective
        assert reached is not None
        older = [r.step for r in marked if r.selective and r.selective.needed <= reached.complete]
        found = plan_rollback(recorded(every), EMPTY)
        assert (None if found is None else found.after) == (max(older) if older else None)


@pytest.mark.parametrize("step", [15, 16, 19, 20])
def test_a_store_from_which_it_is_not_longer_is_rolled(step: int) -> None:
    assert (plan_rollback(recorded(), Progress(step, 2 * step + 1, 0)) is None) == (step >= 16)


@pytest.mark.parametrize(
    "change",
    [{"corrects": Step(17)}, {"move": Move()}, {"layout": 0}, {"base": Offset(3)}],
    ids=["correction", "move", "flow", "backfill"],
)
def test_all_steps_on_the_way_have_read_on_with_one_flow(change: dict[str, Any]) -> None:
    assert plan_rollback(changed(recorded(), 18, **change), EMPTY) is None
    assert plan_rollback(changed(recorded(), 15, **change), EMPTY) is not None


def test_steps_of_an_earlier_flow_are_left_to_it() -> None:
    assert plan_rollback(recorded(), EMPTY, layout=2) is None


def recovered(disk: Disk, times: Times, owned: Owned, steps: Steps) -> bool:
    means = Means(None, disk, times, None)  # type: ignore[arg-type]  # neither log nor clock is asked
    return driver.run(TASK.recovery.recover(means, owned, steps, LogBounds({}, {})))


def owned_of(disk: Disk) -> Owned:
    return Owned(TASK, Phase.ROLLING, Nonce("n"), disk.store())


def test_only_steps_that_count_run_again() -> None:
    disk, times = Disk(), Times()
    owned = owned_of(disk)
    assert recovered(disk, times, owned, recorded())
    assert times.ran == [17, 18, 19, 20]
    assert owned.steps_saved == 17
    assert owned.opened().progress == Progress(20, 41, 0, 20)
    assert owned.opened().get([b"step 16", b"step 17"]) == [None, b""]


@pytest.mark.parametrize("on_its_way", [False, True])
def test_where_no_row_counts_any_more_no_step_before_the_last_checkpoint_runs_again(on_its_way: bool) -> None:
    """The watermark is at the last row, as without `late`, and no state is kept longer than that."""
    disk, times = Disk(), Times()
    if on_its_way:
        killed_at(disk, 19)
    kept = SelectiveCheckpoint(Millis(18), Millis(18), ((b"watermark", b"18"),))
    steps = changed(changed(recorded(), 18, selective=kept), 20, selective=None)
    owned = owned_of(disk)
    assert recovered(disk, times, owned, steps)
    assert times.ran == [19, 20]
    assert owned.opened().progress == Progress(20, 41, 0, 20)
    assert owned.opened().get([b"step 17", b"step 18", b"step 19"]) == [None, None, b""]


def test_steps_after_the_last_checkpoint_are_compared() -> None:
    disk, steps = Disk(), changed(recorded(3), 20, digest="another")
    with pytest.raises(DivergenceError, match="step 20"):
        recovered(disk, Times(), owned_of(disk), steps)
    assert recovered(disk, Times(), owned_of(Disk()), changed(recorded(3), 15, digest="another"))


@pytest.mark.parametrize(("times", "why"), [(Times(fails_at=18), "gone"), (Times(other=True), "another watermark")])
def test_if_it_fails_all_steps_after_a_version_run_again(times: Times, why: str) -> None:
    disk = Disk(copied=4)
    owned = owned_of(disk)
    assert not recovered(disk, times, owned, recorded())
    assert why in owned.rollback_failed
    assert owned.opened().progress.step == 4
    times.ran.clear()
    assert recovered(disk, times, owned, recorded())
    assert times.ran == list(range(5, LAST + 1))


def test_without_a_version_they_run_again_from_the_beginning() -> None:
    disk, times = Disk(), Times(fails_at=18)
    owned = owned_of(disk)
    assert not recovered(disk, times, owned, recorded())
    assert owned.opened().progress == EMPTY
    assert recovered(disk, times, owned, recorded())
    assert owned.opened().progress.step == LAST


def test_whoever_corrects_runs_all_steps_again() -> None:
    disk, times = Disk(), Times(corrects=True)
    assert recovered(disk, times, owned_of(disk), recorded())
    assert times.ran == list(range(LAST + 1))


def killed_at(disk: Disk, step: int) -> MemoryStore:
    """The store of a worker that was killed before it ran this step again."""
    owned = owned_of(disk)
    with pytest.raises(Revoked):
        recovered(disk, Times(dies_at=step), owned, recorded())
    owned.opened().close()
    store = disk.store()
    assert store.progress.step < 0 <= store.progress.ahead
    return store


def test_who_finds_a_store_on_its_way_goes_on_there() -> None:
    disk, times = Disk(), Times()
    killed_at(disk, 19)
    assert recovered(disk, times, owned_of(disk), recorded())
    assert times.ran == [19, 20]
    store = disk.store()
    assert store.get([b"step 16", b"step 17", b"step 20"]) == [None, b"", b""]


def test_if_the_way_is_too_old_another_one_begins() -> None:
    disk, times = Disk(), Times()
    store = killed_at(disk, 19)
    steps = recorded(first=50)
    assert store.progress.ahead < steps[0][0]
    assert recovered(disk, times, owned_of(disk), steps)
    assert times.ran == [67, 68, 69, 70]


@pytest.mark.parametrize("copied", [-1, 4])
def test_if_there_is_no_way_any_more_a_version_is_opened(copied: int) -> None:
    disk, times = Disk(copied), Times()
    killed_at(disk, 19)
    owned, steps = owned_of(disk), changed(recorded(), 20, corrects=Step(20), selective=None)
    steps = [(offset, structs.replace(r, selective=None)) for offset, r in steps]
    assert not recovered(disk, times, owned, steps[:LAST])
    assert owned.opened().progress.step == copied
    assert recovered(disk, times, owned, steps[:LAST])
    assert times.ran == list(range(copied + 1, LAST))


def test_what_was_kept_survives_kills_on_a_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selective, "FLUSH_STEPS", 2)
    disk = Disk()
    killed_at(disk, 19)
    disk.disk.crash()
    times = Times()
    assert recovered(disk, times, owned_of(disk), recorded())
    assert times.ran == [19, 20]


def test_the_plan_of_a_recovery_knows() -> None:
    steps = recorded()
    assert TASK.recovery.replay(Progress(3, 7, 0), steps, LogBounds({}, {})).parts == 4
    assert TASK.recovery.leads(steps[10:]), "although the first step is gone"
    assert not TASK.recovery.leads([(offset, structs.replace(r, selective=None)) for offset, r in steps[10:]])
