"""What is trimmed, and what stays for people to look back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import obstore
import pytest

from falkirk.checkpoint.ids import InputPartition, Millis, Nonce, Offset, OwnerId, Step, TaskId, TopicPartition
from falkirk.checkpoint.planning import LogGrowth, Replay, Seconds
from falkirk.checkpoint.records import Range, StepRecord
from falkirk.checkpoint.regimes import Eager, Lazy, Recovery
from falkirk.checkpoint.tasks import Owned, Phase, Revoked, Task
from falkirk.errors import AwayError, DiskError, FalkirkError, StateError
from falkirk.runtime.worker.upkeep import copies, maintenance, task_upkeep
from falkirk.runtime.worker.upkeep.maintenance import Maintenance
from falkirk.runtime.worker.upkeep.rates import RateBook
from falkirk.state import checkpoints
from falkirk.state.checkpoints import CheckpointStore
from falkirk.state.memory import MemoryStore
from falkirk.state.objects import connect
from falkirk.state.rocks import RocksStore
from falkirk.state.store import Identity, Progress

STATS = TaskId("stats", 0)
STEPS, EDGE = TopicPartition("steps", 0), TopicPartition("edge", 0)


class Trimmed:
    """In the place of the topics."""

    def __init__(self) -> None:
        self.below: list[dict[TopicPartition, int]] = []
        """What went with each version: first step records, then edges."""
        self.stay = frozenset[TopicPartition]()
        """These cannot be trimmed now."""

    def trim(self, below: dict[TopicPartition, int]) -> bool:
        if STEPS in below or not self.below:
            self.below.append({})
        self.below[-1] |= {place: offset for place, offset in below.items() if place not in self.stay}
        return not self.stay & below.keys()


def keep_time(monkeypatch: pytest.MonkeyPatch, time: SimpleNamespace) -> None:
    """The time of all upkeep."""
    for module in (maintenance, copies, task_upkeep):
        monkeypatch.setattr(module, "time", time)


class Stand:
    """The upkeep of a task whose versions are due every ten seconds, with a checkpoint store that may be away."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        keep: float = 0.0,
        *,
        stateful: bool = True,
        within: timedelta | None = None,
        rates: RateBook | None = None,
    ) -> None:
        whose = Identity("app", "stats/0", "f")
        self.store = RocksStore(folder / "here", whose) if stateful else MemoryStore(whose)
        self.copies = CheckpointStore(connect((folder / "there").as_uri()), whose)
        self.away: FalkirkError | None = None
        self.now, self.trimmed = [0.0], Trimmed()
        self.gone = threading.Event()
        keep_time(monkeypatch, SimpleNamespace(monotonic=lambda: self.now[0], time=lambda: 0.0))
        monkeypatch.setattr(copies, "SWEEP", 0.0)
        self.partition = InputPartition("", "edge", "id", 0)
        bound = SimpleNamespace(
            inputs=[SimpleNamespace(place=EDGE, partition=self.partition, input=SimpleNamespace(kind="edge"))],
            stage=SimpleNamespace(regime=SimpleNamespace(every=timedelta(seconds=10.0), within=within)),
        )
        owned = SimpleNamespace(
            task=SimpleNamespace(id=STATS, steps=STEPS, recovery=Eager()),
            opened=lambda: self.store,
            last=None,
            correction=None,
        )
        self.task: Any = SimpleNamespace(bound=bound, begun=True, owned=owned)
        self.sizes: dict[TaskId, int] = {}
        self.upkeep = Maintenance(self, self.trimmed, keep, rates=rates)  # type: ignore[arg-type]
        self.known = self.upkeep.upkeep_of(STATS)
        self.known.versioned = 0.0

    def upload(self, task: TaskId, folder: Path, progress: Progress, go_on: Callable[[], None]) -> Progress:
        go_on()
        if self.away is not None:
            raise self.away
        self.copies.upload(folder, progress, go_on=go_on)
        return self.copies.floor

    def sweep(self, task: TaskId, below: Step) -> None:
        self.copies.delete_below(below)

    def leave(self, task: TaskId) -> Callable[[], None]:
        def go_on() -> None:
            if self.gone.is_set():
                raise Revoked

        return go_on

    def step(self, n: int) -> None:
        """A hundred records of the steps topic, and a thousand of the edge, to each step."""
        division = (Range(self.partition, Offset(0), Offset(1000 * n)),)
        self.task.owned.last = StepRecord("stats/0", Step(n), Nonce("n"), OwnerId("o"), Millis(0), division, (), "")
        self.store.write({b"k": b"%d" % n}, Progress(n, 100 * n, 0))
        self.known.stepped = True

    def version(self, n: int) -> None:
        """A step, ten seconds after the one before, and the version that is due then."""
        self.now[0] = 10.0 * n
        self.step(n)
        self.upkeep.tick([self.task])
        assert self.known.making is not None
        self.known.making.result()
        assert self.known.copying is not None
        self.known.copying.result()

    def close(self) -> list[dict[TopicPartition, int]]:
        self.upkeep.close()
        self.store.close()
        return self.trimmed.below


