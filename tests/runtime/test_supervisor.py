"""What a supervisor hears before it runs: nothing of it is lost, and its order stays."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from math import inf

import pytest

from falkirk.errors import CrashError, FalkirkError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.messages.events import Line, Started
from falkirk.runtime.messages.protocol import Failed, FromWorker, Ready, Report, TaskReport, Waiting
from falkirk.runtime.processes.supervisor import CRASHES, Child, FromChild, Supervisor

LEAVE = Supervisor._leave
REPORT = Report(0, "app.a-0", 1, [TaskReport("stats/0", "running")], member=True)
FAILED = Failed("the flow cannot be loaded", 2)


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    """With two workers to be, for which there are processes; they say what the test has them say, and nothing at the end."""
    monkeypatch.setattr(Supervisor, "_leave", Supervisor.kill)
    found = Supervisor("app:flow", Settings("127.0.0.1:1", "", workers=2), spare_after=inf)
    found._spares += [idle(), idle()]
    yield found
    found.kill()


def idle() -> Child:
    """A process that does nothing, until its standard input ends."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    return Child(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))


def say(supervisor: Supervisor, *said: tuple[Child, FromWorker | None]) -> None:
    for child, words in said:
        supervisor._events.put(FromChild(child, words))


def test_workers_begin_as_they_are_ready_and_their_reports_are_told_later(supervisor: Supervisor) -> None:
    one, two = supervisor._spares
    say(supervisor, (one, Ready("app")), (one, REPORT), (two, Ready("app")), (two, REPORT))
    assert supervisor.ready() == "app"
    supervisor.begin(lambda: False)
    assert [child.slot for child in (one, two)] == [0, 1]
    told: list[object] = []
    turns = iter([False, False, True])
    supervisor.run(lambda: next(turns), told.append)
    assert told[:4] == [Started(0, one.process.pid), Started(1, two.process.pid), REPORT, REPORT]


@pytest.mark.parametrize("trouble", [FAILED, Waiting(), Ready(""), None])
def test_trouble_before_the_first_is_ready_is_left_to_the_caller(
    supervisor: Supervisor, trouble: FromWorker | None
) -> None:
    one, two = supervisor._spares
    say(supervisor, (one, trouble), (two, Ready("app")))
    assert supervisor.ready() == ""
    assert supervisor._event(0) == FromChild(one, trouble)
    assert supervisor._event(0) == FromChild(two, Ready("app"))


def test_the_first_works_though_the_second_cannot_start(supervisor: Supervisor) -> None:
    one, two = supervisor._spares
    say(supervisor, (one, Ready("app")), (two, FAILED))
    assert supervisor.ready() == "app"
    supervisor.begin(lambda: False)
    assert (one.slot, two.slot) == (0, None)
    told: list[object] = []
    turns = iter([False, True])
    supervisor.run(lambda: next(turns), told.append)
    assert told[0] == Started(0, one.process.pid)
    assert isinstance(told[1], Line)
    assert "retrying in 5 s: the flow cannot be loaded" in told[1].text


@pytest.fixture
def leaving(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    """Two workers and a spare, that end as their supervisor leaves."""
    monkeypatch.setattr(Supervisor, "_leave", LEAVE)
    monkeypatch.setattr(Supervisor, "_spawn", lambda self: idle())
    one, two = supervisor._spares
    say(supervisor, (one, Ready("app")), (two, Ready("app")))
    supervisor.ready()
    supervisor.begin(lambda: False)
    supervisor._spares.append(idle())
    return supervisor


def test_a_worker_without_its_broker_or_a_spare_does_not_spoil_a_clean_end(leaving: Supervisor) -> None:
    one, two = leaving._workers.values()
    [spare] = leaving._spares
    away = Failed("no broker answers", 3, kind="UnreachableError", passing=True)
    say(leaving, (one, away), (spare, FAILED), (one, None), (two, None))
    told: list[object] = []
    leaving.run(lambda: True, told.append)
    lines = [told.text for told in told if isinstance(told, Line)]
    assert [away.what in lines[0], FAILED.what in lines[1], len(lines)] == [True, True, 2]


def test_a_worker_s_own_error_is_the_run_s_while_it_leaves_too(leaving: Supervisor) -> None:
    one, two = leaving._workers.values()
    say(leaving, (one, FAILED), (one, None), (two, None))
    with pytest.raises(FalkirkError, match="the flow cannot be loaded"):
        leaving.run(lambda: True, lambda _: None)


def test_there_is_a_spare_once_all_workers_have_worked_for_long_enough(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Supervisor, "_spawn", lambda self: idle())
    one, two = supervisor._spares
    say(supervisor, (one, Ready("app")), (two, Ready("app")))
    supervisor.ready()
    supervisor.begin(lambda: False)
    supervisor._spare_after = 3_600
    now = time.monotonic()
    since = [((inf, inf), 0), ((now - 7_200, inf), 0), ((now - 7_200, now), 0), ((now - 7_200, now - 3_601), 1)]
    for (one.works, two.works), spares in since:
        supervisor._spawn_missing()
        assert len(supervisor._spares) == spares


def test_spares_that_fail_one_after_another_are_tried_less_and_less_often(
    leaving: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start takes a second of a processor."""
    monkeypatch.setattr(Supervisor, "_spawn", lambda self: idle())
    told: list[object] = []
    leaving._news = told.append

    def fails() -> None:
        leaving._hold_off = 0.0
        leaving._spawn_missing()
        [spare] = leaving._spares
        spare.process.kill()
        say(leaving, (spare, FAILED), (spare, None))
        leaving._turn(0)
        leaving._turn(0)

    leaving._spare_after = 0.0
    for one in leaving._workers.values():
        one.works = 0.0
    for _ in range(6):
        fails()
        assert not leaving._spares, "the next one waits"
    pauses = [told.text.partition(":")[0] for told in told if isinstance(told, Line)]
    assert pauses == [f"a spare cannot start; retrying in {n} s" for n in (5, 10, 20, 40, 60, 60)]

    leaving._hold_off = 0.0
    leaving._spawn_missing()
    [spare] = leaving._spares
    say(leaving, (spare, Ready("app")), (spare, FAILED))
    leaving._turn(0)
    leaving._turn(0)
    assert isinstance(told[-1], Line)
    assert told[-1].text.startswith("a spare cannot start; retrying in 5 s")


@pytest.mark.parametrize(("works", "when"), [(inf, "at their start"), (0.0, "soon after they begin to work")])
def test_workers_that_die_again_and_again_end_the_run_which_says_when_they_died(
    supervisor: Supervisor, works: float, when: str
) -> None:
    dead = [
        Child(subprocess.Popen([sys.executable, "-c", "raise SystemExit(70)"]), works=works) for _ in range(CRASHES)
    ]
    for child in dead[1:]:
        supervisor._ended(child)
    with pytest.raises(CrashError, match=f"workers die {when}"):
        supervisor._ended(dead[0])
