"""What disturbs a run: faults at numbered points, and departures from the usual order of turns.

A run is a function of its plan. A seed only makes up a plan; the plan alone replays the run. A part of it is a plan too,
which makes shrinking possible.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

from falkirk.testing.simulator.points import Order

FOREVER = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """When: `worker` comes to its point number `at` of those whose name holds `on`, counted from 0 over all its lives."""

    worker: int
    at: int = 0
    on: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash(At):
    """The process dies. Of the writes that its stores had not flushed, the first `keep` survive."""

    keep: int = 0
    lost: bool = False
    """The host's disk is lost, too: the process that is started again finds an empty one."""
    travels: bool = False
    """The request it was about to send is in transit, and arrives `late` turns later."""
    late: int = 0
    back_after: int = 12
    """Turns until the process is started again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause(At):
    """The process stops for this many turns, with its background threads; FOREVER: until the others have finished."""

    turns: int = FOREVER
    travels: bool = False
    """The request it was about to send is in transit, and arrives `late` turns later; the answer is not seen."""
    late: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt(At):
    """The request at this point takes another course than usual. Does nothing if there is no request."""

    order: Order = Order.LOSE
    late: int = 0
    """If it is delayed: by this many turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expel(At):
    """The worker's session expires while it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LateJoin(At):
    """A join that the worker sent twice arrives again: the group takes the worker for an older process of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move(At):
    """The group wants to move a task to another worker."""

    task: int
    to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave(At):
    """The worker is asked to end (SIGTERM)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeOut(At):
    """The coordinator times out a transaction of `owner`, if one is open."""

    owner: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Jump(At):
    """The worker's clock goes forward or back by `millis`."""

    millis: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Age(At):
    """Eight days pass, and the cleaner runs over the changelogs before and after: tombstones are gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage(At):
    """No host can reach the checkpoint store for this many turns."""

    turns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage(At):
    """The newest copied version of each task becomes unreadable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Full(At):
    """The worker's disk has no room for this many turns; FOREVER: never again. A worker that stops is started when it has."""

    turns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse(At):
    """For so many turns the brokers refuse each record for this topic."""

    topic: str
    turns: int = FOREVER
    only: bool = False
    """Whether they refuse this worker's alone: it has lost a right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow(At):
    """Each record that the worker writes takes `every` turns on its way, for so many turns from here on. Meanwhile the
    coordinator ends its transactions that last too long."""

    every: int
    turns: int = FOREVER
    quota: bool = False
    """The brokers take records at once, then nothing for as long as these would take; and they say so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover(At):
    """The transaction coordinator moves, and answers NOT_COORDINATOR for so many turns. It loses nothing."""

    turns: int
    decided: bool = False
    """Whether the old one still carries out the request at this point. Its answer is lost, and the client asks again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(At):
    """Every process dies, and the processes started later run other code: this worker's starts `back_after` turns later."""

    new: bool = True
    """Whether it is other code; if not, only the option changes."""
    corrects: bool = True
    """Whether it is started with `--on-divergence correct`."""
    keep: int = 0
    """How many of this worker's unflushed writes survive. All of the others' do."""
    back_after: int = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """At the `at`-th choice of the run, take `choice` instead of the first, if there are so many."""

    at: int
    choice: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Takes:
    """Whatever a worker does at points whose names hold `on` takes so many turns, each time."""

    worker: int
    on: str
    turns: int


Fault = (
    Crash
    | Pause
    | Doubt
    | Expel
    | LateJoin
    | Move
    | Leave
    | TimeOut
    | Jump
    | Age
    | Outage
    | Damage
    | Full
    | Refuse
    | Slow
    | Failover
    | Change
)
Item = Fault | Turn | Takes


def brief(item: Item) -> str:
    """The item as Python code that makes it, without default values.

    >>> brief(Expel(worker=1, at=3))
    'Expel(worker=1, at=3)'
    """
    shown = [
        (f.name, repr(v).replace("1000000", "FOREVER") if not isinstance(v, Order) else str(v))
        for f in fields(item)
        if (v := getattr(item, f.name)) != f.default
    ]
    return f"{type(item).__name__}({', '.join(f'{name}={value}' for name, value in shown)})"


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that makes a run differ from the usual one."""

    items: tuple[Item, ...] = ()
    lazy_broker: bool = False
    """Markers, deliveries and heartbeats come late by default, not at once."""

    @property
    def faults(self) -> list[Fault]:
        """All items except mere turns and durations."""
        return [i for i in self.items if not isinstance(i, Turn | Takes)]

    def only(self, items: Sequence[Item]) -> Plan:
        """The same with other items."""
        return replace(self, items=tuple(items))

    def __str__(self) -> str:
        lines = "".join(f"    {brief(item)},\n" for item in self.items)
        return f"Plan((\n{lines}), lazy_broker={self.lazy_broker})"


@dataclass(slots=True)
class Chooser:
    """Makes the choices of a run: the plan's, or sometimes, with a seed, a random one, which it notes.

    >>> Chooser({1: 2}).choose(3), [Chooser({0: 5}).choose(3)]
    (0, [2])
    """

    turns: dict[int, int] = field(default_factory=dict)
    rng: random.Random | None = None
    rate: float = 0.2
    made: int = 0

    def choose(self, among: int) -> int:
        """A number in 0 ≤ n < among. 0 is the usual choice."""
        at, self.made = self.made, self.made + 1
        if self.rng is not None and among > 1 and self.rng.random() < self.rate:
            self.turns[at] = self.rng.randrange(1, among)
        return self.turns.get(at, 0) % among