def test_without_more_ado_what_no_task_needs_goes_with_each_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Back to the version before the last: should that be damaged, its steps are run again."""
    stand = Stand(tmp_path, monkeypatch)
    for n in range(1, 6):
        stand.version(n)
    assert stand.copies.versions() == [4, 5]
    assert [copy.step for copy in stand.known.copies] == [4, 5]
    assert stand.close() == [
        {STEPS: -1},
        *({STEPS: 100 * (n - 1) - 1, EDGE: 1000 * (n - 1)} for n in (2, 3, 4, 5)),
    ]


def test_a_task_without_state_needs_its_last_step_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Stand(tmp_path, monkeypatch, stateful=False)
    for n in range(1, 6):
        stand.version(n)
    assert stand.copies.versions() == []
    assert stand.close() == [
        {STEPS: 99},
        *({STEPS: 100 * n - 1, EDGE: 1000 * (n - 1)} for n in (2, 3, 4, 5)),
    ]


def test_what_is_to_be_kept_for_a_while_goes_that_much_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Stand(tmp_path, monkeypatch, keep=25.0, stateful=False)
    for n in range(1, 6):
        stand.version(n)
    assert stand.close() == [{}, {STEPS: 99}, {STEPS: 199, EDGE: 1000}]


def test_edges_that_are_kept_for_a_while_begin_where_the_kept_step_records_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever finds a step on record can run it again, and show its input."""
    stand = Stand(tmp_path, monkeypatch, keep=25.0)
    for n in range(1, 7):
        stand.version(n)
    below = [found for found in stand.close() if found.get(STEPS, -1) > 0]
    assert below == [{STEPS: 99, EDGE: 1000}, {STEPS: 199, EDGE: 2000}]


def test_edges_stay_as_long_as_the_step_records_that_read_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old store of another host is known to be useless by step records that have gone. Until then it needs the edges."""
    stand = Stand(tmp_path, monkeypatch)
    stand.trimmed.stay = frozenset({STEPS})
    for n in (1, 2, 3):
        stand.version(n)
    assert stand.trimmed.below == [{}, {}, {}]
    stand.trimmed.stay = frozenset()
    stand.version(4)
    assert stand.close()[-1] == {STEPS: 299, EDGE: 3000}


def test_two_versions_of_one_step_are_one_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task may leave when it has not stepped since its last version."""
    stand = Stand(tmp_path, monkeypatch)
    for n in (1, 2):
        stand.version(n)
    stand.upkeep.last_versions([stand.task])
    assert stand.close() == [{STEPS: -1}, *[{STEPS: 99, EDGE: 1000}] * 2]
    assert stand.copies.versions() == [1, 2]


