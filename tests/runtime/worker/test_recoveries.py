"""Several tasks recover at a time, and the group takes one away: nothing waits for another, and what was taken never runs."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from falkirk.checkpoint.ids import Millis, Nonce, Offset, OwnerId, Step, TaskId, TopicPartition
from falkirk.checkpoint.planning import Replay, Seconds
from falkirk.checkpoint.ports import LogRecord, Ranges, Read, Writes
from falkirk.checkpoint.records import Named, StepRecord, TaskRecord, decode, encode
from falkirk.checkpoint.regimes import Eager
from falkirk.checkpoint.tasks import Owned, Phase, Task
from falkirk.checkpoint.worker.core import WorkerCore
from falkirk.errors import StateError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.observe import timed
from falkirk.runtime.observe.traces import SILENT
from falkirk.runtime.worker import takeovers
from falkirk.runtime.worker.committer import Committer
from falkirk.runtime.worker.domain import CommitDomain
from falkirk.runtime.worker.performer import Performer
from falkirk.runtime.worker.stores import RECOVERIES, Fetched
from falkirk.runtime.worker.takeovers import TakeOvers
from falkirk.runtime.worker.threads import ConcurrencyLimit
from falkirk.runtime.worker.upkeep.rates import RateBook
from falkirk.state.memory import MemoryDisk, MemoryStore
from falkirk.state.store import Changes, GoOn, Identity, Store

CHUNKS = 50
"""Of each changelog."""
HANGS = 30.0


def until(what: Callable[[], bool]) -> None:
    """Wait for something that another thread does."""
    deadline = time.monotonic() + HANGS
    while not what():
        assert time.monotonic() < deadline, "it hangs"
        time.sleep(0.001)


class OneWorkersLog:
    """Steps partitions that this worker alone writes to, and changelogs whose chunks come when they are let."""

    owner = OwnerId("w0")

    def __init__(self) -> None:
        self.steps: dict[int, list[TaskRecord]] = {}
        self.open: list[Writes] = []
        self.let: dict[int, threading.Semaphore] = {}
        self.reading: set[int] = set()
        self.troubles: dict[int, Exception] = {}
        self.sizes: dict[int, int] = {}
        """Of the changelogs that do not have CHUNKS."""
        self.spend: Callable[[float], None] = lambda seconds: None
        """What a request takes."""

    def records(self, p: TopicPartition) -> list[TaskRecord]:
        first = StepRecord("s", Step(0), Nonce("before"), self.owner, Millis(1), (), (), "")
        return self.steps.setdefault(p.partition, [first])

    async def renew(self) -> None:
        pass

    async def begin(self) -> None:
        self.open = []

    async def send(self, writes: Writes) -> None:
        self.open.append(writes)

    async def send_offsets(self, offsets: object) -> None:
        pass

    async def commit(self) -> Mapping[TopicPartition, Offset]:
        self.spend(0.2)
        for w in self.open:
            self.records(TopicPartition("steps", w.partitions[0])).append(decode(w.values[0] or b""))
        return {}

    async def start(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        return dict.fromkeys(partitions, Offset(0))

    async def mark(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        return {
            p: Offset(len(self.records(p)) if p.topic == "steps" else self.sizes.get(p.partition, CHUNKS))
            for p in partitions
        }

    async def read_committed(self, ranges: Ranges) -> Mapping[TopicPartition, Read]:
        found = {p: [LogRecord(Offset(i), None, encode(r)) for i, r in enumerate(self.records(p))] for p in ranges}
        return {p: Read(found[p][start:end], end) for p, (start, end) in ranges.items()}

    read_uncommitted = read_committed

    async def read_changes(self, partition: TopicPartition, start: Offset, end: Offset) -> tuple[Changes, Offset]:
        self.reading.add(partition.partition)
        self.spend(0.1 if start == 0 else 0.004)
        if (may := self.let.get(partition.partition)) is not None:
            assert may.acquire(timeout=HANGS)
        if (trouble := self.troubles.get(partition.partition)) is not None:
            raise trouble
        return {b"%d" % start: b"v"}, Offset(start + 1)


class Opened(MemoryStore):
    """It says when it is closed."""

    on_close: Callable[[], None]

    def close(self) -> None:
        super().close()
        self.on_close()


class OpenOnce:
    """Stores of which each is open once, or none."""

    def __init__(self) -> None:
        self.disks: dict[TaskId, MemoryDisk] = {}
        self.held: set[TaskId] = set()
        self.ahead: set[TaskId] = set()
        """Opened ahead, and not asked for yet."""
        self.recovering = ConcurrencyLimit(RECOVERIES)
        self.fetched: dict[TaskId, Fetched] = {}

    def prefetch(self, task: TaskId, go_on: GoOn) -> None:
        self.ahead.add(task)

    def discard(self, task: TaskId) -> None:
        self.ahead.discard(task)

    async def open(self, task: TaskId, go_on: GoOn) -> Store:
        self.ahead.discard(task)
        if task in self.held:
            raise StateError(f"{task} is open already")
        self.held.add(task)
        store = Opened(Identity("app", str(task), ""), self.disks.setdefault(task, MemoryDisk()))
        store.on_close = lambda: self.held.discard(task)
        return store


class Stand:
    """As much of a worker with so many tasks as takes them over. Its main thread is the test's."""

    def __init__(self, tasks: int) -> None:
        self.log, self.stores, self.rates = OneWorkersLog(), OpenOnce(), RateBook()
        self.committer = Committer(self.log, "host", lambda: None)  # type: ignore[arg-type]
        ids = [TaskId("s", p) for p in range(tasks)]
        stage = SimpleNamespace(circuit=lambda partition, layout: SimpleNamespace())
        bound = [
            SimpleNamespace(
                task=Task(i, TopicPartition("steps", p), Eager((TopicPartition("changes", p),))), stage=stage
            )
            for p, i in enumerate(ids)
        ]
        app: Any = SimpleNamespace(tasks=bound, layout=None)
        settings = Settings("127.0.0.1:1", "")
        self.take_overs = TakeOvers(app, settings, self.committer, self.stores, SILENT, self.rates)  # type: ignore[arg-type]
        self.running: list[int] = []
        tasks_that_run: Any = SimpleNamespace(start=self.start, drop=lambda owned: None)
        self.tasks, self.core = [b.task for b in bound], WorkerCore(SILENT.owned)
        self.performer = Performer(self.core, self.committer, self.take_overs, tasks_that_run, lambda *_: None, SILENT)

    def start(self, owned: Owned, _: object) -> None:
        self.running.append(owned.task.steps.partition)

    def assign(self, *tasks: int) -> None:
        self.core.assign(self.tasks[t] for t in tasks)
        self.performer.perform()

    def revoke(self, task: int) -> None:
        """As the group does: it waits for this."""
        self.core.revoke([task])
        while self.performer.departing:
            self.performer.perform()
            self.performer.wait()

    def hold(self, task: int) -> None:
        """Its changelog comes chunk by chunk, as it is let."""
        self.log.let[task] = threading.Semaphore(0)

    def turn(self) -> None:
        """What a worker's loop does."""
        self.performer.perform()

    def until(self, what: Callable[[], bool]) -> None:
        """Turn until then."""

        def turned() -> bool:
            self.turn()
            return what()

        until(turned)

    def owned(self, task: int) -> Owned:
        return self.core.owned[task]

    def close(self) -> None:
        """The worker has left."""
        of_it: Any = SimpleNamespace(
            committer=self.committer,
            core=self.core,
            _running=SimpleNamespace(drop=lambda owned: None),
            _shared=SimpleNamespace(stores=self.stores),
            _threads=None,
        )
        CommitDomain.close(of_it)


