"""The rows of sessions, where sessions need them: in the order of time, each once, with its count.

key    shard · table · group · time · the row's other columns
value  the row, and how often it is there
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl

from falkirk.state.codec import decode_values, encode_keys, encode_values, prefix_end
from falkirk.state.store import State
from falkirk.stream.dataflow.batch import TS, Batch, present
from falkirk.stream.dataflow.operator import RESERVED
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.definition.windows import END
from falkirk.stream.operators.groups.multiset import check_counts, counts_in
from falkirk.stream.operators.groups.ordering import Ordering
from falkirk.stream.operators.windows.session_fold import SessionFold, Sessions
from falkirk.stream.operators.windows.session_keys import Groups
from falkirk.stream.operators.windows.spans import Numbers, Spans, of_times, united

if TYPE_CHECKING:
    from falkirk.stream.operators.windows.session_group import SessionGroup

_COUNT, _ORDER, _GROUP = (f"{RESERVED}.{c}" for c in ("rows", "order", "group"))


class SessionRows:
    """The rows of one grouping in sessions."""

    def __init__(self, group: SessionGroup, table: int) -> None:
        self.group, self.table = group, table
        self.kept, self.counted = list(group.kept), group.counted
        self.ordering = Ordering((), (), tuple(self.kept))
        self.gap = SessionFold(group).gap

    def count(self, state: State, groups: Groups, group: Numbers, batch: Batch) -> None:
        """Change the counts of these rows. Raises UserCodeError for a row that is taken back and was never added."""
        changes = (
            batch.rows.select(self.kept)
            .with_columns(
                pl.Series(_GROUP, group),
                self.ordering.of(batch.rows).alias(_ORDER),
                batch.weights.alias(_COUNT),
            )
            .group_by(_GROUP, _ORDER, maintain_order=True)
            .agg(pl.col(self.kept).first(), pl.col(_COUNT).sum())
        )
        of, times = changes[_GROUP].to_numpy(), changes[self.group.session.column]
        heads = groups.full_keys(self.table, of, times.to_physical().cast(pl.Int64))
        full = [head + order for head, order in zip(heads, changes[_ORDER], strict=True)]
        counts = counts_in(state.get(full), self.counted, _COUNT) + changes[_COUNT]
        shown = groups.keys.select(groups.columns)[of].hstack(changes.select(c for c in self.kept))
        check_counts(counts, shown, self.group.where)
        values = encode_values(self.counted, changes.with_columns(counts.alias(_COUNT)).select(list(self.counted)))
        state.put(full, present(values, counts != 0))

    def sessions(self, run: StepRun, fold: SessionFold, groups: Groups, spans: Spans, latest: Numbers) -> Sessions:
        """The sessions that the rows in these spans make: none, one or several in each. `latest`: a timestamp for each."""
        firsts = groups.full_keys(self.table, spans.group, pl.Series(spans.start, dtype=pl.Int64))
        lasts = groups.full_keys(self.table, spans.group, pl.Series(spans.end, dtype=pl.Int64))
        found = [(i, v) for i, (a, b) in enumerate(zip(firsts, lasts, strict=True)) for v in _values(run.state, a, b)]
        rows = decode_values(self.counted, [v for _, v in found])
        each = np.repeat(np.arange(rows.height), rows[_COUNT].to_numpy())
        of = np.array([i for i, _ in found], np.int64)[each]
        whole = groups.keys.select(groups.columns)[spans.group[of]].hstack(rows.select(self.kept)[each])
        frame = fold.folding.arguments(run, Batch(whole, pl.DataFrame({TS: latest[of]}, {TS: pl.Int64})))
        numbers, made = united(of_times(spans.group[of], fold.times(whole), fold.gap))
        return fold.folded(frame, numbers, made, fold.without(len(made)), groups.keys, lambda _: "")

    def of(
        self, state: State, shards: npt.NDArray[np.uint16], ended: pl.DataFrame, starts: pl.Series, most: int
    ) -> tuple[int, list[bytes]]:
        """The keys of the rows of sessions, until there are `most`; and of how many sessions they are. `ended`: the ends and
        groups of the sessions."""
        columns = [ended[c] for c in self.group.columns]
        firsts = encode_keys(self.table, shards, [*columns, starts])
        lasts = encode_keys(self.table, shards, [*columns, ended[END]])
        found: list[bytes] = []
        for count, (first, last) in enumerate(zip(firsts, lasts, strict=True)):
            if len(found) >= most:
                return count, found
            found += [key for key, _ in state.scan(first, prefix_end(last))]
        return len(firsts), found


def _values(state: State, first: bytes, last: bytes) -> list[bytes]:
    return [value for _, value in state.scan(first, prefix_end(last))]
