"""Spans of time that are joined where they touch: what makes sessions of rows.

span of a row with time t  =  [t, t + gap]
two spans touch            ⇔  the later one starts at or before the end of the other
session                    =  the union of spans that touch, directly or through others

The union of unions is the union of all spans, so the order in which rows come does not matter.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

Numbers = npt.NDArray[np.int64]

GREATEST = np.iinfo(np.int64).max


class Spans(NamedTuple):
    """Spans, one per row."""

    group: Numbers
    """The number of each span's group. Spans of two groups never touch."""
    start: Numbers
    end: Numbers

    def __len__(self) -> int:
        return len(self.group)


def of_times(group: Numbers, times: Numbers, gap: int) -> Spans:
    """The spans of rows. A time near the end of all times has a span that ends there."""
    return Spans(group, times, np.minimum(times, GREATEST - gap) + gap)


def both(a: Spans, b: Spans) -> Spans:
    """All spans, the first ones first."""
    return Spans(*(np.concatenate(pair) for pair in zip(a, b, strict=True)))


def united(spans: Spans) -> tuple[Numbers, Spans]:
    """The unions of spans that touch, in the order of groups and starts; and for each span, the number of its union.

    >>> numbers, unions = united(of_times(np.array([0, 0, 0, 1]), np.array([50, 10, 15, 12]), 10))
    >>> numbers.tolist(), unions.start.tolist(), unions.end.tolist()
    ([1, 0, 0, 2], [10, 50, 12], [25, 60, 22])
    """
    if not len(spans):
        return np.zeros(0, np.int64), spans
    order = np.lexsort((spans.start, spans.group))
    group, start, end = (column[order] for column in spans)
    reached = pl.DataFrame({"group": group, "end": end}).select(pl.col("end").cum_max().over("group")).to_series()
    before = np.concatenate([[0], reached.to_numpy()[:-1]])
    first = np.concatenate([[True], group[1:] != group[:-1]]) | (start > before)
    numbers = np.empty(len(spans), np.int64)
    numbers[order] = np.cumsum(first) - 1
    at = np.flatnonzero(first)
    return numbers, Spans(group[at], start[at], np.maximum.reduceat(end, at))