@contextmanager
def stand(tasks: int) -> Iterator[Stand]:
    one = Stand(tasks)
    try:
        yield one
    finally:
        for held in one.log.let.values():
            held.release(10 * CHUNKS)
        one.committer.close()


def test_giving_a_task_up_waits_for_no_recovery() -> None:
    with stand(3) as s:
        s.hold(0)
        s.hold(1)
        s.assign(0, 1, 2)
        s.until(lambda: s.running == [2] and {0, 1} <= s.log.reading)
        zero, one = s.owned(0), s.owned(1)
        s.revoke(1)  # returns, though neither of them can go on
        s.log.let[0].release(CHUNKS)
        s.until(lambda: s.running == [2, 0])
        assert zero.phase is Phase.RUNNING
        s.log.let[1].release()  # a chunk: to where it sees that it was given up
        until(lambda: one.phase is Phase.IDLE)
        assert one.store is None
        assert s.stores.held == {TaskId("s", 0), TaskId("s", 2)}
        s.turn()
        assert s.running == [2, 0]


def test_a_task_that_comes_back_is_taken_over_when_its_store_is_closed_and_its_wait_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(takeovers, "UNUSUAL_S", 0.0)
    with stand(1) as s:
        s.hold(0)
        s.assign(0)
        s.until(lambda: 0 in s.log.reading)
        s.revoke(0)
        s.assign(0)
        assert s.core.owned == {}
        assert s.take_overs.waits() == "an earlier take-over of s/0 to end, for 0 s"
        assert sum(isinstance(r, Named) for r in s.log.steps[0]) == 1
        s.log.let[0].release(1 + CHUNKS)
        s.until(lambda: s.running == [0])
        assert s.take_overs.waits() == ""
        assert sum(isinstance(r, Named) for r in s.log.steps[0]) == 2


