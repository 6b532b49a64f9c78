"""An operator inside a loop.

    X(i)       what flows on an edge at iteration i, as a Z-set           X(i)  = Σ x(j) for j ≤ i
    x(i)       the change from iteration i − 1 to i, before this step     in state, row by row
    dx(i)      how this step changes x(i)                                 what flows between the nodes of a loop

A node turns the dx(i) of its inputs into the dy(i) of its output, iteration by iteration. For a function f of Z-sets:

    Dy(i)  = f(X(i) + Dx(i)) − f(X(i))          with Dx(i) = Σ dx(j) for j ≤ i
    dy(i)  = Dy(i) − Dy(i − 1)

    linear f       dy(i) = f(dx(i))                                                     no state
    join           see `falkirk.stream.operators.loops.joining`
    by key         a key needs work at i only if this step has changed it at some j ≤ i, and dx(i) or x(i) is not 0 there

The iterations where only x(i) is not 0 come from the state of the key: they are `due`. So the work of a step follows its
changes, and the rows that the changed keys have in state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from falkirk.errors import UserCodeError
from falkirk.state.timed import Row
from falkirk.stream.aggregates.bound import NEVER_ADDED
from falkirk.stream.dataflow.operator import TaskContext
from falkirk.stream.dataflow.step import StepRun

ZSet = dict[Row, int]
"""By row: its weight, which is not 0. Equal changes give equal orders."""


class Node(ABC):
    """One operator of a loop in one task."""

    tables: Sequence[str] = ()
    """The names of its tables."""

    def bind(self, task: TaskContext, shard: int, prefix: str) -> None:  # noqa: B027
        """Take the numbers of its tables, which are called `prefix` and their name."""

    def begin(self, run: StepRun, time: int) -> None:  # noqa: B027
        """A step begins. Its rows are dated `time`."""

    @abstractmethod
    def at(self, i: int, changes: Sequence[ZSet]) -> ZSet:
        """dy(i), given the dx(i) of each input. Called for iterations in ascending order, and for each that is due."""

    def due(self) -> Iterable[int]:
        """Iterations to come that need work even without input."""
        return ()

    def end(self) -> None:  # noqa: B027
        """The step ends: write to state what it has changed."""


class Due:
    """The keys that need work at iterations to come."""

    def __init__(self) -> None:
        self._keys: dict[int, dict[Any, None]] = {}

    def add(self, key: Any, after: int, iterations: Iterable[int]) -> None:
        """A key needs work at each of these that is later than `after`."""
        for j in iterations:
            if j > after:
                self._keys.setdefault(j, {})[key] = None

    def take(self, i: int) -> dict[Any, None]:
        """The keys for this iteration."""
        return self._keys.pop(i, {})

    def iterations(self) -> Iterable[int]:
        """All that have keys."""
        return self._keys


def add(total: ZSet, row: Row, weight: int) -> None:
    """Add to a Z-set."""
    weight += total.get(row, 0)
    if weight:
        total[row] = weight
    else:
        total.pop(row, None)


def add_all(total: ZSet, more: ZSet, sign: int = 1) -> ZSet:
    """Add one Z-set, or subtract it."""
    for row, weight in more.items():
        add(total, row, sign * weight)
    return total


def never_added(row: dict[str, Any], where: str) -> UserCodeError:
    """The error for a row with a negative weight."""
    return UserCodeError(f"a row of {row} is retracted, but was never added", where=where, hint=NEVER_ADDED)
