"""A frontier: a set of logical times that is downward closed (seed 000, section 3.1).

    ↓T = { t' : t ∈ T, t' ≤ t }            the smallest frontier with all times of T
    t ∈ ↓T  ⟺  t ≤ u for some u ∈ T
    ↓T ⊆ ↓U  ⟺  each t ∈ T is in ↓U
    ↓T ∪ ↓U = ↓(T ∪ U)
    ↓T ∩ ↓U = ↓{ t ∧ u : t ∈ T, u ∈ U }

It is kept as its greatest times, which are an antichain. ∅ has none; ⊤ has every time of every domain.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from falkirk.checkpoint.frontiers.times import Domain, Time, maxima


@dataclass(frozen=True, slots=True)
class Frontier:
    """A downward-closed set of times of one domain. A value: equal sets are equal.

    >>> from falkirk.checkpoint.frontiers.times import Sequences
    >>> f = Frontier.below(Sequences(), [("bids", 4), ("asks", 7)])
    >>> ("bids", 3) in f, ("bids", 5) in f
    (True, False)
    >>> f & Frontier.below(Sequences(), [("bids", 9)])
    ↓{('bids', 4)}
    >>> Frontier.nothing() <= f <= Frontier.everything()
    True
    """

    domain: Domain | None
    """None for ∅ and ⊤, which belong to every domain."""
    times: frozenset[Time] = frozenset()
    """The greatest times."""
    whole: bool = False
    """⊤: all times."""

    @classmethod
    def below(cls, domain: Domain, times: Iterable[Time]) -> Frontier:
        """↓T. Raises ValueError for a time of another domain."""
        times = list(times)
        for time in times:
            domain.check(time)
        return cls(domain, maxima(domain, times)) if times else cls(None)

    @classmethod
    def nothing(cls) -> Frontier:
        """∅: a processor that has processed nothing."""
        return cls(None)

    @classmethod
    def everything(cls) -> Frontier:
        """⊤: a processor that has not failed, and keeps all that it has done."""
        return cls(None, whole=True)

    @property
    def empty(self) -> bool:
        """Whether it is ∅."""
        return not self.whole and not self.times

    def __contains__(self, time: Time) -> bool:
        if self.whole or self.domain is None:
            return self.whole
        return any(self.domain.leq(time, greatest) for greatest in self.times)

    def __le__(self, other: Frontier) -> bool:
        """self ⊆ other."""
        if self.empty or other.whole:
            return True
        if self.whole or other.empty:
            return False
        self._common(other)
        return all(time in other for time in self.times)

    def __lt__(self, other: Frontier) -> bool:
        """self ⊂ other."""
        return self != other and self <= other

    def __or__(self, other: Frontier) -> Frontier:
        """self ∪ other."""
        if self <= other:
            return other
        if other <= self:
            return self
        return Frontier.below(self._common(other), self.times | other.times)

    def __and__(self, other: Frontier) -> Frontier:
        """self ∩ other."""
        if self <= other:
            return self
        if other <= self:
            return other
        domain = self._common(other)
        met = (domain.meet(one, another) for one in self.times for another in other.times)
        return Frontier.below(domain, [time for time in met if time is not None])

    def _common(self, other: Frontier) -> Domain:
        if self.domain is None or self.domain != other.domain:
            raise ValueError(f"{self} and {other} are of different domains")
        return self.domain

    def __repr__(self) -> str:
        if self.whole:
            return "⊤"
        return f"↓{{{', '.join(map(str, sorted(self.times)))}}}" if self.times else "∅"


def intersection(frontiers: Iterable[Frontier]) -> Frontier:
    """∩ of all; of none it is ⊤.

    >>> intersection([])
    ⊤
    """
    met = Frontier.everything()
    for frontier in frontiers:
        met &= frontier
    return met
