"""What every registered operator must be, asked of its runner alone:

    cuts       f(a ++ b) = f(a) + f(b)                      how rows are cut into steps does not matter
    undone     f(a) + f(−a) = 0                             a change and its retraction give nothing
    weights    f(2·a) = f(a ++ a)                           a weight is how often a row comes
    replays    the same rows, clock and state give the same rows, in the same order

where f(a) is what the runner gives for a, as a Z-set, with the state that the steps before have left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.stream.operators.registered import registered

import falkirk as fk
from falkirk.checkpoint.overlay import Overlay
from falkirk.stream import operators as op
from falkirk.stream.circuit.circuit import StageCircuit
from falkirk.stream.dataflow.batch import ORIGIN, TS, WEIGHT, Batch
from falkirk.stream.dataflow.circuit import StepInput
from falkirk.stream.dataflow.operator import Flowing, joined
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.dataflow.topics import Layout
from falkirk.testing.memory import DictState

Rows = list[tuple[int, int]]
"""Key and value."""
Build = Callable[[Any, fk.Flow], Any]


def counted(bids: Any) -> Any:
    """A stream whose rows can be taken back."""
    return bids.group_by("k", "v", id="counted").agg(n=fk.len()).select("k", "v")


def names(flow: fk.Flow, **more: Any) -> Any:
    """A table to look keys up in."""
    return flow.table("names", key=fk.Key("k", fk.Int64BE), value=fk.Json({"k": int, "name": str}), **more)


async def doubled(row: dict[str, Any]) -> dict[str, Any]:
    """An answer."""
    return {"w": 2 * row["v"]}


APPEND: dict[str, Build] = {
    "process": lambda bids, _: bids.key_by("k").process(lambda row, key: row),
    "lookup": lambda bids, flow: bids.lookup(names(flow)),
    "shared lookup": lambda bids, flow: bids.lookup(names(flow, broadcast=True)),
    "errors": lambda bids, _: bids.map(lambda row: row).errors,
    "enrich": lambda bids, _: bids.enrich(doubled, returns={"w": int}),
    "sessions": lambda bids, _: sessions(bids),
    "deduplicate": lambda bids, _: bids.deduplicate("k", within="1ms"),
    "count windows": lambda bids, _: bids.group_by("k", fk.count_window(3, every=2)).agg(
        n=fk.len(), total=fk.sum("v"), low=fk.min("v"), kinds=fk.n_unique("v"), last=fk.last("v", by="v")
    ),
}
"""Operators that accept only rows that come."""
CHANGING: dict[str, Build] = {
    "filter": lambda bids, _: counted(bids).filter(fk.col("v") > 2),
    "select": lambda bids, _: counted(bids).select("k", w=fk.col("v") * 2),
    "assume_unique": lambda bids, _: (
        counted(bids).group_by("k").top_k(2, by="v").select("k", v=fk.col("v") * 2).assume_unique("k", "v")
    ),
    "with_columns": lambda bids, _: counted(bids).with_columns(w=fk.col("v") * 2),
    "map": lambda bids, _: counted(bids).map(lambda row: {"k": row["k"], "w": -row["v"]}, returns={"k": int, "w": int}),
    "flat_map": lambda bids, _: counted(bids).flat_map(lambda row: [row] * (row["v"] % 3)),
    "map_batches": lambda bids, _: counted(bids).map_batches(lambda frame: frame.filter(pl.col("v") > 1)),
    "concat": lambda bids, _: counted(bids).concat(counted2(bids)),
    "inner join": lambda bids, _: counted(bids).join(counted2(bids), on="k"),
    "left join": lambda bids, _: counted(bids).join(counted2(bids), left_on="k", right_on="v", how="left"),
    "full join": lambda bids, _: counted(bids).join(counted2(bids), on=fk.col("k") + fk.col("v"), how="full"),
    "semi join": lambda bids, _: counted(bids).join(counted2(bids), left_on="k", right_on="v", how="semi"),
    "anti join": lambda bids, _: counted(bids).join(counted2(bids), left_on="k", right_on="v", how="anti"),
    "interval join": lambda bids, _: timed(counted(bids)).join(timed(counted2(bids)), on="k", within=NEAR),
    "left interval join": lambda bids, _: timed(counted(bids)).join(
        timed(counted2(bids)), on="k", how="left", within=NEAR
    ),
    "full interval join": lambda bids, _: timed(counted(bids)).join(
        timed(counted2(bids)), on="k", how="full", within=NEAR
    ),
    "as-of join": lambda bids, _: timed(counted(bids)).join_asof(timed(counted2(bids)), by="k", tolerance="3ms"),
    "nearest as-of join": lambda bids, _: timed(counted(bids)).join_asof(
        timed(counted2(bids)), by="k", strategy="nearest", tolerance="3ms"
    ),
    "join with itself": lambda bids, _: twice_joined(counted(bids)),
    "repartition": lambda bids, _: counted(bids).repartition("v"),
    "unique": lambda bids, _: counted(bids).select("v").unique(),
    "iterate": lambda bids, _: closure(counted(bids)),
    "top_k": lambda bids, _: counted(bids).group_by("k").top_k(2, by="v"),
    "top_k with ties": lambda bids, _: counted(bids).group_by("k").top_k(1, by="v", rank="rank", ties=True),
    "top_k with rank": lambda bids, _: counted(bids).group_by("k").top_k(3, by="v", reverse=True, rank="rank"),
    "sessions of changes": lambda bids, _: sessions(counted(bids)),
    "explode": lambda bids, _: (
        counted(bids).map(lambda row: {"l": [row["k"]] * row["v"]}, returns={"l": fk.List(fk.Int64)}).explode("l")
    ),
    "with_regime": lambda bids, _: counted(bids).with_regime(fk.LazyCheckpoint(), id="lazy"),
    "group_by": lambda bids, _: (
        counted(bids)
        .group_by("k")
        .agg(n=fk.len(), total=fk.sum("v"), low=fk.min("v"), high=fk.max("v"), mean=fk.mean("v"))
    ),
    "more aggregates": lambda bids, _: (
        counted(bids)
        .group_by("k")
        .agg(
            kinds=fk.n_unique("v"),
            var=fk.var("v"),
            std=fk.std(fk.col("v") / 8),  # Polars divides one row by 10 otherwise than several
            any=fk.any(fk.col("v") > 3),
            all=fk.all(fk.col("v") > 1),
            first=fk.first("v", by=fk.col("v") % 3),
            last=fk.last("v", by=fk.col("v") % 3),
            values=fk.collect("v", by=-fk.col("v")),
        )
    ),
    "agg": lambda bids, _: counted(bids).agg(
        n=fk.len(), total=fk.sum("v"), mean=fk.mean("k"), any=fk.any(fk.col("v") > 3)
    ),
    "over": lambda bids, _: counted(bids).over("k", order_by="v").agg(total=fk.sum("v"), n=fk.row_number()),
    "over all rows": lambda bids, _: counted(bids).over("k").agg(total=fk.sum("v"), all=fk.collect("v")),
    "over rows around": lambda bids, _: counted(bids).over("k", order_by="v", rows=(-1, 2)).agg(high=fk.max("v")),
    "over times around": lambda bids, _: counted(bids).over("k", order_by="v", range=(-1, 2)).agg(n=fk.len()),
    "over rows": lambda bids, _: counted(bids).over("k", order_by="v", rows=2).agg(high=fk.max("v"), var=fk.var("v")),
    "over a range": lambda bids, _: counted(bids).over("k", order_by="v", range=2).agg(n=fk.len(), mean=fk.mean("v")),
    "agg of best values": lambda bids, _: counted(bids).agg(
        n=fk.len(), low=fk.min("v"), high=fk.max("v"), last=fk.last("k", by="v")
    ),
}
"""Operators that accept rows that are taken back."""


def counted2(bids: Any) -> Any:
    """Another one."""
    return bids.group_by("k", "v", id="again").agg(m=fk.len()).select("k", "v")


def sessions(rows: Any) -> Any:
    """Sessions of rows that come in any order of time."""
    aggregates = {"n": fk.len(), "total": fk.sum("v"), "kinds": fk.n_unique("v"), "mean": fk.mean("v")}
    return rows.group_by("k", fk.session("v", gap="1ms")).agg(**aggregates, var=fk.var(fk.col("v") / 8))


def closure(links: Any) -> Any:
    """Which `v` can be reached from which `k`."""
    return links.iterate(
        lambda near: near.join(links, left_on="v", right_on="k", suffix="2").select("k", v="v2").concat(links).unique()
    )


NEAR = ("-1ms", "2ms")


def timed(rows: Any) -> Any:
    """A stream whose event time is its value."""
    rows._graph.add_hidden(operator := replace(rows._op, time="v"))
    return type(rows)(rows._graph, operator)


def twice_joined(rows: Any) -> Any:
    """A stream joined with itself."""
    return rows.join(rows, left_on="k", right_on="v")


@dataclass
class Task:
    """One operator in one task."""

    operator: op.Operator
    circuit: StageCircuit
    half: Task | None = None
    """The first half of an aggregate of a whole stream, which gives this one its rows."""

    def __post_init__(self) -> None:
        self.state = Overlay(DictState())

    def step(self, rows: Rows, weight: int = 1, clock: int = 1) -> list[tuple[Any, ...]]:
        """What it gives for rows of this weight each: rows, and their weights last."""
        return rows_of(self.flow(rows, weight, clock))

    def flow(self, rows: Rows, weight: int, clock: int) -> Flowing | None:
        run = StepRun(StepInput(clock, []), self.state, self.circuit.failures)
        # What a lookup gives depends on when its table's rows come: it has tests of its own.
        streams = self.operator.streams
        if self.half is not None:
            return self.circuit.runners[self.operator].step(run, self.half.flow(rows, weight, clock))
        inputs = [batch_of(before, rows, weight) if before in streams else None for before in self.operator.inputs]
        run.errors[self.operator.inputs[0]] = inputs[0] or batch_of(self.operator.inputs[0], [], 1)
        return self.circuit.runners[self.operator].step(run, *inputs)


def batch_of(before: op.Operator, rows: Rows, weight: int) -> Batch:
    frame = pl.DataFrame({"k": [k for k, _ in rows], "v": [v for _, v in rows]}, {"k": pl.Int64, "v": pl.Int64})
    # An expression to join on has a column of its own.
    frame = frame.with_columns((pl.col("k") + pl.col("v")).alias(c) for c in before.schema if c.startswith(op.RESERVED))
    frame = frame.with_columns(pl.col("k").repeat_by("v").alias(c) for c, t in before.schema.items() if t == pl.List)
    meta = pl.DataFrame({TS: [5] * len(rows), ORIGIN: [None] * len(rows)}, {TS: pl.Int64, ORIGIN: pl.UInt32})
    return Batch(frame, meta.with_columns(pl.lit(weight, pl.Int64).alias(WEIGHT)) if before.changes else meta)


def rows_of(flowing: Flowing | None) -> list[tuple[Any, ...]]:
    batch = joined([flowing], weighted=True)
    rows = [] if batch is None else batch.rows.hstack(batch.meta.select(WEIGHT)).rows()
    return [tuple(tuple(cell) if isinstance(cell, list) else cell for cell in row) for row in rows]


def net(*steps: list[tuple[Any, ...]]) -> dict[tuple[Any, ...], int]:
    """Rows as a Z-set."""
    total: Counter[tuple[Any, ...]] = Counter()
    for rows in steps:
        for *row, weight in rows:
            total[tuple(row)] += weight
    return {row: weight for row, weight in total.items() if weight}


def task_of(name: str) -> Task:
    """The operator that a case builds, in a task of its own."""
    flow = fk.Flow("f")
    bids = flow.source("bids", key=None, value=fk.Json({"k": fk.Int64, "v": fk.Int64}))
    built = {**APPEND, **CHANGING}[name](bids, flow)
    keyed = built._op.changes and built._op.unique != frozenset()
    built.sink("out", key=sorted(built._op.unique or built.schema) if keyed else None, value=fk.Json())
    half = task_at(flow, built._op.partials) if isinstance(built._op, op.Total) else None
    return task_at(flow, built._op, half)


def task_at(flow: fk.Flow, operator: op.Operator, half: Task | None = None) -> Task:
    """An operator of a flow, in a task of its own."""
    (stage,) = [s for s in flow.plan().stages if operator in s.operators]  # type: ignore[attr-defined]
    counts = {t.topic: 1 for t in (*stage.inputs, *stage.outputs)}
    circuit = stage.circuit(0, Layout(counts))
    assert isinstance(circuit, StageCircuit)
    return Task(operator, circuit, half)


some = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=8)


def test_every_registered_operator_is_tried() -> None:
    tried = {type(task_of(name).operator) for name in (*APPEND, *CHANGING)}
    # Sources are read, not run, and give late rows; sinks and routes write records. They have tests of their own.
    # What depends on a watermark is compared with SQL (`test_windows.py`).
    timed = {op.Late, op.Windows, op.WindowGroup, op.Final}
    # Second halves of sources, whose rows are changes (`test_changes.py`).
    changing = {op.Changed, op.Latest}
    # First halves of aggregates, tried with the second; a loop's variable, which is inside a loop only.
    changing |= {op.Partials, op.BestPartials, op.LoopVariable}
    assert tried == registered() - timed - changing - {
        op.Source,
        op.TableSource,
        op.HttpSource,
        op.Sink,
        op.AnswerSink,
        op.ParquetSink,
        op.DeltaSink,
        op.PostgresSink,
        op.Route,
    }


@pytest.mark.parametrize("name", [*(n for n in APPEND if n != "shared lookup"), *CHANGING])
@given(first=some, second=some)
def test_the_cut_into_steps_does_not_matter(name: str, first: Rows, second: Rows) -> None:
    whole, parts = task_of(name), task_of(name)
    assert net(whole.step(first + second)) == net(parts.step(first), parts.step(second))


@pytest.mark.parametrize("name", CHANGING)
@given(first=some, second=some)
def test_a_change_and_its_retraction_give_nothing(name: str, first: Rows, second: Rows) -> None:
    task = task_of(name)
    before = net(task.step(first))
    assert net(task.step(second), task.step(second, weight=-1)) == {}
    assert net(task.step(first, weight=-1)) == {row: -weight for row, weight in before.items()}


@pytest.mark.parametrize("name", CHANGING)
@given(rows=some)
def test_a_weight_is_how_often_a_row_comes(name: str, rows: Rows) -> None:
    twice, heavy = task_of(name), task_of(name)
    came = net(heavy.step(rows, weight=2))
    assert net(twice.step(rows + rows)) == came
    assert net(heavy.step(rows, weight=-2)) == {row: -weight for row, weight in came.items()}


@pytest.mark.parametrize("name", [*(n for n in APPEND if n != "shared lookup"), *CHANGING])
@given(first=some, second=some)
def test_a_replay_gives_the_same_rows_in_the_same_order(name: str, first: Rows, second: Rows) -> None:
    one, other = task_of(name), task_of(name)
    assert [one.step(first), one.step(second)] == [other.step(first), other.step(second)]
