"""The key that has most of an operator's rows, from a sample once in a while.

    share(k) = rows of k in the sample / rows in the sample        told  ⇔  share(k) ≥ SHARE, in a step of LEAST rows or more

All rows of a key go to one task, however many tasks there are: a key that has most of a busy task's rows bounds what more
tasks can do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import polars as pl

from falkirk.stream.dataflow.task_counts import HotKey

SHARE = 0.5
"""Of a task's rows."""
LEAST = 1_000
"""Rows of a step that is looked at: where fewer come, no key is a burden."""
SAMPLE = 500
"""Rows that are looked at."""
PAUSE = 1.0
"""Seconds between two looks at one operator."""
STALE = 60.0
"""Seconds for which a look counts: then the stream has become quiet."""


class HotKeys:
    """Those of one task, by operator. What is found changes no output."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._dice = np.random.default_rng(0)
        self._due: dict[str, float] = {}
        self._found: dict[str, HotKey] = {}

    def look(self, operator: str, columns: Sequence[str], rows: pl.DataFrame) -> None:
        """Look at the rows that an operator gets in a step, if it is time.

        >>> keys = HotKeys()
        >>> keys.look("stats", ["k"], pl.DataFrame({"k": [7] * 3000 + [8] * 1000}))
        >>> keys.found()["stats"].key
        'k=7'
        """
        now = self._clock()
        if rows.height < LEAST or now < self._due.get(operator, now):
            return
        self._due[operator] = now + PAUSE
        # By chance, and not every n-th: keys may come in turn.
        some = rows.select(columns)[self._dice.integers(0, rows.height, SAMPLE)]
        first = some.group_by(columns).len("__falkirk_rows").sort("__falkirk_rows", *columns, descending=True).row(0)
        share = first[-1] / SAMPLE
        self._found.pop(operator, None)
        if share >= SHARE:
            key = ", ".join(f"{c}={v}" for c, v in zip(columns, first, strict=False))
            self._found[operator] = HotKey(key[:200], round(share, 2))

    def found(self) -> Mapping[str, HotKey]:
        """By operator."""
        fresh = self._clock() + PAUSE - STALE
        return {operator: found for operator, found in list(self._found.items()) if self._due[operator] >= fresh}
