"""The group's members: tasks that a member was giving up when it died are somebody's in the end."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tests.faults.faults import Fault, Frame, Line
from tests.faults.frames import Api
from tests.faults.proxy import Proxy
from tests.waiting import PATIENCE_S

from falkirk.connectors.embedded import EmbeddedKafka
from falkirk.connectors.kafka.admin.members import Group, Member
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.group import group as group_module
from falkirk.connectors.kafka.group import orphans
from falkirk.connectors.kafka.group.group import FENCES, Membership
from falkirk.connectors.kafka.group.orphans import Orphans, leaver
from falkirk.errors import FalkirkError, IdentityError, UnreachableError

TASKS = 4

DYING = """
import os, signal, sys, time
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.group.group import Membership

brokers, group = sys.argv[1:]
membership = Membership(
    Cluster(brokers), group=group, instance="a", topic=group, session_timeout_ms=60_000,
    on_assigned=lambda tasks: print(len(tasks), flush=True),
    on_revoked=lambda tasks: os.kill(os.getpid(), signal.SIGKILL),
    on_lost=lambda tasks: None,
)
membership.join()
while True:
    membership.poll()
    time.sleep(0.01)
"""
"""Member a, which is killed when it has been told to give tasks up."""


UNHEARD = """
import sys, time
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.group.group import Membership

brokers, group = sys.argv[1:]
heard = []
for _ in range(30):
    membership = Membership(
        Cluster(brokers), group=group, instance="a", topic=group, session_timeout_ms=60_000,
        on_assigned=heard.extend, on_revoked=heard.extend, on_lost=heard.extend,
    )
    membership.join()
    time.sleep(0.2)
    membership.close()
