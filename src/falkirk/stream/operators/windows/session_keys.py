"""The groups of a step's rows, and where their last sessions end.

.last    group → the end of its last session, so that rows that come in order find it without a scan

Only where no row is taken back: then ends only grow, until the session is complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from falkirk.state.codec import encode_keys
from falkirk.state.store import State
from falkirk.stream.operators.windows.spans import Numbers, Spans

NEVER = np.iinfo(np.int64).min
"""The end of the last session of a group that has none."""


class Groups(NamedTuple):
    """The groups of a step's rows."""

    keys: pl.DataFrame
    columns: Sequence[str]
    shards: npt.NDArray[np.uint16]

    def full_keys(self, table: int, group: Numbers, *more: pl.Series) -> list[bytes]:
        """Keys in state, for these groups and more columns."""
        return encode_keys(table, self.shards[group], [*(self.keys[c][group] for c in self.columns), *more])


class LastEnds:
    """The table."""

    def __init__(self, table: int) -> None:
        self.table = table

    def of(self, state: State, groups: Groups) -> Numbers:
        """The end of each group's last session."""
        found = state.get(groups.full_keys(self.table, np.arange(groups.keys.height)))
        return np.frombuffer(b"".join([_NONE if end is None else end for end in found]), ">i8").astype(np.int64)

    def reach(self, state: State, groups: Groups, spans: Spans) -> None:
        """These sessions are there."""
        before = self.of(state, groups)
        after = before.copy()
        np.maximum.at(after, spans.group, spans.end)
        changed = np.flatnonzero(after != before)
        state.put(groups.full_keys(self.table, changed), [_end(n) for n in after[changed].tolist()])

    def leave(self, state: State, full: Sequence[bytes], ends: pl.Series) -> None:
        """Sessions with these keys and ends are gone. Without its last session, a group has none."""
        last = [key for key, found, end in zip(full, state.get(full), ends, strict=True) if found == _end(end)]
        state.put(last, [None] * len(last))


def _end(end: int) -> bytes:
    return end.to_bytes(8, "big", signed=True)


_NONE = _end(int(NEVER))