@pytest.mark.parametrize(("regime", "floor"), [(Eager, 2000), (Lazy, 1000)])
def test_a_lazy_task_keeps_what_its_last_step_has_read(regime: type[Recovery], floor: int) -> None:
    """The record of a version's own step stays, so a store of the step before is rolled from there."""
    partition = InputPartition("", "edge", "id", 0)
    division = (Range(partition, Offset(1000), Offset(2000)),)
    last = StepRecord("stats/0", Step(2), Nonce("n"), OwnerId("o"), Millis(0), division, (), "")
    assert regime().floor(last, {partition: EDGE}) == {EDGE: floor}
    assert regime().floor(None, {partition: EDGE}) == {}


@pytest.mark.parametrize("error", [AwayError("the bucket is away"), DiskError("files were deleted meanwhile")])
def test_nothing_is_trimmed_that_a_copy_needs_which_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: DiskError
) -> None:
    stand = Stand(tmp_path, monkeypatch)
    for n in (1, 2):
        stand.version(n)
    stand.away = error
    for n in (3, 4):
        stand.version(n)
        assert [copy.step for copy in stand.known.copies] == [1, 2]
        assert stand.known.stepped, "another version is due, and another attempt with it"
    stand.away = None
    stand.version(5)
    assert stand.copies.versions() == [2, 5]
    stand.version(6)
    assert stand.copies.versions() == [5, 6]
    below = stand.close()
    assert below == [
        {STEPS: -1},
        {STEPS: 99, EDGE: 1000},
        {STEPS: 199, EDGE: 2000},
        {STEPS: 499, EDGE: 5000},
    ]


def test_another_trouble_with_a_copy_ends_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Stand(tmp_path, monkeypatch)
    stand.away = StateError("this is the state of another app")
    with pytest.raises(StateError):
        stand.version(1)
    with pytest.raises(StateError):
        stand.upkeep.tick([stand.task])
    stand.close()


def test_an_unreadable_copy_keeps_files_and_holds_nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand = Stand(tmp_path, monkeypatch)
    monkeypatch.setattr(checkpoints, "GRACE", timedelta(0))
    monkeypatch.setattr(Stand, "sweep", lambda stand, task, below: stand.copies.delete_below(below, timedelta(0)))
    monkeypatch.setattr(checkpoints, "SMALL", -1)
    for n in (1, 2):
        stand.version(n)
    next((tmp_path / "there").rglob("versions/2.json")).write_text("{")
    for n in (3, 4, 5):
        stand.version(n)
    assert stand.copies.versions() == [4, 5]
    stand.close()


def test_the_last_version_is_made_at_once_and_copied_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group waits while a task is handed over: for the disk, and not for a checkpoint store that hangs."""
    stand, hangs = Stand(tmp_path, monkeypatch), threading.Event()
    upload = stand.upload

    def hanging(*given: Any) -> Progress:
        hangs.wait()
        return upload(*given)

    monkeypatch.setattr(stand, "upload", hanging)
    stand.step(7)
    stand.upkeep.last_versions([stand.task])
    assert isinstance(stand.store, RocksStore)
    assert stand.store.version_progress(stand.store.versions()[-1]).step == 7
    assert stand.copies.versions() == []
    assert stand.trimmed.below == []
    stand.store.close()
    hangs.set()
    stand.upkeep.close()
    assert stand.copies.versions() == [7]


def test_short_runs_that_copy_their_last_version_alone_trim_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run to the end may be over before a copy is due, and so may be every one after it."""
    stand = Stand(tmp_path, monkeypatch)
    for n in (1, 2, 3):
        stand.step(n)
        stand.upkeep.last_versions([stand.task])
        stand.upkeep.close()
        stand.upkeep = Maintenance(stand, stand.trimmed)  # type: ignore[arg-type]
        stand.known = stand.upkeep.upkeep_of(STATS)
    assert stand.copies.versions() == [2, 3]
    assert [below[STEPS] for below in stand.trimmed.below] == [-1, 99, 199]
    stand.close()


