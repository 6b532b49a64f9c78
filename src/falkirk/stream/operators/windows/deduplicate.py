"""`stream.deduplicate(…)`: the first row of each key, and no other row of the key for some time.

a row passes  ⇔  no row of its key has passed whose time is at most `within` away from its own

.kept    key → the times of its rows that have passed
.ends    time, key → ∅      in the order of time, under the task's first shard

Time is event time if the stream has a watermark, and otherwise the clock of the step. A time is forgotten when no row can
come that is so near: when the watermark, or the clock, is more than `within` past it.

For requests over HTTP it is the time of the record. A copy of a request that waits in the topic, right behind the first one,
is a copy however long the app is down in between. Records of a task are in the order of their times, or nearly so: a time is
forgotten when a record has come that is `within` and SLACK past it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

import msgspec
import numpy as np
import polars as pl

from falkirk.durations import DurationLike, duration_text
from falkirk.errors import DefinitionError
from falkirk.state.codec import decode_keys, decode_values, encode_keys, encode_values
from falkirk.state.shards import murmur2, shard_of
from falkirk.state.store import State
from falkirk.stream.dataflow.batch import TS, Batch
from falkirk.stream.dataflow.exchange import BucketRun, Exchange, SendsRows, together
from falkirk.stream.dataflow.graph import placed
from falkirk.stream.dataflow.operator import Flowing, Operator, Runner, TaskContext, joined
from falkirk.stream.dataflow.place import Place
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.dataflow.task_tables import TaskTable, TimedEntries, placed_by
from falkirk.stream.definition.event_time import millis, per_milli
from falkirk.stream.definition.expressions import words
from falkirk.stream.definition.keys import columns_of
from falkirk.stream.definition.names import default_id
from falkirk.stream.formats import Key, column_key
from falkirk.stream.operators.groups.ends import Ends
from falkirk.stream.operators.windows.session_fold import groups_of
from falkirk.stream.operators.windows.spans import Numbers

KEPT, ENDS = ".kept", ".ends"
TIMES = pl.Schema({"times": pl.Binary()})
SLACK = 10 * 60_000
"""Milliseconds by which records' times may be out of order, as clocks of their writers differ."""
AT_ONCE = 20_000
"""Times that one step forgets. The next step goes on."""

_pack = msgspec.msgpack.encode
_unpack = msgspec.msgpack.Decoder(list[int]).decode