print(len(heard))
"""
"""Member a, over and over, which dies before it has heard what it is to own."""


class One:
    """A member of the group, what it owns, and its eye on the others."""

    def __init__(self, brokers: str, group: str, instance: str, session_s: float = 60.0) -> None:
        self.owned: set[int] = set()
        self.membership = Membership(
            Cluster(brokers),
            group=group,
            instance=instance,
            topic=group,
            session_timeout_ms=round(session_s * 1000),
            on_assigned=self.owned.update,
            on_revoked=self.owned.difference_update,
            on_lost=self.owned.difference_update,
        )
        self.orphans = Orphans(Topics(Cluster(brokers)), self.membership, TASKS)
        self.membership.join()


def until(done: Callable[[], bool], *turns: Callable[[], None], seconds: float = PATIENCE_S) -> bool:
    """Take turns until it is so, or time is up; say whether it is."""
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        for turn in turns:
            turn()
        time.sleep(0.01)
    return done()


@pytest.fixture
def finally_() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.slow
@pytest.mark.kafka
def test_tasks_that_a_dead_member_was_giving_up_find_an_owner(
    kafka: str, topic_prefix: str, finally_: ExitStack
) -> None:
    group = f"{topic_prefix}steps"
    Topics(Cluster(kafka)).create(group, TASKS, 1, {})
    dying = subprocess.Popen([sys.executable, "-c", DYING, kafka, group], stdout=subprocess.PIPE)
    finally_.callback(dying.kill)
    assert dying.stdout is not None
    assert int(dying.stdout.readline()) == TASKS

    b = One(kafka, group, "b")
    finally_.callback(b.membership.close)
    assert until(lambda: dying.poll() is not None, b.membership.poll), "a was not told to give up anything"
    a = One(kafka, group, "a")
    finally_.callback(a.membership.close)
    polls = a.membership.poll, b.membership.poll

    assert until(lambda: len(a.owned) == TASKS // 2, *polls), "a has not come back to what it was to keep"
    assert not until(lambda: bool(b.owned), *polls, seconds=3.0), "the group needs no watching any more"
    assert until(lambda: len(a.owned | b.owned) == TASKS, *polls, a.orphans.tick, b.orphans.tick)
    assert not a.owned & b.owned


@pytest.mark.slow
@pytest.mark.kafka
def test_a_member_that_leaves_while_it_joins_has_left(kafka: str, topic_prefix: str, finally_: ExitStack) -> None:
    group, topics = f"{topic_prefix}steps", Topics(Cluster(kafka))
    topics.create(group, TASKS, 1, {})
    a = One(kafka, group, "a")
    finally_.callback(a.membership.close)
    assert until(lambda: len(a.owned) == TASKS, a.membership.poll)
    b = One(kafka, group, "b", session_s=4 * PATIENCE_S)
    # It is asked for at once, and answered when a has heard of it by a heartbeat.
    assert until(lambda: len(topics.group(group, 5.0).members) == 2)
    b.membership.leave()
    # Well before its session would end.
    assert until(lambda: set(topics.group(group, 5.0).members) == {"a"}, a.membership.poll)
    assert until(lambda: len(a.owned) == TASKS, a.membership.poll)


@pytest.mark.slow
@pytest.mark.kafka
def test_a_member_that_leaves_has_left_whatever_it_was_about_to_hear(kafka: str, topic_prefix: str) -> None:
    """Its client asks to leave once all is given up. If it is closed before, it never does."""
    topics = Topics(Cluster(kafka))
    for n in range(8):
        group = f"{topic_prefix}steps-{n}"
        topics.create(group, TASKS, 1, {})
        a = One(kafka, group, "a", session_s=4 * PATIENCE_S)
        if n % 2:
            assert until(lambda one=a: len(one.owned) == TASKS, a.membership.poll)
        else:  # the group has answered, and nobody has heard it yet
            assert until(lambda one=a: one.membership._consumer.memberid(), a.membership.poll)
        a.membership.leave()
        assert until(lambda name=group: not topics.group(name, 5.0).members), n


@pytest.mark.slow
@pytest.mark.kafka
def test_a_member_that_is_taken_for_its_own_rival_joins_again(
    kafka: str, topic_prefix: str, finally_: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    """A join that is on its way when its connection ends is sent again; the group may get the first one last."""
    group = f"{topic_prefix}steps"
    Topics(Cluster(kafka)).create(group, TASKS, 1, {})
    with Proxy(kafka) as proxy:
        proxy.add(Fault(Frame.HOLD, Line.RESET, seconds=3.0), Api.JOIN_GROUP)
        a = One(proxy.address, group, "a")
        finally_.callback(a.membership.close)
        assert until(lambda: len(a.owned) == TASKS, a.membership.poll)
        with caplog.at_level(logging.WARNING, "falkirk"):
            assert until(lambda: "joining again" in caplog.text, a.membership.poll)
        assert until(lambda: len(a.owned) == TASKS, a.membership.poll)
        assert not until(lambda: not a.owned, a.membership.poll, seconds=3.0)


@pytest.mark.slow
@pytest.mark.kafka
def test_a_member_with_a_rival_joins_again_and_then_ends(
    kafka: str, topic_prefix: str, finally_: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_module, "FENCE_WINDOW_S", PATIENCE_S)
    group = f"{topic_prefix}steps"
    Topics(Cluster(kafka)).create(group, TASKS, 1, {})
    a = One(kafka, group, "a")
    finally_.callback(a.membership.close)

    def fenced() -> None:
        assert until(lambda: len(a.owned) == TASKS, a.membership.poll)
        rival = One(kafka, group, "a")
        assert until(lambda: len(rival.owned) == TASKS, rival.membership.poll)
        rival.membership.close()
        assert until(lambda: not a.owned, a.membership.poll)

    for _ in range(FENCES - 1):
        fenced()
    with pytest.raises(IdentityError, match="another process runs under this worker's identity, a"):
        fenced()


@pytest.mark.slow
@pytest.mark.kafka
def test_a_member_that_dies_before_it_has_heard_of_its_tasks_hears_nothing_any_more(
    kafka: str, topic_prefix: str
) -> None:
    """Nor does it wait for ever: what does, does so where no signal reaches it, so it is a process of its own."""
    group = f"{topic_prefix}steps"
    Topics(Cluster(kafka)).create(group, TASKS, 1, {})
    command = [sys.executable, "-c", UNHEARD, kafka, group]
    assert subprocess.run(command, stdout=subprocess.PIPE, timeout=PATIENCE_S, check=True).stdout == b"0\n"


@pytest.mark.kafka
@pytest.mark.slow
def test_the_group_is_seen_again_after_a_restart_of_the_broker(
    embedded: Callable[..., EmbeddedKafka], finally_: ExitStack
) -> None:
    broker = embedded()
    topics = Topics(Cluster(broker.start()))
    topics.create("steps", TASKS, 1, {})
    a = One(topics.brokers, "steps", "a")
    finally_.callback(a.membership.close)
    whole = Group(True, {"a": Member("127.0.0.1", (0, 1, 2, 3))})

    def seen() -> Group | None:
        try:
            return topics.ask_group("steps", 4.0).result()
        except FalkirkError:
            return None

    assert until(lambda: seen() == whole, a.membership.poll)
    broker.kill()
    assert not until(lambda: seen() is not None, seconds=1.0)
    broker.start()
    assert until(lambda: seen() == whole, a.membership.poll)


def group(*tasks: tuple[int, ...], stable: bool = True) -> Group:
    """Members a, b, c … with their tasks."""
    return Group(stable, {chr(ord("a") + i): Member("host", partitions) for i, partitions in enumerate(tasks)})


@pytest.mark.parametrize(
    ("before", "now", "who"),
    [
        (group((0, 1), ()), group((0, 1), ()), "b"),
        (group((), (0, 1)), group((), (0, 1)), "a"),
        (group((0,), (1,), (2,)), group((0,), (1,), (2,)), "a"),
        (group((0, 1)), group((0, 1)), "a"),
        (group((0, 1), (2, 3)), group((0, 1), (2, 3)), None),
        (None, group((0, 1), ()), None),
        (group((0, 1, 2, 3)), group((0, 1), ()), None),
        (group((0, 1), (2,)), group((0, 1), ()), None),
        (group((), (), stable=False), group((), (), stable=False), None),
        (group(), group(), None),
    ],
)
def test_the_member_with_the_fewest_tasks_joins_anew_where_two_looks_lack_an_owner(
    before: Group | None, now: Group, who: str | None
) -> None:
    assert leaver(before, now, TASKS) == who


class Told:
    """Stands for `Topics` and for member b: answers what it is told to; told None, it has not answered yet."""

    group = "app"

    def __init__(self, instance: str = "b") -> None:
        self.instance = instance
        self.answer: Group | FalkirkError | None = group((0, 1), ())
        self.asked = self.rejoined = 0
        self.rebalance = object()

    def metadata(self) -> object:
        return self.rebalance

    def ask_group(self, name: str, timeout: float) -> Told:
        assert name == self.group
        self.asked += 1
        return self

    def done(self) -> bool:
        return self.answer is not None

    def result(self) -> Group:
        if isinstance(self.answer, FalkirkError):
            raise self.answer
        assert self.answer is not None
        return self.answer

    def rejoin(self) -> None:
        self.rejoined += 1


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    for pause in ("EVERY", "TIMEOUT"):
        monkeypatch.setattr(orphans, pause, 0.0)
    return Told()


def watch(told: Told) -> Orphans:
    return Orphans(told, told, TASKS)  # type: ignore[arg-type]


def look(over: Orphans) -> None:
    """Ask, and take the answer in."""
    over.tick()
    over.tick()


def test_a_member_joins_anew_once_and_then_looks_twice_again(told: Told) -> None:
    over = watch(told)
    rejoined = []
    for _ in range(5):
        look(over)
        rejoined.append(told.rejoined)
    assert rejoined == [0, 1, 1, 2, 2]


def test_a_look_that_fails_is_none_and_no_answer_is_waited_for(told: Told) -> None:
    over = watch(told)
    gap = told.answer
    look(over)
    told.answer = UnreachableError("no broker answers: timed out")
    look(over)
    told.answer = gap
    look(over)
    assert told.rejoined == 0
    told.answer, told.asked = None, 0
    for _ in range(5):
        over.tick()
    assert told.asked == 1


def test_an_answer_from_before_a_rebalance_does_not_put_off_the_look_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(orphans, "time", clock)
    told = Told("b")
    over = watch(told)
    told.answer = None
    clock.now += 2 * orphans.EVERY
    over.tick()
    assert told.asked == 1
    told.answer, told.rebalance = group((0,), (1, 2)), object()  # by this answer, a watches
    for _ in range(3):
        over.tick()
        clock.now += 2 * orphans.EVERY
    assert told.asked == 2


class Clock:
    """Stands for `time`."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


def test_the_cost_of_looking_does_not_grow_with_the_members(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(orphans, "time", clock)
    members = [Told(chr(ord("a") + i)) for i in range(10)]
    watches = [watch(member) for member in members]

    def pass_time(seconds: int, now: Group) -> dict[str, int]:
        for member in members:
            member.answer, member.asked = now, 0
        for _ in range(10 * seconds):
            clock.now += 0.1
            for over in watches:
                over.tick()
        return {member.instance: member.asked for member in members}

    asked = pass_time(120, group((0, 1), *[(i,) for i in range(2, 11)]))
    assert asked.pop("b") >= 80
    assert max(asked.values()) <= 1 + 120 / (0.75 * orphans.RARELY)
    for member in members:
        member.rebalance = object()
    asked = pass_time(20, group((0,), (1, 2), *[(i,) for i in range(3, 11)]))
    assert asked.pop("a") >= 13
    assert set(asked.values()) == {1}  # each, as there was a rebalance