def test_a_task_that_is_given_up_when_it_is_rolled_already_does_not_run() -> None:
    with stand(1) as s:
        s.assign(0)
        owned = s.owned(0)
        s.until(lambda: owned.phase is not Phase.NAMING)
        until(lambda: owned.phase is Phase.ROLLED)
        s.revoke(0)
        s.until(lambda: owned.phase is Phase.IDLE)
        assert s.running == []
        assert s.stores.held == set()


def test_a_task_that_is_given_up_while_it_is_named_is_not_recovered() -> None:
    with stand(1) as s:
        s.assign(0)
        owned = s.owned(0)
        s.revoke(0)
        s.until(lambda: s.core.quiet)
        assert owned.phase is Phase.IDLE
        assert s.log.reading == set()


def test_a_worker_that_ends_before_its_recoveries_begin_leaves_no_store_open() -> None:
    """Another may follow it in the same process, and would find the store in use."""
    with stand(2) as s:
        fencing, go, start = threading.Event(), threading.Event(), s.log.start

        async def starts(partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Offset]:
            fencing.set()
            assert go.wait(HANGS)
            return await start(partitions)

        s.log.start = starts  # type: ignore[method-assign]
        s.assign(0, 1)
        s.until(fencing.is_set)
        given_up = [s.owned(0), s.owned(1)]
        assert len(s.stores.ahead) == 2
        s.revoke(0)
        s.revoke(1)
        ending = threading.Thread(target=s.committer.close)
        ending.start()
        until(lambda: s.committer._recoveries._shutdown)
        go.set()
        ending.join(HANGS)
        assert [owned.phase for owned in given_up] == [Phase.IDLE] * 2
        assert s.stores.ahead == set()


def test_a_worker_that_ends_closes_the_store_of_a_recovery_that_has_ended_since() -> None:
    with stand(1) as s:
        s.hold(0)
        s.assign(0)
        s.log.let[0].release(CHUNKS - 1)
        s.until(lambda: s.owned(0).rolled[0] == CHUNKS - 1)
        owned = s.owned(0)
        s.revoke(0)  # it is past the last place where it would see that
        s.log.let[0].release()
        until(lambda: owned.phase is Phase.ROLLED)
        s.close()
        assert owned.phase is Phase.IDLE
        assert s.stores.held == set()


def test_several_tasks_recover_at_a_time_but_not_all() -> None:
    tasks = range(RECOVERIES + 2)
    with stand(len(tasks)) as s:
        for task in tasks:
            s.hold(task)
        s.assign(*tasks)
        s.until(lambda: len(s.log.reading) == RECOVERIES)
        time.sleep(0.05)
        assert len(s.log.reading) == RECOVERIES, "more of them at a time than memory is meant for"
        for task in tasks:
            s.log.let[task].release(CHUNKS)
        s.until(lambda: sorted(s.running) == list(tasks))


