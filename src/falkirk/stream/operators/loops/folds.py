"""Aggregates inside a loop, as numbers that add up: a group's state is their sum, whatever the order.

    parts(a ++ b) = parts(a) + parts(b)        parts(−a) = −parts(a)        result = f(parts)

    | aggregate       | parts                                                             |
    |---|---|
    | len             | rows                                                              |
    | sum, mean       | sum, values that are not null                                     |
    | … of floats     | the same, with the exact sum as an integer; NaN, ∞, −∞, counted   |

The sum of floats is exact, and rounded once, in the result. So it does not depend on the order in which rows come and go.
The sum of all floats of one kind has about 2,100 bits; most have far fewer.

min and max need the values themselves: `falkirk.stream.operators.loops.extremes`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from falkirk.errors import UserCodeError

Parts = list[int]

_UNIT = 1 << 1074
"""Every float is a multiple of 2⁻¹⁰⁷⁴."""
_INT64 = range(-(2**63), 2**63)


class Fold(ABC):
    """One aggregate."""

    width: int
    """How many parts it has."""

    @abstractmethod
    def add(self, parts: Parts, at: int, value: Any, weight: int) -> None:
        """Add a value, `weight` times, to the parts that begin at `at`."""

    @abstractmethod
    def result(self, parts: Sequence[int]) -> Any:
        """The result, from its parts. Raises UserCodeError."""


class Rows(Fold):
    """len."""

    width = 1

    def add(self, parts: Parts, at: int, value: Any, weight: int) -> None:
        parts[at] += weight

    def result(self, parts: Sequence[int]) -> int:
        return parts[0]


class Integers(Fold):
    """sum or mean of integers and booleans."""

    width = 2

    def __init__(self, name: str, where: str, *, mean: bool) -> None:
        self.name, self.where, self.mean = name, where, mean

    def add(self, parts: Parts, at: int, value: Any, weight: int) -> None:
        if value is not None:
            parts[at] += weight * value
            parts[at + 1] += weight

    def result(self, parts: Sequence[int]) -> int | float | None:
        total, count = parts
        if self.mean:
            return float(total) / count if count else None
        if total not in _INT64:
            raise UserCodeError(
                f"{self.name} comes to {total}, beyond Int64",
                where=self.where,
                hint="leave out what makes it so large, with a filter; or sum floats: fk.sum(fk.col(…).cast(fk.Float64))",
            )
        return total


class Floats(Fold):
    """sum or mean of floats."""

    width = 5

    def __init__(self, *, mean: bool) -> None:
        self.mean = mean

    def add(self, parts: Parts, at: int, value: Any, weight: int) -> None:
        if value is None:
            return
        parts[at + 1] += weight
        if math.isfinite(value):
            above, below = value.as_integer_ratio()
            parts[at] += weight * above * (_UNIT // below)
        else:
            parts[at + (2 if math.isnan(value) else 3 if value > 0 else 4)] += weight

    def result(self, parts: Sequence[int]) -> float | None:
        whole, count, nan, above, below = parts
        if not count and self.mean:
            return None
        if nan or (above and below):
            return math.nan
        if above or below:
            return math.inf if above else -math.inf
        try:
            total = whole / _UNIT
        except OverflowError:
            return math.inf if whole > 0 else -math.inf
        return total / count if self.mean else total
