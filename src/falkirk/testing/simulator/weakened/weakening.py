"""What a weakening of the protocol is: a clause that is patched away, and a run that breaks without it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from falkirk.checkpoint.regimes import Eager, Lazy
from falkirk.testing.simulator.explore import Failure, attempt
from falkirk.testing.simulator.plan import Plan
from falkirk.testing.simulator.toy import Toy

ONE = Toy(tasks=1, recovery=Eager, inputs=4)
ONE_LAZY = Toy(tasks=1, recovery=Lazy, inputs=9)
COMMIT, NAME = "committer: sends EndTxn(commit)", "naming: sends EndTxn(commit)"
OFFERED = "committer: sends offsets: done"


class Patch(NamedTuple):
    """What replaces what."""

    target: object
    name: str
    double: object


class Schedule(NamedTuple):
    """A run."""

    toy: Toy
    plan: Plan
    workers: int = 2

    def attempt(self) -> Failure | None:
        """Run it; None if all holds."""
        return attempt(partial(replace, self.toy), self.plan, self.workers)


@dataclass(frozen=True, slots=True)
class Weakening:
    """A removed clause."""

    text: str
    patches: tuple[Patch, ...]
    breaks: Schedule
    """What breaks it."""
    lacks_too: tuple[str, ...] = ()
    """Other clauses that must also be missing: each is a guard by itself."""
