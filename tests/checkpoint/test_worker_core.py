"""The worker's core keeps its invariants, whatever happens in whatever order; and it gets everywhere."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from falkirk.checkpoint import takeover
from falkirk.checkpoint.ids import Nonce, OwnerId, Step, TaskId, TopicPartition
from falkirk.checkpoint.overlay import Overlay
from falkirk.checkpoint.ports import Cause, Why
from falkirk.checkpoint.records import StepRecord
from falkirk.checkpoint.regimes import Lazy
from falkirk.checkpoint.tasks import ClosedStep, InvariantError, Owned, Phase, Task
from falkirk.checkpoint.transaction import Fate
from falkirk.checkpoint.worker.aborts import Aborts
from falkirk.checkpoint.worker.core import WorkerCore
from falkirk.checkpoint.worker.instructions import (
    Admit,
    Commit,
    Drop,
    Instruction,
    Leave,
    Name,
    Recover,
    Release,
    Rewind,
    Start,
    Transaction,
)
from falkirk.state.memory import MemoryStore
from falkirk.state.store import Identity

TASKS = [Task(TaskId("s", p), TopicPartition("steps", p), Lazy()) for p in range(3)]


class Driver:
    """Does what the core says, and checks that it may."""

    def __init__(self, *, first: bool = False) -> None:
        """`first`: a task that is started or rewound stages its first step at once, as one without a step does."""
        self.first = first
        self.core = WorkerCore(aborts=Aborts(itertools.count(step=1_000).__next__))  # nothing waits
        self.open: dict[int, Owned] = {}
        """The ownerships with an open store, or a job that has one."""
        self.running: dict[int, Owned] = {}
        self.left: set[Owned] = set()
        self.recovering: list[Owned] = []
        self.nonces = 0

    def perform(self) -> list[Instruction]:
        todo = self.core.todo()
        assert sum(isinstance(i, Transaction) for i in todo) <= 1, "two transactions"
        for instruction in todo:
            self.do(instruction)
        return todo

    def do(self, instruction: Instruction) -> None:
        match instruction:
            case Name(tasks):
                for owned in tasks:
                    p = owned.task.steps.partition
                    assert p not in self.open, "the store is open already"
                    assert not owned.revoked
                    self.open[p] = owned
                    owned.enter(Phase.NAMING)
                    self.nonces += 1
                    owned.nonce = Nonce(f"n{self.nonces}")
            case Recover(tasks):
                self.recovering += tasks
            case Start(owned):
                assert owned.phase is Phase.RUNNING
                assert not owned.revoked
                self.running[owned.task.steps.partition] = owned
                self.stage_first(owned)
            case Rewind(owned):
                assert not owned.lost
                assert self.running[owned.task.steps.partition] is owned
                self.stage_first(owned)
            case Leave(tasks):
                for owned in tasks:
                    assert self.running.pop(owned.task.steps.partition) is owned
                    self.left.add(owned)
            case Drop(owned):
                self.running.pop(owned.task.steps.partition, None)
                takeover.abandon(owned)
                assert self.open.pop(owned.task.steps.partition) is owned
            case _:
                self.check(instruction)

    def check(self, transaction: Transaction) -> None:
        match transaction:
            case Release(tasks):
                assert set(tasks) <= self.left, "released, and no last version was made"
                for owned in tasks:
                    assert not owned.lost
                    owned.enter(Phase.RELEASING)
            case Commit(steps):
                for step in steps:
                    assert step.owned.phase is Phase.RUNNING
                    assert not step.owned.lost

    def stage_first(self, owned: Owned) -> None:
        if self.first:
            self.stage(owned)

    def stage(self, owned: Owned) -> None:
        record = StepRecord("s", Step(0), owned.nonce, OwnerId("w"), 0, (), (), "")  # type: ignore[arg-type]
        self.core.pipeline.stage(ClosedStep(owned, record, (), Overlay(owned.opened())))

    def end_transaction(self, draw: Any) -> None:
        """It ends as `draw` says: what is asked of it is true in any combination."""
        fates: list[Fate] = []
        match self.core.transaction:
            case Name(tasks):
                named = draw(st.booleans())
                for owned in tasks:
                    owned.enter(Phase.FENCING if named else Phase.IDLE)
            case Admit(tasks):
                for owned in tasks:
                    if draw(st.integers(0, 3)):  # it may have been revoked in the same moment
                        owned.enter(Phase.RUNNING)
            case Commit(steps):
                fates = [draw(st.sampled_from(Fate)) for _ in steps]
                for step, fate in zip(steps, fates, strict=True):
                    step.owned.lost |= fate is Fate.LOST
        if not isinstance(self.core.transaction, Admit) and not draw(st.integers(0, 5)):
            for owned in self.running.values():  # the producer was renewed, and another was named
                owned.lost = True
        self.core.ended(fates)

    def end_recovery(self, owned: Owned, *, found: bool) -> None:
        self.recovering.remove(owned)
        if owned.phase is Phase.FENCING:
            owned.enter(Phase.ROLLING)
            if found:
                owned.store = MemoryStore(Identity("app", str(owned.task.id), ""))
                owned.enter(Phase.ROLLED)
            else:
                owned.enter(Phase.IDLE)
        if owned.phase is Phase.IDLE:
            del self.open[owned.task.steps.partition]
        self.core.recovered(owned)


class Anything(RuleBasedStateMachine):
    """A worker to which everything happens that can."""

    def __init__(self) -> None:
        super().__init__()
        self.driver, self.core = (driver := Driver(first=True)), driver.core

    @initialize(p=st.sets(st.integers(0, 2)))
    def begin(self, p: set[int]) -> None:
        self.core.assign(TASKS[one] for one in sorted(p))
        for _ in range(4):
            run_on(self.driver)

    @precondition(lambda self: not self.core.departing)
    @rule(p=st.integers(0, 2))
    def assign(self, p: int) -> None:
        self.core.assign([TASKS[p]])

    @precondition(lambda self: not self.core.departing)
    @rule(p=st.sets(st.integers(0, 2), min_size=1), clean=st.booleans())
    def revoke(self, p: set[int], clean: bool) -> None:
        self.core.revoke(p, clean=clean)

    @rule()
    def perform(self) -> None:
        self.driver.perform()

    @precondition(lambda self: self.core.transaction is not None)
    @rule(data=st.data())
    def end_transaction(self, data: st.DataObject) -> None:
        self.driver.end_transaction(data.draw)

    @precondition(lambda self: self.driver.recovering)
    @rule(n=st.integers(0, 2), found=st.booleans())
    def end_recovery(self, n: int, found: bool) -> None:
        self.driver.end_recovery(self.driver.recovering[n % len(self.driver.recovering)], found=found)

    @precondition(lambda self: self.driver.running)
    @rule(n=st.integers(0, 2))
    def step(self, n: int) -> None:
        self.driver.perform()  # as in a worker, which does what its core says before it runs a step
        owned = [o for o in self.driver.running.values() if o.task.id not in self.core.pipeline.staged]
        if owned:
            self.driver.stage(owned[n % len(owned)])

    @invariant()
    def nothing_staged_is_of_a_task_that_left(self) -> None:
        for step in self.core.pipeline.staged.values():
            assert self.core.owned.get(step.owned.task.steps.partition) is step.owned

    def teardown(self) -> None:
        """From wherever it is, it gets to where every assigned task runs, and nothing waits."""
        for _ in range(60):
            run_on(self.driver)
        assert self.core.quiet
        assert not any(owned.lost or owned.revoked for owned in self.driver.running.values())
        assert self.driver.running.keys() == self.core.assigned.keys() == self.driver.open.keys()
        assert not self.core.ending()


def run_on(driver: Driver) -> None:
    """A turn in which all goes well."""
    driver.perform()
    if driver.core.transaction is not None:
        settle(driver)
    while driver.recovering:
        driver.end_recovery(driver.recovering[0], found=True)


def settle(driver: Driver) -> None:
    """The transaction under way ends well."""
    match driver.core.transaction:
        case Name(tasks):
            for owned in tasks:
                owned.enter(Phase.FENCING)
        case Admit(tasks):
            for owned in tasks:
                if not owned.revoked:
                    owned.enter(Phase.RUNNING)
    job = driver.core.transaction
    driver.core.ended([Fate.COMMITTED] * len(job.steps) if isinstance(job, Commit) else [])


def admitting(*, first: bool = False) -> tuple[Driver, Owned]:
    """A worker that is about to run a task."""
    driver = Driver(first=first)
    driver.core.assign([TASKS[0]])
    run_on(driver)
    run_on(driver)
    driver.perform()
    [owned] = driver.core.owned.values()
    assert isinstance(driver.core.transaction, Admit)
    return driver, owned


TestAnything = Anything.TestCase
TestAnything.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


def running(*partitions: int) -> Driver:
    """A worker that runs these tasks."""
    driver = Driver()
    driver.core.assign(TASKS[p] for p in partitions)
    for _ in range(4):
        run_on(driver)
    assert driver.running.keys() == set(partitions)
    return driver


def test_tasks_that_leave_commit_make_a_version_and_are_released_in_this_order() -> None:
    driver = running(0, 1)
    for owned in list(driver.running.values()):
        driver.stage(owned)
    driver.core.revoke([0])
    seen: list[str] = []
    while driver.core.departing:
        seen += [type(i).__name__ for i in driver.perform()]
        if driver.core.transaction is not None:
            settle(driver)
    assert seen == ["Commit", "Leave", "Release", "Drop"]
    assert driver.running.keys() == {1}


def test_tasks_that_are_lost_wait_for_the_commit_under_way_and_nothing_more_is_committed() -> None:
    driver = running(0)
    driver.stage(driver.running[0])
    [commit] = driver.perform()
    assert isinstance(commit, Commit)
    driver.stage(driver.running[0])
    driver.core.revoke([0], clean=False)
    assert driver.perform() == []
    driver.core.ended([Fate.COMMITTED])
    assert [type(i) for i in driver.perform()] == [Drop]
    assert not driver.core.departing
    assert not driver.core.pipeline.staged


def test_a_first_step_that_is_aborted_while_its_task_leaves_goes_with_it() -> None:
    driver = running(0)
    owned = driver.running[0]
    driver.stage(owned)
    driver.core.revoke([0])
    driver.perform()
    driver.core.ended([Fate.ABORTED])
    [rewind, leave] = driver.core.todo()
    assert isinstance(rewind, Rewind)
    assert isinstance(leave, Leave)
    driver.stage(owned)  # as a driver does for a task without a step
    driver.do(leave)
    assert [type(i) for i in driver.perform()] == [Release]
    driver.core.ended()
    driver.perform()
    assert not driver.core.pipeline.staged


def test_a_task_that_is_lost_while_its_first_step_is_aborted_stages_no_other() -> None:
    driver = running(0)
    driver.first = True
    driver.stage(driver.running[0])
    driver.perform()
    driver.core.revoke([0], clean=False)
    driver.core.ended([Fate.ABORTED])
    assert [type(i) for i in driver.perform()] == [Drop]
    assert not driver.core.pipeline.staged
    assert driver.perform() == []


def test_a_task_that_is_lost_in_the_moment_of_its_admission_does_not_start() -> None:
    driver, owned = admitting(first=True)
    owned.enter(Phase.RUNNING)  # in the committer's thread
    driver.core.revoke([0], clean=False)
    driver.core.ended()
    assert [type(i) for i in driver.perform()] == [Drop]
    assert not driver.core.pipeline.staged


def test_the_group_is_answered_before_it_takes_more() -> None:
    driver = running(0, 1)
    driver.core.revoke([0])
    with pytest.raises(InvariantError, match="before it was answered"):
        driver.core.revoke([1])


def test_no_transaction_ends_that_was_not_begun() -> None:
    with pytest.raises(InvariantError, match="none is under way"):
        WorkerCore().ended()


def test_tasks_are_not_named_while_they_may_not_be_taken_over() -> None:
    driver = running(0)
    driver.core.assign([TASKS[1]])
    assert driver.core.todo(take_over=False) == []
    assert [type(i) for i in driver.core.todo()] == [Name]


def test_a_step_that_is_aborted_again_waits_unless_its_task_leaves() -> None:
    driver = running(0)
    driver.core.aborts = Aborts(lambda: 7.0)
    for _ in range(2):
        driver.stage(driver.running[0])
        assert [type(i) for i in driver.perform()] == [Commit]
        driver.core.ended([Fate.ABORTED])
        driver.perform()
    driver.stage(driver.running[0])
    assert driver.perform() == []
    driver.core.revoke([0])
    assert [type(i) for i in driver.perform()] == [Commit]


def test_a_name_that_fails_again_waits_while_other_tasks_commit() -> None:
    driver = running(0)
    driver.core.unnamed = Aborts(lambda: 7.0)
    driver.core.assign([TASKS[1]])
    for _ in range(2):
        (name,) = driver.core.todo()
        assert isinstance(name, Name)
        name.tasks[0].failed = Cause(Why.TRANSIENT, "the group goes on")
        driver.core.ended()
        driver.core.todo()
        driver.core.recovered(name.tasks[0])
    assert driver.core.todo() == []
    driver.stage(driver.running[0])
    assert [type(i) for i in driver.perform()] == [Commit]


def test_a_task_that_is_revoked_in_the_moment_of_its_admission_does_not_run() -> None:
    driver, owned = admitting()
    driver.core.revoke([0])
    owned.enter(Phase.RUNNING)  # in the committer's thread
    driver.core.ended()
    assert [type(i) for i in driver.perform()] == [Drop]
    assert not driver.running


def test_a_task_that_is_revoked_in_the_moment_its_recovery_ends_is_not_admitted() -> None:
    driver = Driver()
    driver.core.assign([TASKS[0]])
    run_on(driver)
    driver.perform()
    [owned] = driver.recovering
    driver.core.revoke([0], clean=False)
    driver.end_recovery(owned, found=True)
    assert [type(i) for i in driver.perform()] == [Drop]
    assert driver.perform() == []
    assert driver.core.quiet
