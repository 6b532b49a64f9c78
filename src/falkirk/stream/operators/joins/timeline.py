"""Rows of several keys in the order of their times, and which of them a row reaches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from falkirk.state.entries import Numbers
from falkirk.stream.definition.event_time import per_milli


class Reach(NamedTuple):
    """For each row the number of its key, −1 for null, and the places that it reaches:  first ≤ place ≤ last."""

    slots: Numbers
    firsts: Numbers
    lasts: Numbers

    def spans(self) -> list[tuple[int, int]]:
        """The first and the last place of each."""
        return list(zip(self.firsts.tolist(), self.lasts.tolist(), strict=True))


class Timeline:
    """Rows in the order of (slot, place).

    >>> line = Timeline(np.array([0, 0, 1]), np.array([5, 9, 5]), np.array([1, 2, 4]))
    >>> reach = Reach(np.array([0, 1, -1]), np.array([6, 0, 0]), np.array([9, 9, 9]))
    >>> [numbers.tolist() for numbers in line.within(reach)], line.sums(reach).tolist()
    ([[1, 2, 0], [1, 1, 0]], [2, 4, 0])
    """

    def __init__(self, slots: Numbers, places: Numbers, weights: Numbers) -> None:
        self.slots, self.places = slots, places
        self._known = np.unique(places)
        self._at = self._number(slots, np.searchsorted(self._known, places))
        self._sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(weights)])

    def within(self, reach: Reach) -> tuple[Numbers, Numbers]:
        """The first row that each reaches, and how many."""
        first, end = self._bounds(reach)
        return first, end - first

    def sums(self, reach: Reach) -> Numbers:
        """Σ weights of the rows that each reaches."""
        first, end = self._bounds(reach)
        sums: Numbers = self._sums[end] - self._sums[first]
        return sums

    def _bounds(self, reach: Reach) -> tuple[Numbers, Numbers]:
        first = self._number(reach.slots, np.searchsorted(self._known, reach.firsts, "left"))
        end = self._number(reach.slots, np.searchsorted(self._known, reach.lasts, "right"))
        return np.searchsorted(self._at, first), np.searchsorted(self._at, end)

    def _number(self, slots: Numbers, ranks: Numbers) -> Numbers:
        """One number for slot and place. It is negative for null, and so before all rows."""
        numbers: Numbers = slots * (len(self._known) + 1) + ranks
        return numbers


def timeline(slots: Numbers, places: Numbers, weights: Numbers) -> tuple[Timeline, Numbers]:
    """A timeline of rows in any order, without those of null, and the number of each of its rows."""
    order = np.lexsort((places, slots))
    order = order[slots[order] >= 0]
    return Timeline(slots[order], places[order], weights[order]), order


def disjoint(several: Sequence[Reach]) -> Reach:
    """Spans that hold all of these, in order, without an overlap within a key.

    >>> disjoint([Reach(np.array([1, 0, 1]), np.array([5, 5, 1]), np.array([9, 9, 6]))])
    Reach(slots=array([0, 1]), firsts=array([5, 1]), lasts=array([9, 9]))
    """
    slots, firsts, lasts = (np.concatenate(columns) for columns in zip(*several, strict=True))
    order = np.lexsort((firsts, slots))
    order = order[slots[order] >= 0]
    spans: list[list[int]] = []
    for slot, first, last in zip(slots[order].tolist(), firsts[order].tolist(), lasts[order].tolist(), strict=True):
        if spans and spans[-1][0] == slot and first <= spans[-1][2] + 1:
            spans[-1][2] = max(spans[-1][2], last)
        else:
            spans.append([slot, first, last])
    return Reach(*np.array(spans, np.int64).reshape(-1, 3).T)


def place_units(times: Sequence[pl.DataType]) -> tuple[int, ...]:
    """How many units make a millisecond, for both sides together, and how many of them are a unit of each side.

    >>> place_units([pl.Int64(), pl.Datetime("us")])
    (1000, 1000, 1)
    """
    own = [per_milli(dtype) for dtype in times]
    return max(own), *(max(own) // unit for unit in own)


def places_of(times: pl.Series, unit: int) -> Numbers:
    """Places of rows with these times, of which one has so many units; a null is at any place."""
    places: Numbers = times.to_physical().cast(pl.Int64).fill_null(0).to_numpy() * unit
    return places