def deduplicate(
    before: Operator,
    line: str,
    on: str | Sequence[str],
    *,
    within: DurationLike | None = None,
    id: str | None = None,  # noqa: A002
    version: int = 1,
) -> Operator:
    """The first row of each key, `on`. Other rows of the key are dropped if their time is at most `within` away from it, and
    else begin again. Without `within`, they are dropped for ever, and the state grows with the number of keys.

    Time is event time if the source has `late=`, and else the clock of the step. The first row is the one that is read first.
    `id` names the operator and its state. Raises DefinitionError, also for rows that can be taken back.

    >>> import falkirk as fk
    >>> flow = fk.Flow("example")
    >>> orders = flow.source("orders", value=fk.Json({"id": int, "at": int}), time="at", late="1m")
    >>> orders.deduplicate("id", within="1h").sink("once", value=fk.Json())
    >>> hour = 3_600_000
    >>> rows = [{"id": 7, "at": at} for at in (hour, hour + 5, 2 * hour, 3 * hour)]
    >>> [row["at"] / hour for row in fk.testing.run(flow, {"orders": rows}).sinks["once"].rows]
    [1.0, 3.0]
    """
    name = id or default_id(before.id, "deduplicate")
    where = f"deduplicate {name!r} ({line})"
    if before.changes:
        raise DefinitionError(
            "rows here can be taken back, so that another row would be the first one",
            where=where,
            hint="deduplicate before rows are grouped; or .unique() for equal rows",
        )
    columns = columns_of([on], before.schema, where)
    key, root = placed(before, columns, name)
    return Deduplicate(
        id=name, line=line, inputs=(before,), schema=before.schema, partitioned=key, root=root, regime=before.regime,
        time=before.time, columns=columns, within=None if within is None else millis(within, "within", where),
        version=version,
    )  # fmt: skip


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Deduplicate(Operator):
    """The first row of each key."""

    kind: ClassVar[str] = "deduplicate"
    stateful: ClassVar[bool] = True
    timed: ClassVar[bool] = True
    main_table: ClassVar[str] = KEPT
    columns: tuple[str, ...]
    within: int | None
    """Milliseconds; None: for ever."""
    version: int
    recorded: bool = False
    """Whether the time of a row is that of its record."""

    @property
    def event_time(self) -> bool:
        """Whether the time of a row is its event time, and not the clock of the step."""
        return self.inputs[0].watermarked and self.inputs[0].time is not None

    @property
    def asks_time(self) -> bool:
        return self.event_time and self.within is not None

    @property
    def state_columns(self) -> Sequence[str]:
        return self.columns

    @property
    def words(self) -> str:
        if self.within is None:
            return (
                f"deduplicate {self.id}: the first row of each {', '.join(self.columns)}, whose state is kept for ever"
            )
        time = f"of {self._of}"
        within = duration_text(timedelta(milliseconds=self.within))
        return f"deduplicate {self.id}: the first row of each {', '.join(self.columns)}, within {within} {time}"

    def state_words(self) -> str:
        keys = {c: self.schema[c] for c in self.columns}
        time = f"within {self.within} of {self._of}"
        return f"{self.id} v{self.version}: {words(keys)} → {words(TIMES)} {time} (placed by {self.partitioned!r})"

    @property
    def _of(self) -> str:
        """What gives the time of a row, in words."""
        clock = "the record's time" if self.recorded else "the clock"
        return str(self.time) if self.event_time else clock

    def tables(self) -> Sequence[str]:
        return [KEPT, ENDS]

    def table_schemas(self) -> Mapping[str, pl.Schema]:
        return {KEPT: TIMES}

    @property
    def end_schema(self) -> pl.Schema:
        """The columns of the entries in the order of time."""
        return pl.Schema({ENDS: pl.Int64(), **{c: self.schema[c] for c in self.columns}})

    def task_tables(self) -> Mapping[str, TaskTable]:
        assert self.partitioned is not None
        return {ENDS: TimedEntries(self.end_schema, placed_by(self.partitioned))}

    def placed_by(self, table: str) -> Key | None:
        return self.partitioned

    def runner(self, task: TaskContext) -> Runner:
        return DeduplicateRunner(self, task)

    def exchange(self) -> Exchange:
        return DeduplicateExchange(self)


def first_rows(group: Numbers, times: Numbers, within: int | None, kept: Sequence[list[int]]) -> Numbers:
    """The positions of the rows that pass. `kept`: the times of the rows of each group that have passed, in order. New ones
    are added.

    >>> first_rows(np.array([0, 0, 1, 0]), np.array([10, 15, 15, 16]), 5, kept := [[], [30]]).tolist(), kept
    ([0, 2, 3], [[10, 16], [15, 30]])
    """
    passed = []
    for i, (g, time) in enumerate(zip(group.tolist(), times.tolist(), strict=True)):
        of = kept[g]
        at = 0 if within is None else bisect_left(of, time - within)
        if at < len(of) and (within is None or of[at] <= time + within):
            continue
        of.insert(at, time)
        passed.append(i)
    return np.array(passed, np.int64)


