"""`stream.iterate(body)`: a part of a flow that runs until its rows stay the same, kept up to date.

    X(0) = the stream        X(i + 1) = body(X(i))        the result is X(n), with X(n + 1) = X(n)

Times are pairs (step, iteration), and (s, i) ≤ (t, j)  ⇔  s ≤ t and i ≤ j. What flows on an edge of the loop is a change at
each of them, and a collection is the sum of the changes at earlier times:

    X(s, i) = Σ x(t, j) for (t, j) ≤ (s, i)

State keeps, of each stateful operator's input, x(i) = Σ x(t, i) over the steps t before this one: the changes by iteration. A
step brings dx(i) = x(s, i). It starts from the change of the stream, and runs iteration by iteration:

    dx(0)      = change of the stream                     streams from outside change at iteration 0
    dx(1)      = dy(0) − dx(0)                            dy(i): what the body makes of dx(0) … dx(i), given the state
    dx(i + 1)  = dy(i)                                    for i ≥ 1, because x(i + 1) = y(i) there
    output     = Σ dx(i)                                  the change of X(n)

So iteration i of this step is compared with iteration i of the steps before, and not with their result. This is what makes
retractions exact. Where a graph has a cycle, the rows of the result support each other; but no row at iteration i is
supported by rows of iteration i or later. If the edge is gone that began it all, each iteration gives one row less.

The step ends at the first iteration from which on dx is 0 and no operator is due (`falkirk.stream.operators.loops.node`).
All rows are in one task: an iteration cannot wait for other tasks, because edges between tasks are topics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import polars as pl

from falkirk.errors import UserCodeError
from falkirk.state.codec import encode_keys, encode_values
from falkirk.state.shards import murmur2, shard_of
from falkirk.stream.dataflow.batch import TS, WEIGHT, Batch, everywhere, present
from falkirk.stream.dataflow.exchange import BucketRun, Exchange, SendsRows, together
from falkirk.stream.dataflow.operator import RESERVED, Flowing, Operator, Runner, TaskContext, joined
from falkirk.stream.dataflow.place import Place
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.definition.expressions import words
from falkirk.stream.formats import Key
from falkirk.stream.operators.groups.multiset import check_counts, counts_in
from falkirk.stream.operators.groups.unique import COUNT
from falkirk.stream.operators.loops.node import ZSet, add_all
from falkirk.stream.operators.loops.rows import batch_of, zset_of
from falkirk.stream.operators.loops.wiring import Wiring

RESULT = "result"
"""The table of X(n): how often each row is there. The loop does not read it; people do."""
ALL = f"{RESERVED}_all"
"""A column with one value: by it, all rows are sent to one task."""
SHOWN = 5
"""Iterations in the error of a loop that does not end."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Iterate(Operator):
    """A loop. Its inputs are `outside`, each with the column that brings all rows to one task."""

    kind: ClassVar[str] = "iterate"
    stateful: ClassVar[bool] = True
    main_table: ClassVar[str] = RESULT
    passes_time: ClassVar[bool] = False  # A row of any time can change all others.
    variable: Operator
    outside: tuple[Operator, ...]
    """The stream that the loop begins with, and the others that the body reads."""
    body: tuple[Operator, ...]
    result: Operator
    """Which operator of the body gives the rows of the next iteration."""
    max_iterations: int
    version: int

    @cached_property
    def wiring(self) -> Wiring:
        """The nodes of one task."""
        return Wiring(self.variable, self.outside, self.body, self.result)

    @property
    def state_columns(self) -> Sequence[str]:
        return tuple(self.schema)

    def keys(self, port: int) -> Key:
        return Key(ALL)

    def reads(self, port: int, needed: Set[str]) -> Set[str]:
        return set(self.inputs[port].schema)

    @property
    def words(self) -> str:
        return f"iterate {self.id}: from {self.outside[0].id}, {self.max_iterations} iterations at most, in one task"

    @property
    def notes(self) -> Sequence[str]:
        return ["each iteration:", *(f"  {operator.described()}" for operator in self.body)]

    def state_words(self) -> str:
        body = "; ".join(o.state_words() or f"{o.words} → {words(o.schema)}" for o in self.body)
        return f"{self.id} v{self.version}: {words(self.schema)} from {body}"

    def tables(self) -> Sequence[str]:
        return [RESULT, *self.wiring.tables]

    def table_schemas(self) -> Mapping[str, pl.Schema]:
        return {RESULT: COUNT}

    def runner(self, task: TaskContext) -> Runner:
        return IterateRunner(self, task)

    def exchange(self) -> Exchange:
        return IterateExchange(self)


