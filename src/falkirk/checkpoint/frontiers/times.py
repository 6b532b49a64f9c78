"""Logical times, and the domains that order them (seed 000, sections 2 and 3.1).

    | domain                         | a time           | t ≤ u                              | used for                     |
    |--------------------------------|------------------|------------------------------------|------------------------------|
    | `Sequences()`                  | (edge, number)   | same edge, number ≤ number         | messages on ordered channels |
    | `Structured(1)`                | (epoch,)         | number ≤ number                    | epochs, steps, event time    |
    | `Structured(2)`                | (epoch, round)   | each part ≤ its counterpart        | rounds of an iteration       |
    | `Structured(2, "lexicographic")` | (epoch, round) | first part that differs is smaller | the same, in a total order   |

Each domain is a lattice below any two times that have a lower bound: ↓t ∩ ↓u = ↓(t ∧ u), or nothing. So an intersection of
frontiers is again given by finitely many times.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

Time: TypeAlias = tuple[str | int, ...]
"""A logical time. Which parts it has, its domain says."""

FOREVER = sys.maxsize
"""A part that no number exceeds: ↓(3, FOREVER) has all rounds of the epochs up to 3."""


class Domain(Protocol):
    """The times of one processor, partially ordered. Domains are compared by value."""

    def leq(self, one: Time, other: Time) -> bool:
        """one ≤ other."""
        ...

    def meet(self, one: Time, other: Time) -> Time | None:
        """The greatest time below both: ↓one ∩ ↓other = ↓meet. None if nothing is below both."""
        ...

    def check(self, time: Time) -> None:
        """Raises ValueError if it is not a time of this domain."""
        ...


@dataclass(frozen=True, slots=True)
class Sequences:
    """Sequence numbers on edges: times of two edges are not comparable.

    >>> Sequences().leq(("bids", 3), ("bids", 7)), Sequences().leq(("bids", 3), ("asks", 7))
    (True, False)
    """

    def leq(self, one: Time, other: Time) -> bool:
        return one[0] == other[0] and one[1] <= other[1]  # type: ignore[operator]

    def meet(self, one: Time, other: Time) -> Time | None:
        return min(one, other) if one[0] == other[0] else None

    def check(self, time: Time) -> None:
        match time:
            case (str(), int()):
                return
        raise ValueError(f"{time} is not a time (edge, number)")


@dataclass(frozen=True, slots=True)
class Structured:
    """Times of `arity` numbers. One number is an epoch; each further one counts the rounds of a loop, from the outside in.

    >>> product, total = Structured(2), Structured(2, "lexicographic")
    >>> product.leq((1, 9), (2, 0)), total.leq((1, 9), (2, 0))
    (False, True)
    >>> product.meet((1, 9), (2, 0))
    (1, 0)
    """

    arity: int = 1
    order: Literal["product", "lexicographic"] = "product"

    def leq(self, one: Time, other: Time) -> bool:
        if self.order == "lexicographic":
            return one <= other
        return all(a <= b for a, b in zip(one, other, strict=True))  # type: ignore[operator]

    def meet(self, one: Time, other: Time) -> Time | None:
        if self.order == "lexicographic":
            return min(one, other)
        return tuple(min(a, b) for a, b in zip(one, other, strict=True))

    def check(self, time: Time) -> None:
        if len(time) != self.arity or not all(isinstance(part, int) for part in time):
            raise ValueError(f"{time} is not a time of {self.arity} numbers")


def maxima(domain: Domain, times: Iterable[Time]) -> frozenset[Time]:
    """The antichain of the greatest of these times: ↓maxima(T) = ↓T.

    >>> sorted(maxima(Structured(2), [(1, 1), (0, 1), (0, 2)]))
    [(0, 2), (1, 1)]
    """
    kept: list[Time] = []
    for time in times:
        if not any(domain.leq(time, other) for other in kept):
            kept = [other for other in kept if not domain.leq(other, time)]
            kept.append(time)
    return frozenset(kept)
