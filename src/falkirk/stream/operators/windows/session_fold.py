"""From rows, and the states of sessions that become one, to the states of sessions. It does not depend on where the state is.

state'[s] = merge(united(states of the sessions that became s), partial(rows of s))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from falkirk.stream.aggregates.bound import new, old
from falkirk.stream.dataflow.batch import TS, matched, nulls
from falkirk.stream.dataflow.operator import RESERVED
from falkirk.stream.definition.event_time import per_milli
from falkirk.stream.definition.windows import END, START
from falkirk.stream.operators.groups.folding import Folding
from falkirk.stream.operators.windows.spans import Numbers, Spans

if TYPE_CHECKING:
    from falkirk.stream.operators.windows.session_group import SessionGroup

_SESSION = f"{RESERVED}.session"


class Sessions(NamedTuple):
    """Some sessions, one per row."""

    spans: Spans
    states: pl.DataFrame
    """The states of the aggregates."""
    times: Numbers
    """The greatest timestamp of the records that changed the session in this step."""


class SessionFold:
    """The arithmetic of one grouping in sessions."""

    def __init__(self, group: SessionGroup) -> None:
        self.group, self.columns = group, list(group.columns)
        self.bounds = list(group.aggregates.values())
        self.folding = Folding(group, [_SESSION], self.bounds, weighted=False)
        self.dtype = group.schema[START]
        self.gap = group.session.gap * per_milli(self.dtype)
        self.schema = pl.Schema({c: t for c, t in group.state_schema.items() if c != START})
        self.nothing = pl.DataFrame([nulls(dtype, 1).alias(c) for c, dtype in self.schema.items()])

    def times(self, rows: pl.DataFrame) -> Numbers:
        """The event times of rows, in the unit of their column."""
        return rows[self.group.session.column].to_physical().cast(pl.Int64).to_numpy()

    def bound(self, times: Numbers) -> pl.Series:
        """Starts or ends of sessions, as a column of the result."""
        return pl.Series(times, dtype=pl.Int64).cast(self.dtype)

    def folded(
        self,
        frame: pl.DataFrame,
        numbers: Numbers,
        spans: Spans,
        before: pl.DataFrame,
        keys: pl.DataFrame,
        rows_of: Callable[[Numbers], str],
    ) -> Sessions:
        """The sessions of rows with arguments. `numbers`: the session of each row; each session has one. `before`: the state
        of each session before. `keys`: the groups. `rows_of`: the address of rows. Raises UserCodeError."""
        partials = self.folding.partials(frame.with_columns(pl.Series(_SESSION, numbers)))
        # A select would start the query engine only to choose columns.
        which, *parts, times = partials.get_columns()
        order = which.to_numpy()
        found = Spans(*(column[order] for column in spans))
        with self.folding.blaming(
            self.labels(keys, found), lambda session: rows_of(np.flatnonzero(numbers == order[session]))
        ):
            after = self.folding.merged(pl.DataFrame([*parts, *before[order].get_columns()]))
        return Sessions(found, after, times.to_numpy())

    def without(self, count: int) -> pl.DataFrame:
        """The states of sessions that were not there."""
        return pl.DataFrame([column.new_from_index(0, count) for column in self.nothing.get_columns()])

    def before(self, states: pl.DataFrame, of: Numbers, spans: Spans, keys: pl.DataFrame) -> pl.DataFrame:
        """The state of each session, made of states that belong to the sessions `of`. Raises UserCodeError."""
        if not states.height:
            return self.without(len(spans))
        order = np.argsort(of, kind="stable")
        of, states = of[order], states[order]
        while (same := of[1:] == of[:-1]).any():
            # The first with the second, the third with the fourth, …
            begins = np.flatnonzero(np.concatenate([[True], ~same]))
            nth = np.arange(len(of)) - np.repeat(begins, np.diff([*begins, len(of)]))
            left = nth % 2 == 0
            paired = np.flatnonzero(left & np.concatenate([same, [False]]))
            alone = np.flatnonzero(left & ~np.concatenate([same, [False]]))
            with self.folding.blaming(self.labels(keys, Spans(*(column[of[paired]] for column in spans)))):
                pairs = self._united(states[paired], states[paired + 1])
            made = pl.concat([pairs, states[alone]], rechunk=True)
            at = np.concatenate([paired, alone])
            order = np.argsort(at)
            of, states = of[at[order]], made[order]
        places = np.full(len(spans), states.height)
        places[of] = np.arange(states.height)
        return pl.concat([states, self.nothing], rechunk=True)[places]

    def labels(self, keys: pl.DataFrame, spans: Spans) -> pl.DataFrame:
        """The columns of sessions: of their groups, start and end."""
        bounds = [self.bound(spans.start).alias(START), self.bound(spans.end).alias(END)]
        return keys.select(self.columns)[spans.group].hstack(bounds)

    def _united(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        named = [other[old(b.name, part)].alias(new(b.name, part)) for b in self.bounds for part in b.parts]
        frame = one.hstack(named)
        return frame.select(
            **{old(b.name, part): each for b in self.bounds for part, each in b.united(frame).items()}
        ).select(list(self.schema))


def groups_of(rows: pl.DataFrame, columns: list[str]) -> tuple[Numbers, pl.DataFrame]:
    """The number of each row's group; and the groups, in order of first appearance, with the greatest timestamps."""
    keys = rows.group_by(columns, maintain_order=True).agg(pl.col(TS).max())
    numbered = keys.select(columns).with_row_index(_SESSION)
    found = matched(rows.select(columns), numbered, columns)
    return found[_SESSION].cast(pl.Int64).to_numpy(), keys
