"""Who goes back to what after a failure, what is replayed, and how long that takes.

    failed task      goes back to f(p), the greatest consistent frontier (`falkirk.checkpoint.frontiers`), and
                     begins with the newest state that is left of it
    other task       stays at ⊤ unless the choice of frontiers takes it back, too

Where every edge is logged, D̄ = ∅, and no message that a committed step has sent comes again in another form. So the choice
leaves all other tasks at ⊤. This is computed here and not assumed: with one edge that is not logged, or a log that has a gap,
the same computation names the tasks that must go back.

The time of a step of task p on its edge e is (e, step), and the time of the step itself is (p, step).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Literal, NamedTuple

from falkirk.checkpoint.frontiers import FOREVER, Checkpoint, Edge, Frontier, Graph, Sequences, choose
from falkirk.checkpoint.frontiers.projections import Recorded
from falkirk.checkpoint.planning.rates import NOTHING, Cost, Rates, Replay, Seconds

SLOTS = 4
"""Tasks that recover at a time in one worker."""

NONE = Frontier.nothing()
ALL = Frontier.everything()


class Kept(NamedTuple):
    """A state that a task can begin with."""

    where: Literal["local", "copied", "nothing"]
    """The store on its host's disk, a version in the checkpoint store, or an empty store."""
    step: int
    """−1: before all steps."""
    replay: Replay = NOTHING
    """What rolls it forward to the task's last step."""
    size: int = 0
    """Bytes that must be fetched."""
    on: str = ""
    """The host on whose disk it is; "": all hosts reach it."""
    log: tuple[int, int] | None = None
    """The offsets of the changelog that are replayed; None: recorded steps are, or nothing."""


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """What is known of a task."""

    task: str
    regime: str
    last: int
    """Its last committed step; −1: none."""
    kept: Sequence[Kept] = ()
    rates: Rates = Rates()
    presumed: Cost = Cost(0.0, 0.0)
    """What its regime presumes of a replay, until one is measured."""
    order: int = 0
    """Of tasks that are taken over together, the least recover first."""
    rolls: bool = True
    """Whether its log leads from each state that is kept to its last step. If not, a task goes back to that state."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A failure."""

    tasks: frozenset[str]
    """The tasks whose worker has ended."""
    host: str = ""
    """The host whose disk is gone with it; "": no disk is."""


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """How one task recovers."""

    task: str
    regime: str
    back_to: int
    """The step that it continues after; −1: its beginning."""
    kept: Kept | None
    """What it begins with; None: nothing that is left of it, and its logs, lead to its last step."""
    seconds: Seconds = Seconds()
    ends: float = 0.0
    """Seconds until it runs, after its take-over began, with the waiting for others."""
    unmeasured: Sequence[str] = ()
    """The parts of `seconds` that are presumed, as none was measured yet."""


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """How an app recovers from a failure."""

    tasks: Sequence[TaskPlan]
    """Of the tasks that have failed, in the order in which they run again; those that cannot come last."""
    also: Mapping[str, int]
    """Other tasks that must go back, and to which step; −1: their beginning."""
    stay: int
    """How many tasks are not touched."""

    @property
    def seconds(self) -> float:
        """Until all that can run again do, after the failure was noticed."""
        return max((task.ends for task in self.tasks if task.kept is not None), default=0.0)

    @property
    def stuck(self) -> list[str]:
        """The tasks that cannot run again."""
        return [task.task for task in self.tasks if task.kept is None]


Sends = tuple[str, str, bool]
"""An edge: the task that sends, the task that receives, and whether what is sent is logged."""


def plan(
    facts: Sequence[TaskFacts], sends: Collection[Sends], lost: Lost, takers: int = 1, slots: int = SLOTS
) -> RecoveryPlan:
    """The recovery of the tasks in `lost`, by so many workers. Raises ValueError if one of them is not among the facts.

    >>> copied = Kept("copied", 70, Replay(1, 12_000), size=5_000_000, log=(300, 12_300))
    >>> stats = TaskFacts("stats/0", "eager", 95, [Kept("local", 95, on="a"), copied], presumed=Cost(0.02, 0.000_01))
    >>> bids = TaskFacts("bids/0", "eager", 90, [Kept("nothing", -1)])
    >>> found = plan([bids, stats], [("bids/0", "stats/0", True)], Lost(frozenset(["stats/0"]), host="a"))
    >>> [(t.task, t.back_to, t.kept.where, t.seconds) for t in found.tasks]
    [('stats/0', 95, 'copied', Seconds(name=0.3, open=0.3, fetch=0.15000000000000002, replay=0.14))]
    >>> found.also, found.stay
    ({}, 1)
    """
    known = {fact.task: fact for fact in facts}
    if unknown := sorted(lost.tasks - known.keys()):
        raise ValueError(f"nothing is known of {', '.join(unknown)}")
    left = {task: [k for k in known[task].kept if not lost.host or k.on != lost.host] for task in lost.tasks}
    frontiers = _choice(facts, sends, left)
    failed = sorted((task for task in known if task in lost.tasks), key=lambda task: known[task].order)
    plans = [_of_task(known[task], left[task], frontiers[task]) for task in failed]
    going = [p for p in plans if p.kept is not None]
    ended = {p.task: p for p in _schedule(going, max(1, takers), slots)}
    also = {
        fact.task: _step_of(fact, frontiers[fact.task])
        for fact in facts
        if fact.task not in lost.tasks and not frontiers[fact.task].whole
    }
    return RecoveryPlan(
        [*sorted(ended.values(), key=lambda p: p.ends), *(p for p in plans if p.kept is None)],
        also,
        len(facts) - len(failed) - len(also),
    )