class IterateRunner(Runner):
    """One loop in its task."""

    def __init__(self, operator: Iterate, task: TaskContext) -> None:
        self.operator = operator
        self.wiring = Wiring(operator.variable, operator.outside, operator.body, operator.result)
        (spelt,) = Key(ALL).encode(pl.DataFrame({ALL: [0]}))
        self.table, self.shard = task.tables[RESULT], shard_of(murmur2([spelt]))
        for wired in self.wiring.nodes:
            wired.node.bind(task, int(self.shard[0]), wired.prefix)

    def step(self, run: StepRun, *inputs: Flowing | None) -> Flowing | None:
        outside = self.operator.outside
        batches = [joined([f], weighted=before.changes) for f, before in zip(inputs, outside, strict=True)]
        filled = [batch for batch in batches if batch is not None]
        if not filled:
            return None
        changes = [
            {} if batch is None else zset_of(batch, list(before.schema))
            for batch, before in zip(batches, outside, strict=True)
        ]
        time = max(int(batch.meta[TS].max()) for batch in filled)  # type: ignore[arg-type]
        found = self.change(run, changes, time)
        if not found:
            return None
        change = batch_of(self.operator.schema, found, time)
        self._keep(run, change)
        return change

    def _keep(self, run: StepRun, change: Batch) -> None:
        """Write the rows of the result. None of them can be there less often than never."""
        full = encode_keys(self.table, np.repeat(self.shard, len(change)), change.rows.get_columns())
        after = counts_in(run.state.get(full), COUNT, "rows") + change.meta[WEIGHT]
        check_counts(after, change.rows, self.operator.where)
        run.state.put(full, present(encode_values(COUNT, pl.DataFrame({"rows": after})), after != 0))

    def change(self, run: StepRun, changes: Sequence[ZSet], time: int) -> ZSet:
        """The change of the result, given the changes of the streams from outside. Raises UserCodeError."""
        nodes = self.wiring.nodes
        for wired in nodes:
            wired.node.begin(run, time)
        nothing: ZSet = {}
        dx, total, sizes, i = changes[0], dict(changes[0]), dict[int, int](), 0
        while True:
            flows = [dx, *(changes if i == 0 else [nothing] * len(changes))]
            for wired in nodes:
                flows.append(wired.node.at(i, [flows[slot] for slot in wired.inputs]))
            dx = flows[self.wiring.result]
            dx = add_all(dict(dx), changes[0], -1) if i == 0 else dx
            i += 1
            if not dx:
                later = [j for wired in nodes for j in wired.node.due()]
                if not later:
                    break
                i = min(later)
                continue
            sizes[i] = len(dx)
            if i > self.operator.max_iterations:
                raise self._endless(sizes)
            add_all(total, dx)
        for wired in nodes:
            wired.node.end()
        return total

    def _endless(self, sizes: Mapping[int, int]) -> UserCodeError:
        last = ", ".join(f"{size:,} in iteration {i}" for i, size in [*sizes.items()][-SHOWN:])
        return UserCodeError(
            f"the rows still change after {self.operator.max_iterations} iterations: {last}",
            where=self.operator.where,
            hint="if ever fewer rows change, raise max_iterations=; if not, the body never comes to an end: round floats, "
            "keep one row of each key (group_by), or each row once (unique). Nothing of this step is committed",
        )


class IterateExchange(SendsRows):
    """The batch form: all rows meet in one bucket, and the loop runs there once, from nothing."""

    def __init__(self, operator: Iterate) -> None:
        self.operator, self.key = operator, Key(ALL)
        self.columns = {
            f"{port}.{name}": dtype
            for port, before in enumerate(operator.outside)
            for name, dtype in before.schema.items()
        }

    def sent(self, run: StepRun, batch: Batch, port: int) -> pl.DataFrame:
        height = len(batch)
        given = {f"{port}.{name}": batch.rows[name] for name in self.operator.outside[port].schema}
        columns = [
            given[c].alias(c) if c in given else pl.Series(c, [None], dtype=dtype).new_from_index(0, height)
            for c, dtype in self.columns.items()
        ]
        number = pl.Series("port", [port], dtype=pl.Int64).new_from_index(0, height)
        return pl.DataFrame([*columns, number, everywhere(False, height).cast(pl.Int64).alias(ALL), batch.meta[TS]])

    def received(self, run: BucketRun, parcels: Iterator[tuple[Place, pl.DataFrame]]) -> Iterator[Batch]:
        whole = together([frame for _, frame in parcels])
        changes = [self._rows(whole.filter(pl.col("port") == port), port) for port in range(len(self.operator.outside))]
        tables = {table: n for n, table in enumerate(self.operator.tables())}
        runner = IterateRunner(self.operator, TaskContext(tables))
        time: Any = whole[TS].max()
        alone = StepRun(run.step, _Nothing(), run.failures)
        found = runner.change(alone, changes, time)
        if found:
            batch = batch_of(self.operator.schema, found, time)
            often = batch.gather(pl.Series([n for n, times in enumerate(found.values()) for _ in range(times)]))
            yield Batch(often.rows, often.meta.drop(WEIGHT))

    def _rows(self, whole: pl.DataFrame, port: int) -> ZSet:
        before = self.operator.outside[port]
        rows = whole.select(pl.col(f"{port}.{name}").alias(name) for name in before.schema)
        return zset_of(Batch(rows, whole.select(TS)), list(before.schema))


class _Nothing:
    """The state of a loop that runs once."""

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [None] * len(keys)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(())

    def put(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Nobody asks for it."""
