"""Sessions in a step: the stored sessions that the rows touch, the sessions that they become, and the change.

rows ──▶ spans ──▶ stored sessions that touch them ──▶ their union ──▶ states merged, or rows read again ──▶ change

change = Σ (touched session, −1) + Σ (session that it became, +1)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from falkirk.errors import StateError
from falkirk.state.codec import decode_keys, decode_values, encode_keys, encode_values, prefix_end
from falkirk.state.shards import murmur2, shard_of
from falkirk.state.store import State
from falkirk.stream.dataflow.batch import ORIGIN, TS, WEIGHT, Batch, nulls
from falkirk.stream.dataflow.event_time import Watermark
from falkirk.stream.dataflow.operator import Flowing, Runner, TaskContext, joined
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.definition.event_time import per_milli
from falkirk.stream.definition.windows import END, START
from falkirk.stream.operators.groups.ends import Ends
from falkirk.stream.operators.windows.final import completed
from falkirk.stream.operators.windows.session_fold import SessionFold, Sessions, groups_of
from falkirk.stream.operators.windows.session_keys import NEVER, Groups, LastEnds
from falkirk.stream.operators.windows.session_rows import SessionRows
from falkirk.stream.operators.windows.spans import Numbers, Spans, both, of_times, united

if TYPE_CHECKING:
    from falkirk.stream.operators.windows.session_group import SessionGroup

SESSIONS, ENDS, ROWS, LAST = "", ".ends", ".rows", ".last"
"""The tables."""
AT_ONCE = 20_000
"""Complete sessions that one step deletes. The next step goes on."""


class Stored(NamedTuple):
    """Stored sessions."""

    sessions: Sessions
    keys: list[bytes]


class SessionRunner(Runner):
    """One grouping in sessions in one task."""

    def __init__(self, group: SessionGroup, task: TaskContext) -> None:
        assert group.partitioned is not None
        self.group, self.key, self.partitioners = group, group.partitioned, task.partitioners
        self.columns, self.retracts = list(group.columns), group.inputs[0].changes
        self.table = task.tables[SESSIONS]
        self.ends = Ends(task.tables[ENDS], task.first_shard) if group.expire else None
        self.rows = SessionRows(group, task.tables[ROWS]) if group.keeps_rows else None
        self.last = LastEnds(task.tables[LAST]) if LAST in task.tables else None
        self.fold = SessionFold(group)
        self.schema = group.state_schema
        self.key_schema = pl.Schema({c: group.schema[c] for c in group.state_columns})
        self.end_schema = group.end_schema
        self.unit = per_milli(group.schema[END])

    def wake_at(self, state: State) -> int | None:
        """At once, if complete sessions are left."""
        return 0 if self.ends is not None and self.ends.left(state) else None

    def step(self, run: StepRun, *inputs: Flowing | None) -> Flowing | None:
        """Fold the rows into their sessions; then delete complete sessions."""
        batch, change = joined(inputs, weighted=self.retracts), None
        given = run.watermarks.get(self.group) if self.ends is not None else None
        if batch is not None:
            times = batch.rows[self.group.session.column]
            batch = batch.filter(times.is_not_null()) if times.null_count() else batch
            if len(batch):
                if given is not None:
                    check_open(self.fold.times(batch.rows), self.fold.gap, given.before * self.unit, self.group.where)
                change = self._changed(run, batch)
        if given is not None:
            self._close(run, given)
        return change

    def _changed(self, run: StepRun, batch: Batch) -> Batch:
        group, keys = groups_of(batch.rows.select(self.columns).hstack(batch.meta.select(TS)), self.columns)
        spelt = self.key.encode(keys)
        hashes = murmur2(spelt)
        groups = Groups(keys, self.columns, shard_of(hashes))
        local_of, local = united(of_times(group, self.fold.times(batch.rows), self.fold.gap))
        stored = self._touched(run.state, groups, local)
        if self.partitioners is not None:
            known = np.isin(np.arange(keys.height), stored.sessions.spans.group)
            self.partitioners.check(spelt, hashes, pl.Series(~known), lambda _: "")

        of, spans = united(both(local, stored.sessions.spans))
        numbers, of_stored = of[: len(local)][local_of], of[len(local) :]
        latest = np.zeros(len(spans), np.int64)
        np.maximum.at(latest, numbers, batch.meta[TS].to_numpy())
        if self.rows is None:
            frame = self.fold.folding.arguments(run, batch)
            before = self.fold.before(stored.sessions.states, of_stored, spans, keys)
            made = self.fold.folded(frame, numbers, spans, before, keys, lambda rows: run.span(batch, rows.tolist()))
        else:
            self.rows.count(run.state, groups, group, batch)
            made = self.rows.sessions(run, self.fold, groups, spans, latest)
        self._save(run.state, groups, stored, made)
        touched = stored.sessions._replace(times=latest[of_stored])
        return self._change(keys, touched, made)

    def _touched(self, state: State, groups: Groups, local: Spans) -> Stored:
        """The stored sessions that touch spans."""
        found = self._found(state, groups, local)
        full = list(found)
        by = np.fromiter((i for i, _ in found.values()), np.int64, len(full))
        ends = decode_keys(self.key_schema, full)[END].to_physical().to_numpy()
        states = decode_values(self.schema, [value for _, value in found.values()])
        starts = states[START].to_physical().to_numpy()
        touch = np.flatnonzero(starts <= local.end[by])
        spans = Spans(local.group[by][touch], starts[touch], ends[touch])
        kept = states.select(list(self.fold.schema))[touch]
        return Stored(Sessions(spans, kept, np.zeros(len(touch), np.int64)), [full[i] for i in touch])

    def _found(self, state: State, groups: Groups, local: Spans) -> dict[bytes, tuple[int, bytes]]:
        """Sessions that may touch spans, by key in state, each with the number of a span."""
        if self.last is None:
            return self._scanned(state, groups, local, np.arange(len(local)))
        ends = self.last.of(state, groups)
        there = np.flatnonzero((ends[local.group] != NEVER) & (local.start <= ends[local.group]))
        if not len(there):
            return {}
        full = groups.full_keys(self.table, local.group[there], self.fold.bound(ends[local.group[there]]))
        values = [value for value in state.get(full) if value is not None]
        assert len(values) == len(full), "the last session of a group is there"
        # Earlier sessions end before the last one starts.
        late = decode_values(self.schema, values)[START].to_physical().to_numpy() <= local.start[there]
        found = {full[i]: (int(there[i]), values[i]) for i in np.flatnonzero(late)}
        return self._scanned(state, groups, local, there[~late]) | found

    def _scanned(self, state: State, groups: Groups, local: Spans, which: Numbers) -> dict[bytes, tuple[int, bytes]]:
        """Of each span the sessions that end in it, and perhaps the one after them."""
        found: dict[bytes, tuple[int, bytes]] = {}
        if not len(which):
            return found
        group = local.group[which]
        heads = groups.full_keys(self.table, group, self.fold.bound(local.start[which]))
        last = groups.full_keys(self.table, group, self.fold.bound(local.end[which]))
        stops = [prefix_end(p) for p in groups.full_keys(self.table, group)]
        for i, head, end, stop in zip(which.tolist(), heads, last, stops, strict=True):
            for key, value in state.scan(head, stop):
                # Of the spans that meet a session the last one counts: it reaches furthest.
                found[key] = i, value
                if key > end:
                    break
        return found

    def _save(self, state: State, groups: Groups, stored: Stored, made: Sessions) -> None:
        full = groups.full_keys(self.table, made.spans.group, self.fold.bound(made.spans.end))
        rows = pl.DataFrame([self.fold.bound(made.spans.start).alias(START), *made.states.get_columns()])
        new, old = set(full), set(stored.keys)
        gone = [i for i, key in enumerate(stored.keys) if key not in new]
        state.put([stored.keys[i] for i in gone], [None] * len(gone))
        state.put(full, encode_values(self.schema, rows))
        if self.last is not None:
            self.last.reach(state, groups, made.spans)
        if self.ends is not None:
            come = [i for i, key in enumerate(full) if key not in old]
            left = self._end_keys(self.ends, groups.keys, stored.sessions.spans, gone)
            state.put(left, [None] * len(left))
            self.ends.add(state, self._end_keys(self.ends, groups.keys, made.spans, come))

    def _end_keys(self, ends: Ends, keys: pl.DataFrame, spans: Spans, which: list[int]) -> list[bytes]:
        group = spans.group[which]
        return ends.keys(pl.Series(spans.end[which], dtype=pl.Int64), *(keys[c][group] for c in self.columns))

    def _change(self, keys: pl.DataFrame, touched: Sessions, made: Sessions) -> Batch:
        """What others see: sessions that are as before are left out."""
        labels = self.fold.labels(keys, touched.spans), self.fold.labels(keys, made.spans)
        with self.fold.folding.blaming(labels[0]):
            old = labels[0].hstack(self.fold.folding.results(touched.states))
        with self.fold.folding.blaming(labels[1]):
            new = labels[1].hstack(self.fold.folding.results(made.states))
        gone, come = np.ones(old.height, np.bool_), np.ones(new.height, np.bool_)
        both = pl.DataFrame(touched.spans._asdict()).with_row_index("old").join(
            pl.DataFrame(made.spans._asdict()).with_row_index("new"), on=list(Spans._fields)
        )  # fmt: skip
        if both.height:
            pairs = zip(old[both["old"]].get_columns(), new[both["new"]].get_columns(), strict=True)
            same = ~np.any([a.ne_missing(b).to_numpy() for a, b in pairs], axis=0)
            gone[both["old"].to_numpy()[same]] = come[both["new"].to_numpy()[same]] = False
        weights = np.concatenate([np.full(gone.sum(), -1), np.full(come.sum(), 1)])
        times = np.concatenate([touched.times[gone], made.times[come]])
        rows = pl.concat([old.filter(gone), new.filter(come)], rechunk=True)
        return Batch(rows, pl.DataFrame({TS: times, WEIGHT: weights}, {TS: pl.Int64, WEIGHT: pl.Int64}))

    def _close(self, run: StepRun, given: Watermark) -> None:
        """Delete complete sessions, in the order of their ends. A row at the end of a session still belongs to it."""
        assert self.ends is not None
        state = run.state
        found = self.ends.before(state, given.after * self.unit, AT_ONCE)
        if not found:
            run.completed[self.group] = completed([], [], given, 0)
            return self.ends.delete(state, found, 0)
        ended = decode_keys(self.end_schema, found[:AT_ONCE])
        shards = shard_of(murmur2(self.key.encode(ended.select(self.columns))))
        end = self.fold.bound(ended[END].to_numpy())
        full = encode_keys(self.table, shards, [*(ended[c] for c in self.columns), end])
        values = [value for value in state.get(full) if value is not None]
        assert len(values) == len(full), "each entry in the order of time has its session"
        if self.rows is not None:
            starts = decode_values(self.schema, values)[START].to_physical()
            count, rows = self.rows.of(state, shards, ended, starts, AT_ONCE)
            full, values = full[:count], values[:count]
            ended, end, shards = ended[:count], end[:count], shards[:count]
            state.put(rows, [None] * len(rows))
        self.ends.delete(state, found, len(full))
        first, left = (
            decode_keys(self.end_schema, some)[END] // self.unit
            for some in (found[:1], found[len(full) : len(full) + 1])
        )
        run.completed[self.group] = completed(first.to_list(), left.to_list(), given, 0)
        state.put(full, [None] * len(full))
        if self.last is not None:
            self.last.leave(state, encode_keys(self.last.table, shards, [ended[c] for c in self.columns]), ended[END])
        run.closed[self.group] = lambda: self._final(ended.with_columns(end.alias(END)), values)
        return None

    def _final(self, ended: pl.DataFrame, values: Sequence[bytes]) -> Batch:
        """The results of complete sessions, in the order of their ends."""
        states = decode_values(self.schema, values)
        labels = ended.select(self.columns).hstack([states[START], ended[END]])
        with self.fold.folding.blaming(labels):
            rows = labels.hstack(self.fold.folding.results(states.select(list(self.fold.schema))))
        times = (rows[END].to_physical() // self.unit - 1).cast(pl.Int64).alias(TS)
        return Batch(rows, pl.DataFrame([times, nulls(pl.UInt32(), rows.height).alias(ORIGIN)]))


def check_open(times: Numbers, gap: int, watermark: int, where: str) -> None:
    """Invariant: no row comes for a complete session. Its state is gone, so the row would begin it again."""
    if int(times.min()) + gap < watermark:
        raise StateError(
            f"a row came with time {int(times.min())}, and sessions up to {watermark} were complete",
            where=where,
            hint="report this as a bug of Falkirk",
        )