def _choice(
    facts: Sequence[TaskFacts], sends: Collection[Sends], left: Mapping[str, Sequence[Kept]]
) -> Mapping[str, Frontier]:
    """f(p) of each task: the greatest consistent choice."""
    known = {fact.task: fact for fact in facts}
    into: dict[str, list[str]] = {fact.task: [] for fact in facts}
    for src, dst, _ in sends:
        into[dst].append(src)
    edges = [Edge(_edge(src, dst), src, dst, _fixed(known[src], dst, into), logged) for src, dst, logged in sends]
    available = {}
    for fact in facts:
        # A reader sees committed steps only: its sender's last one is the most that it has read.
        read = {_edge(src, fact.task): _below(_edge(src, fact.task), known[src].last) for src in into[fact.task]}
        points = [NONE, *_points(fact, left.get(fact.task, fact.kept), into)]
        if fact.task not in left:
            points.append(ALL)
        # Sequence numbers have no notifications.
        available[fact.task] = [Checkpoint(f, NONE, {} if f.empty else read) for f in dict.fromkeys(points)]
    return choose(Graph(known, edges), available).frontiers


def _points(fact: TaskFacts, kept: Sequence[Kept], into: Mapping[str, Sequence[str]]) -> Iterator[Frontier]:
    """What a task can go back to, in ascending order: states that are kept, and its last step if a log leads there."""
    for step in sorted({k.step for k in kept if 0 <= k.step < fact.last}):
        yield _below(fact.task, step)
    if kept and (fact.rolls or any(k.step == fact.last for k in kept)):
        yield _last(fact, into)


def _last(fact: TaskFacts, into: Mapping[str, Sequence[str]]) -> Frontier:
    """All that it had done at its last step: its own steps, and all that it may have read."""
    read = [(_edge(src, fact.task), FOREVER) for src in into[fact.task]]
    own = [(fact.task, fact.last)] if fact.last >= 0 else []
    return Frontier.below(Sequences(), [*own, *read])


def _fixed(sender: TaskFacts, dst: str, into: Mapping[str, Sequence[str]]) -> Recorded:
    """φ of an edge: the messages of a sender's steps up to n are those of times up to (edge, n)."""
    edge = _edge(sender.task, dst)
    steps = sorted({k.step for k in sender.kept if 0 <= k.step < sender.last})
    known = [(_below(sender.task, step), _below(edge, step)) for step in steps]
    return Recorded([*known, (_last(sender, into), _below(edge, sender.last))])


def _edge(src: str, dst: str) -> str:
    return f"{src} → {dst}"


def _below(what: str, step: int) -> Frontier:
    return Frontier.below(Sequences(), [(what, step)]) if step >= 0 else NONE


def _step_of(fact: TaskFacts, chosen: Frontier) -> int:
    """The step that a frontier of the task ends with."""
    steps = [number for what, number in chosen.times if what == fact.task and isinstance(number, int)]
    return fact.last if chosen.whole else max(steps, default=-1)


def _of_task(fact: TaskFacts, left: Sequence[Kept], chosen: Frontier) -> TaskPlan:
    back_to = _step_of(fact, chosen)
    usable = [k for k in left if k.step <= back_to]
    if not usable or (back_to < fact.last and fact.rolls):
        return TaskPlan(fact.task, fact.regime, back_to, None)
    kept = max(usable, key=lambda k: (k.step, -k.size))
    replay = kept.replay if back_to == fact.last else NOTHING
    seconds = fact.rates.expect(kept.size, replay, fact.presumed)
    return TaskPlan(
        fact.task, fact.regime, back_to, kept, seconds, unmeasured=fact.rates.unmeasured(kept.size, replay)
    )  # fmt: skip


def _schedule(tasks: Sequence[TaskPlan], takers: int, slots: int) -> Iterator[TaskPlan]:
    """When each task runs again: dealt to the workers in turn, of which each recovers some tasks at a time."""
    for taker in range(takers):
        free = [0.0] * slots
        for task in tasks[taker::takers]:
            begins = max(heappop(free), task.seconds.name)
            ends = begins + task.seconds.total - task.seconds.name
            heappush(free, ends)
            yield TaskPlan(
                task.task, task.regime, task.back_to, task.kept, task.seconds, ends, task.unmeasured
            )  # fmt: skip
