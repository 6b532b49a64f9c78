"""How long each part of a take-over takes, as far as earlier take-overs show.

    seconds of a take-over = max(name, fetch(bytes)) + open + replay(parts, records)

    name     name the tasks and fence their earlier owners, once for tasks that are taken over together
    fetch    copy a version from the checkpoint store, meanwhile
    open     open the store, read the step records, admit the task
    replay   apply a changelog's records, or run recorded steps again: their number, and the records that they read

Each part is a line, a·parts + b·amount, fitted to what was measured. What has not been measured yet is presumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import msgspec

EACH = 5
"""So many of the newest observations of each size count, because hosts, flows and loads change. Those of another size stay:
small replays, however many, do not show what a large one takes."""

LEAST = 0.05
"""Seconds below which a difference does not matter. Errors count relative to what was measured, and a recovery of
milliseconds would outweigh all others."""

PRIOR = 1e-6
"""What the presumed costs count, beside observations that count about 1: only where those leave a choice, which is between
the two terms while all observations have the same proportion."""


class Replay(NamedTuple):
    """What rolls a store forward to the last step."""

    parts: int = 0
    """Pieces that cost something by themselves: recorded steps that run again, or the one reading of a changelog."""
    records: int = 0
    """The records that they read."""

    def plus(self, other: Replay) -> Replay:
        """Both of them."""
        return Replay(self.parts + other.parts, self.records + other.records)


NOTHING = Replay()


class Cost(NamedTuple):
    """Seconds for each part, and for each unit of its amount."""

    part: float
    unit: float

    def __call__(self, parts: float, amount: float) -> float:
        """Seconds in all.

        >>> Cost(0.5, 0.25)(2, 4)
        2.0
        """
        return self.part * parts + self.unit * amount


Seen = tuple[float, float, float]
"""An observation: parts, amount, seconds."""


class Line(msgspec.Struct, frozen=True, array_like=True):
    """A cost as measured: the sums from which the line of least relative errors follows.

    minimal: Σ (s − a·parts − b·amount)² / (s · p)      over observations s, where p is what the line would say,
                                                        and a little for leaving what is presumed

    Divided by s² alone, the quickest of several would count most, and by p² alone, one that hung would.

    >>> presumed = Cost(0.010, 0.000_01)
    >>> Line().seconds(100, 10_000, presumed)
    1.1
    >>> measured = Line().saw(100, 10_000, 2.2, presumed).saw(10, 20_000, 1.2, presumed)
    >>> round(measured.seconds(50, 5_000, presumed), 2), measured.count
    (1.1, 2)
    """

    count: int = 0
    """Of all observations."""
    pp: float = 0.0
    pr: float = 0.0
    rr: float = 0.0
    ps: float = 0.0
    rs: float = 0.0
    """Over these, weighted: Σ p², Σ p·r, Σ r², Σ p·s and Σ r·s, for p parts, an amount of r, and s seconds."""
    seen: tuple[Seen, ...] = ()
    """Those that count, the newest last; not needed to predict."""

    def saw(self, parts: float, amount: float, seconds: float, presumed: Cost) -> Line:
        """With one more observation."""
        if parts <= 0 and amount <= 0:
            return self
        new = (parts, amount, seconds)
        alike = [i for i, one in enumerate(self.seen) if _size(one) == _size(new)]
        seen = (*(one for i, one in enumerate(self.seen) if i not in alike[: 1 - EACH]), new)
        rough = _line(self.count + 1, seen, [s for _, _, s in seen])
        return _line(self.count + 1, seen, [rough.seconds(p, r, presumed) for p, r, _ in seen])

    @property
    def told(self) -> Line:
        """For others, who only predict with it."""
        return msgspec.structs.replace(self, seen=())

    def cost(self, presumed: Cost) -> Cost:
        """The line. No term is negative: more work never takes less."""
        if not self.count:
            return presumed
        one, other = (PRIOR / term**2 if term > 0 else 0.0 for term in presumed)
        pp, rr = self.pp + one, self.rr + other
        ps, rs = self.ps + one * presumed.part, self.rs + other * presumed.unit
        rest = pp * rr - self.pr**2
        if pp > 0 and rr > 0 and rest > 0:
            part, unit = (rr * ps - self.pr * rs) / rest, (pp * rs - self.pr * ps) / rest
            if part >= 0 and unit >= 0:
                return Cost(part, unit)
        alone = [Cost(ps / pp, 0.0)] if pp > 0 else []
        alone += [Cost(0.0, rs / rr)] if rr > 0 else []
        return min(alone, key=lambda c: c.part**2 * pp - 2 * c.part * ps + c.unit**2 * rr - 2 * c.unit * rs)

    def seconds(self, parts: float, amount: float, presumed: Cost) -> float:
        """What so much is likely to take."""
        return self.cost(presumed)(parts, amount)

    def __add__(self, other: Line) -> Line:
        """What two workers have measured."""
        return Line(*(getattr(self, f) + getattr(other, f) for f in self.__struct_fields__))


def _size(seen: Seen) -> tuple[int, int]:
    """Observations of one size have as many parts and as much within a factor of 4 or so."""
    parts, amount, _ = seen
    return int(parts).bit_length() // 2, int(amount).bit_length() // 2


def _line(count: int, seen: Sequence[Seen], predicted: Sequence[float]) -> Line:
    """The line of these observations, if they were predicted to be so."""
    pp = pr = rr = ps = rs = 0.0
    for (p, r, s), guess in zip(seen, predicted, strict=True):
        weight = 1 / (max(s, LEAST) * max(guess, LEAST))
        pp, pr, rr = pp + weight * p * p, pr + weight * p * r, rr + weight * r * r
        ps, rs = ps + weight * p * s, rs + weight * r * s
    return Line(count, pp, pr, rr, ps, rs, tuple(seen))


NAME = Cost(0.3, 0.0)
OPEN = Cost(0.3, 0.0)
FETCH = Cost(0.1, 1 / 100e6)
"""What is presumed until a take-over shows: seconds, and seconds a byte."""


class Seconds(NamedTuple):
    """How long a take-over takes, by its parts."""

    name: float = 0.0
    open: float = 0.0
    fetch: float = 0.0
    replay: float = 0.0

    @property
    def total(self) -> float:
        """All of them. A version is fetched while the task is named.

        >>> Seconds(name=0.5, open=0.25, fetch=1.0, replay=2.0).total
        3.25
        """
        return max(self.name, self.fetch) + self.open + self.replay


class Rates(msgspec.Struct, frozen=True, omit_defaults=True):
    """What take-overs of one stage's tasks have taken.

    >>> presumed = Cost(0.01, 0.000_01)
    >>> rates = Rates().saw(Seconds(0.2, 0.1, 0.0, 3.0), 0, Replay(30, 60_000), presumed)
    >>> round(rates.expect(0, Replay(15, 30_000), presumed).replay, 1)
    1.5
    """

    name: Line = Line()
    open: Line = Line()
    fetch: Line = Line()
    replay: Line = Line()

    def saw(self, took: Seconds, fetched: int, replay: Replay, presumed: Cost) -> Rates:
        """After one more take-over. `fetched`: bytes of the version that was copied to the host, 0 if none was."""
        return Rates(
            self.name.saw(1, 0, took.name, NAME),
            self.open.saw(1, 0, took.open, OPEN),
            self.fetch.saw(1, fetched, took.fetch, FETCH) if fetched else self.fetch,
            self.replay.saw(*replay, took.replay, presumed),
        )

    def expect(self, fetched: int, replay: Replay, presumed: Cost) -> Seconds:
        """What a take-over is likely to take. `presumed`: the regime's guess, until a replay was measured."""
        return Seconds(
            self.name.seconds(1, 0, NAME),
            self.open.seconds(1, 0, OPEN),
            self.fetch.seconds(1, fetched, FETCH) if fetched else 0.0,
            self.replay.seconds(*replay, presumed) if replay != NOTHING else 0.0,
        )

    def unmeasured(self, fetched: int, replay: Replay) -> list[str]:
        """Which of the parts that such a take-over has were never measured.

        >>> Rates().unmeasured(0, Replay(1, 500))
        ['name', 'open', 'replay']
        """
        has = {"name": True, "open": True, "fetch": bool(fetched), "replay": replay != NOTHING}
        return [part for part, there in has.items() if there and not getattr(self, part).count]

    @property
    def told(self) -> Rates:
        """For others, who only predict with them."""
        return Rates(self.name.told, self.open.told, self.fetch.told, self.replay.told)

    @classmethod
    def together(cls, several: Iterable[Rates]) -> Self:
        """Of several workers."""
        found = cls()
        for rates in several:
            found = cls(*(getattr(found, f) + getattr(rates, f) for f in cls.__struct_fields__))
        return found