@pytest.mark.parametrize("given_up", [False, True])
def test_trouble_of_a_recovery_ends_the_worker_unless_the_task_was_given_up(given_up: bool) -> None:
    """Its next owner has the same trouble, or none."""
    with stand(1) as s:
        s.hold(0)
        s.log.troubles[0] = StateError("damaged")
        s.assign(0)
        s.until(lambda: 0 in s.log.reading)
        if given_up:
            s.revoke(0)
        s.log.let[0].release()
        if given_up:
            s.until(lambda: s.core.quiet)
        else:
            with pytest.raises(StateError, match="damaged"):
                s.until(lambda: False)
        assert s.stores.held == set()


def test_what_a_take_over_took_is_noted_and_predicts_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands, except while the test lets it run: while the changelogs are read."""
    now = [100.0]
    monkeypatch.setattr(timed, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with stand(3) as s:
        for task, seconds in ((0, 5.0), (1, 7.0)):
            s.hold(task)
            s.assign(task)
            s.until(lambda task=task: task in s.log.reading)  # type: ignore[misc]
            now[0] += seconds
            s.log.let[task].release(CHUNKS)
            s.until(lambda task=task: task in s.running)  # type: ignore[misc]
        first, second = s.rates.taken[TaskId("s", 0)], s.rates.taken[TaskId("s", 1)]
        assert (first.took, first.replay) == (Seconds(0.0, 0.0, 0.0, 5.0), Replay(1, CHUNKS))
        assert first.expected.replay == Eager.presumed(1, CHUNKS)
        assert second.took.replay == 7.0
        assert second.expected.replay == pytest.approx(5.0, rel=0.01)

        s.hold(2)
        s.assign(2)
        s.until(lambda: 2 in s.log.reading)
        s.revoke(2)
        s.log.let[2].release(CHUNKS)
        s.until(lambda: not s.take_overs.any)
        s.turn()
        assert TaskId("s", 2) not in s.rates.taken  # it never ran
        assert not s.take_overs._together


def test_a_version_is_fetched_while_the_task_is_named_and_the_rest_counts_as_opening(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owned = SILENT.owned(Task(TaskId("s", 0), TopicPartition("steps", 0), Eager()))
    assert isinstance(owned, timed.Timed)
    moments = [(1.0, Phase.NAMING), (2.0, Phase.FENCING), (4.0, Phase.ROLLING), (11.0, None), (14.0, Phase.ROLLED)]
    for now, phase in [*moments, (14.5, Phase.RUNNING)]:
        monkeypatch.setattr(timed, "time", SimpleNamespace(monotonic=lambda now=now: now))
        assert owned.took(3.0, None) is None
        if phase is None:
            owned.rolls(Replay(1, 10))
        else:
            owned.enter(phase)
    assert owned.took(3.0, (1.5, 9.5)) == Seconds(name=2.0, open=1.5 + 0.5, fetch=8.0, replay=3.0)
    assert owned.took(3.0, None) == Seconds(name=2.0, open=7.0 + 0.5, fetch=0.0, replay=3.0)
    assert owned.replay == Replay(1, 10)


def test_twenty_crashes_take_what_was_predicted_within_thirty_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each finds another changelog: of one chunk to 1,500. A chunk takes 4 ms, the first 100 ms, and to name a task 200 ms,
    each a fifth more or less. Three take-overs before them show it."""
    by, now = random.Random(7), [0.0]

    def spend(seconds: float) -> None:
        now[0] += seconds * by.uniform(0.8, 1.2)

    monkeypatch.setattr(timed, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with stand(23) as s:
        s.log.spend = spend
        for task, size in enumerate([3, 300, 1_500, *(round(1_500 ** by.random()) for _ in range(20))]):
            s.log.sizes[task] = size
            s.assign(task)
            s.until(lambda task=task: task in s.running)  # type: ignore[misc]
        taken = [s.rates.taken[TaskId("s", task)] for task in range(3, 23)]
    assert len({t.replay for t in taken}) > 15
    assert max(t.took.total for t in taken) > 5 * min(t.took.total for t in taken)
    assert not [str(t) for t in taken if abs(t.expected.total / t.took.total - 1) >= 0.3]