def test_a_copy_of_a_task_that_has_come_back_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder may hold other versions then: those that are read half would be copied half."""
    stand = Stand(tmp_path, monkeypatch)
    put = obstore.put

    def comes_back(*given: Any, **options: Any) -> object:
        stand.gone.set()
        return put(*given, **options)

    monkeypatch.setattr(checkpoints, "SMALL", -1)
    monkeypatch.setattr(obstore, "put", comes_back)
    stand.step(7)
    stand.upkeep.last_versions([stand.task])
    stand.close()
    assert stand.copies.versions() == []


def test_a_worker_that_ends_says_which_copies_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stand, hangs = Stand(tmp_path, monkeypatch), threading.Event()
    monkeypatch.setattr(stand, "upload", lambda *_: hangs.wait())
    stand.step(7)
    stand.upkeep.last_versions([stand.task])
    stand.upkeep.close(seconds=0.05)
    assert "the last versions of 1 task are not in the checkpoint store" in caplog.text
    assert "stats/0" in caplog.text
    hangs.set()
    stand.store.close()


def test_a_flush_does_not_wait_for_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand, hangs = Stand(tmp_path, monkeypatch), threading.Event()
    monkeypatch.setattr(stand, "upload", lambda *_: hangs.wait())
    stand.now[0] = 10.0
    stand.step(1)
    stand.upkeep.tick([stand.task])
    stand.known.making.result()  # type: ignore[union-attr]
    stand.step(2)
    stand.known.changes, stand.now[0] = 1, 21.0
    stand.upkeep.tick([stand.task])
    assert stand.known.making is not None
    stand.known.making.result()
    assert stand.known.copying is not None
    assert not stand.known.copying.done()
    hangs.set()
    stand.store.close()


@pytest.mark.parametrize(
    ("recovery", "stepped", "version", "waits"),
    [
        (Lazy(), True, 93_000, 3.0),
        (Eager((TopicPartition("changelog", 0),)), True, 93_000, 10.0),
        (Lazy(), True, None, 1.0),
        (Lazy(), False, None, 10.0),
    ],
    ids=["a version is there", "nothing would be run again", "all would be run again", "no step was committed"],
)
def test_what_would_be_run_again_gets_its_version_so_long_after_the_last_however_often_the_task_comes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    recovery: Recovery,
    stepped: bool,
    version: int | None,
    waits: float,
) -> None:
    """Of workers that are killed within the time between two versions, none would make one."""
    store = RocksStore(tmp_path, Identity("app", "stats/0", "f"))
    if version is not None:
        store.write({b"k": b"v"}, Progress(7, 8, 0, clock=version))
        store.commit()
    now, begun = [50.0], list[float]()
    keep_time(monkeypatch, SimpleNamespace(monotonic=lambda: now[0], time=lambda: 50.0 + now[0]))
    every = SimpleNamespace(every=timedelta(seconds=10.0), within=None)
    task: Any = SimpleNamespace(
        bound=SimpleNamespace(inputs=[], stage=SimpleNamespace(regime=every)),
        begun=True,
        owned=Owned(Task(TaskId("stats", 0), STEPS, recovery), Phase.RUNNING, Nonce("n"), store),
    )
    if stepped:
        task.owned.last = StepRecord("stats/0", Step(7), Nonce("n"), OwnerId("o"), Millis(93_000), (), (), "")
    kept = Maintenance(None, None)  # type: ignore[arg-type]
    monkeypatch.setattr(kept, "_begin_version", lambda *_: begun.append(now[0]))
    kept.upkeep_of(TaskId("stats", 0)).versioned = now[0]
    kept.taken(task)
    kept.upkeep_of(TaskId("stats", 0)).stepped = True
    while not begun:
        now[0] += 1.0
        kept.tick([task])
    assert begun == [50.0 + waits]
    kept.close()
    store.close()


@pytest.mark.parametrize("behind", [True, False])
def test_an_idle_task_that_came_rolled_forward_gets_its_version_without_another_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: bool
) -> None:
    """Else the version stays as old as it is, beside the last step, for as long as nothing comes."""
    stand = Stand(tmp_path, monkeypatch)
    stand.step(1)
    stand.store.commit()
    if behind:
        stand.step(2)  # from the changelog, say: of its steps, one has moved rows of an earlier version of the flow
    stand.upkeep.forget(stand.task)
    stand.upkeep.taken(stand.task)
    known = stand.upkeep.upkeep_of(STATS)
    known.versioned = 0.0
    for second in range(30):
        stand.now[0] = float(second)
        stand.upkeep.tick([stand.task])
        for job in (known.making, known.copying):
            if job is not None:
                job.result()
    newest = stand.store.versions()[-1]
    assert newest == (2 if behind else 1)
    assert stand.store.version_progress(newest).step == stand.store.progress.step
    assert [copy.step for copy in known.copies] == ([2] if behind else [])
    stand.close()


class UnderLoad(Stand):
    """A lazy task whose steps come ten times a second, each of which takes 20 ms to run again. To name the task takes 0.2 s,
    to open its store 0.1 s, and to copy a version nothing."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, within: float) -> None:
        rates, a_second = RateBook(), Seconds(0.2, 0.1, 0.0, 1.0)
        rates.note(STATS, a_second, 0, Replay(50, 0), Lazy.presumed)
        super().__init__(folder, monkeypatch, within=timedelta(seconds=within), rates=rates)
        self.task.owned.task.recovery = Lazy()
        self.known.growth, self.steps = LogGrowth(0.0), 0
        self.versions: list[float] = []

    def run(self, seconds: float) -> list[float]:
        """When versions are made, in seconds since the start."""
        for _ in range(round(10 * seconds)):
            self.now[0] += 0.1
            self.steps += 1
            self.step(self.steps)
            closed: Any = SimpleNamespace(
                owned=self.task.owned, record=self.task.owned.last, overlay=SimpleNamespace(changes={})
            )
            self.upkeep.committed([closed])
            before = self.known.growth.began
            self.upkeep.tick([self.task])
            if self.known.growth.began != before:
                self.versions.append(round(self.now[0], 1))
                assert self.known.making is not None
                self.known.making.result()
                assert self.known.copying is not None
                self.known.copying.result()
        return self.versions