class DeduplicateRunner(Runner):
    """One `deduplicate` in one task."""

    def __init__(self, operator: Deduplicate, task: TaskContext) -> None:
        assert operator.partitioned is not None
        self.operator, self.key, self.columns = operator, operator.partitioned, list(operator.columns)
        self.table, self.partitioners = task.tables[KEPT], task.partitioners
        self.ends = Ends(task.tables[ENDS], task.first_shard)
        self.end_schema = operator.end_schema
        self.event_time = operator.event_time
        self.unit = per_milli(operator.schema[operator.time]) if operator.time and self.event_time else 1
        self.within = None if operator.within is None else operator.within * self.unit

    def wake_at(self, state: State) -> int | None:
        """When the first time is to be forgotten."""
        if self.operator.recorded:
            return None  # that takes a record: each step with some forgets more times than it brings
        if self.ends.left(state):
            return 0
        if self.event_time or self.within is None or (key := self.ends.first(state)) is None:
            return None
        return int(decode_keys(self.end_schema, [key])[ENDS][0]) + self.within + 1

    def step(self, run: StepRun, *inputs: Flowing | None) -> Flowing | None:
        """Keep the first rows; then forget what is long past."""
        batch = joined(inputs, weighted=False)
        passed = None if batch is None else self._passed(run, batch)
        if self.within is not None:
            now = self._now(run, batch)
            if now is not None:
                self._forget(run.state, now - self.within)
        return passed

    def _now(self, run: StepRun, batch: Batch | None) -> int | None:
        """The time that has come, in the unit of rows' times; None: it is not known, or as before."""
        if self.operator.recorded:
            return None if batch is None else int(batch.meta[TS].max()) - SLACK  # type: ignore[arg-type]
        if not self.event_time:
            return run.step.clock
        given = run.watermarks.get(self.operator)
        return None if given is None else given.after * self.unit

    def _passed(self, run: StepRun, batch: Batch) -> Batch:
        group, keys = groups_of(batch.rows.select(self.columns).hstack(batch.meta.select(TS)), self.columns)
        times = batch.meta[TS].to_numpy() if self.operator.recorded else self._times(batch.rows, run.step.clock)
        spelt = self.key.encode(keys)
        hashes = murmur2(spelt)
        by_key = [keys[c] for c in self.columns]
        full = encode_keys(self.table, shard_of(hashes), by_key)
        found = run.state.get(full)
        if self.partitioners is not None:
            self.partitioners.check(spelt, hashes, pl.Series([v is None for v in found]), lambda _: "")
        passed = first_rows(group, times, self.within, kept := _times_of(found))
        if len(passed):
            changed = np.unique(group[passed])
            run.state.put([full[g] for g in changed], _values([kept[g] for g in changed]))
            if self.within is not None:
                of = group[passed]
                self.ends.add(run.state, self.ends.keys(pl.Series(times[passed]), *(column[of] for column in by_key)))
        return batch.gather(pl.Series(passed))

    def _times(self, rows: pl.DataFrame, clock: int) -> Numbers:
        """The time of each row, in the unit of its column."""
        if not self.event_time or self.operator.time is None:
            return np.full(rows.height, clock)
        return rows[self.operator.time].to_physical().cast(pl.Int64).to_numpy()

    def _forget(self, state: State, before: int) -> None:
        """Forget the times before this one."""
        found = self.ends.before(state, before, AT_ONCE)
        self.ends.delete(state, found, min(len(found), AT_ONCE))
        if not found:
            return
        gone = decode_keys(self.end_schema, found[:AT_ONCE])
        keys = gone.select(self.columns).unique(maintain_order=True)
        shards = shard_of(murmur2(self.key.encode(keys)))
        full = encode_keys(self.table, shards, keys.get_columns())
        upto = gone[ENDS][-1]
        left = [[time for time in times if time >= before or time > upto] for times in _times_of(state.get(full))]
        state.put(full, _values(left))


def _times_of(values: Sequence[bytes | None]) -> list[list[int]]:
    known = iter(decode_values(TIMES, [v for v in values if v is not None])["times"])
    return [[] if v is None else _unpack(next(known)) for v in values]


def _values(times: Sequence[Sequence[int]]) -> list[bytes | None]:
    """As stored; None if there is no time."""
    packed = pl.DataFrame({"times": [_pack(each) for each in times]}, TIMES)
    return [v if each else None for v, each in zip(encode_values(TIMES, packed), times, strict=True)]


class DeduplicateExchange(SendsRows):
    """The batch form: rows of a key meet in a bucket. By the clock, all rows of a batch come at the same time."""

    def __init__(self, operator: Deduplicate) -> None:
        self.operator, self.columns = operator, list(operator.columns)
        self.key = column_key(self.columns)
        self.one = DeduplicateRunner(operator, TaskContext(dict.fromkeys((KEPT, ENDS), 0)))

    def sent(self, run: StepRun, batch: Batch, port: int) -> pl.DataFrame:
        return batch.rows.select(list(self.operator.schema)).hstack(batch.meta.select(TS))

    def received(self, run: BucketRun, parcels: Iterator[tuple[Place, pl.DataFrame]]) -> Iterator[Batch]:
        rows = together([frame for _, frame in parcels])
        group, keys = groups_of(rows, self.columns)
        times = rows[TS].to_numpy() if self.operator.recorded else self.one._times(rows, 0)
        passed = first_rows(group, times, self.one.within, [[] for _ in range(keys.height)])
        kept = rows[passed]
        yield Batch(kept.select(list(self.operator.schema)), kept.select(TS))