@pytest.mark.parametrize(("within", "every"), [(1.3, 5.0), (2.3, 10.0)])
def test_versions_come_when_a_recovery_would_take_longer_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, within: float, every: float
) -> None:
    """Ten steps of 20 ms a second: 5 s of them are a second's replay, and 0.3 s go before it."""
    stand = UnderLoad(tmp_path, monkeypatch, within)
    made = stand.run(31.0)
    assert made[0] <= every  # until a copy was made, it is presumed to take a second
    gaps = [round(after - before, 1) for before, after in pairwise(made)]
    assert len(gaps) >= 2
    assert all(every - 0.4 <= gap <= every + 0.2 for gap in gaps), gaps
    stand.close()


def test_an_objective_that_cannot_be_met_is_said_once_with_one_that_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stand = UnderLoad(tmp_path, monkeypatch, within=0.4)
    stand.run(20.0)
    stand.close()
    (said,) = [r.message for r in caplog.records if "cannot recover" in r.message]
    assert said.startswith("stage stats cannot recover within 0.4 s: it needs 0.5 s.")
    assert said.endswith(
        '(every=fk.RecoverWithin("1s") can be met; or give the stage more tasks, so that each has less)'
    )


def test_an_attempt_to_copy_that_failed_leaves_its_steps_to_be_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand = UnderLoad(tmp_path, monkeypatch, within=1.3)
    stand.away = DiskError("files were deleted meanwhile")
    stand.run(4.5)
    assert stand.versions
    assert stand.known.growth.behind.parts == stand.steps  # none of them is in a copy
    stand.away = None
    stand.run(3.0)
    assert stand.known.growth.behind.parts < stand.steps - 40
    assert stand.copies.versions()
    stand.close()
