"""Aggregates of a whole stream, from partials of several tasks, against DuckDB."""

from __future__ import annotations

from collections import Counter
from itertools import cycle
from typing import Any
from zlib import crc32

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.duck import database
from tests.stream.operators.against import Change, changes, shown

import falkirk as fk
from falkirk.checkpoint.overlay import Overlay
from falkirk.errors import DefinitionError, UserCodeError
from falkirk.stream import operators as op
from falkirk.stream.dataflow.batch import ORIGIN, TS, WEIGHT, Batch, concatenated
from falkirk.stream.dataflow.circuit import StepInput
from falkirk.stream.dataflow.operator import Flowing, joined
from falkirk.stream.dataflow.packing import Packer, unpacked
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.dataflow.topics import Layout
from falkirk.testing.memory import DictState

SCHEMA = pl.Schema({"i": pl.Int64(), "f": pl.Float64(), "s": pl.String()})
row = st.tuples(
    st.none() | st.integers(-3, 3), st.none() | st.sampled_from([-1.5, 0.25, 8.0]), st.none() | st.sampled_from("abc")
)
AGGREGATES: dict[str, tuple[dict[str, Any], str]] = {
    "sums": (
        {
            "n": fk.len(), "total": fk.sum("i"), "mean": fk.mean("f"), "var": fk.var("i"),
            "any": fk.any(fk.col("i") > 2), "half": fk.sum(fk.col("f") / 2),
        },
        "count(*), coalesce(sum(i), 0), avg(f), var_samp(i), coalesce(bool_or(i > 2), false), coalesce(sum(f / 2), 0)",
    ),
    "best values": (
        {
            "low": fk.min("i"), "high": fk.max(fk.col("f") * 2), "text": fk.max("s"), "n": fk.len(),
            "first": fk.first("s", by="i"), "last": fk.last("i", by="i"),
        },
        """min(i), max(f * 2), max(s), count(*),
        (select s from a where i is not null order by i, s nulls first limit 1), max(i)""",
    ),
}  # fmt: skip


class Tasks:
    """The partials in three tasks, and their total in one."""

    def __init__(self, aggregates: dict[str, Any], *, retract: bool) -> None:
        flow = fk.Flow("f")
        rows: Any = flow.source("a", value=fk.Json(dict(SCHEMA)))
        if retract:
            rows = rows.group_by("i", "f", "s").agg(__n=fk.len()).select("i", "f", "s")
        stream = rows.agg(**aggregates)
        stream.sink("out", value=fk.Json())
        self.total, self.retract = stream._op, retract
        assert isinstance(self.total, op.Total)
        self.halves = [(self._circuit(flow, self.total.partials, n), Overlay(DictState())) for n in range(3)]
        self.whole = self._circuit(flow, self.total, 0), Overlay(DictState())
        self.rows: Counter[Any] = Counter()
        self.output: Counter[Any] = Counter()

    def _circuit(self, flow: fk.Flow, operator: op.Operator, task: int) -> Any:
        (stage,) = [s for s in flow.plan().stages if operator in s.operators]  # type: ignore[attr-defined]
        return stage.circuit(task, Layout({t.topic: 3 for t in (*stage.inputs, *stage.outputs)}))

    def step(self, change: Change) -> None:
        """One step of each task, and one of the task that has the total."""
        kept = []
        for line, weight in change:
            allowed = max(weight, -self.rows[line]) if self.retract else abs(weight)
            self.rows[line] += allowed
            kept += [(line, allowed)] if self.retract else [(line, 1)] * allowed
        sent = [
            self._partials(n, [(r, w) for r, w in kept if w and crc32(repr(r).encode()) % 3 == n]) for n in range(3)
        ]
        assert all(len(batch) == 1 for batch in sent if batch)
        partials = [b for b in sent if b]
        given = concatenated(partials, weighted=False) if partials else None
        for *line, weight in self._run(self.whole, self.total, given):
            self.output[shown(line)] += weight

    def _partials(self, task: int, rows: Change) -> Batch | None:
        if not rows:
            return None
        frame = pl.DataFrame([line for line, _ in rows], SCHEMA, orient="row")
        meta = pl.DataFrame({TS: [5] * len(rows), ORIGIN: [None] * len(rows)}, {TS: pl.Int64, ORIGIN: pl.UInt32})
        weights = pl.Series(WEIGHT, [w for _, w in rows], dtype=pl.Int64)
        batch = Batch(frame, meta.with_columns(weights) if self.retract else meta)
        circuit, state = self.halves[task]
        run = StepRun(StepInput(1, []), state, circuit.failures)
        made = circuit.runners[self.total.partials].step(run, batch)
        assert made is not None
        # As an edge carries it.
        ((data, _),) = Packer(made.rows.hstack(made.meta)).pack(0, len(made))
        frame = unpacked(data, "")
        return Batch(frame.drop(TS), frame.select(TS))

    def _run(self, half: Any, operator: op.Operator, batch: Flowing | None) -> list[Any]:
        circuit, state = half
        run = StepRun(StepInput(1, []), state, circuit.failures)
        found = joined([circuit.runners[operator].step(run, batch)], weighted=True)
        return [] if found is None else found.rows.hstack(found.meta.select(WEIGHT)).rows()

    def wanted(self, query: str) -> Counter[Any]:
        """What DuckDB gives: no row, as long as there are no rows."""
        with database(a=pl.DataFrame([*self.rows.elements()], SCHEMA, orient="row")) as db:
            return Counter(map(shown, db.execute(f"select {query} from a having count(*) > 0").fetchall()))


@pytest.mark.parametrize("retract", [True, False])
@pytest.mark.parametrize("name", AGGREGATES)
@given(steps=changes(row))
@settings(max_examples=10, deadline=None)
def test_a_total_of_several_tasks_is_what_sql_gives(name: str, retract: bool, steps: list[Change]) -> None:
    aggregates, query = AGGREGATES[name]
    tasks = Tasks(aggregates, retract=retract)
    for change in steps:
        tasks.step(change)
        assert +tasks.output == tasks.wanted(query)
        assert min(tasks.output.values(), default=0) >= 0


def test_a_task_sends_one_row_however_many_came_and_keeps_none_without_need() -> None:
    tasks = Tasks(AGGREGATES["sums"][0], retract=True)
    tasks.step([((i, None, "a"), 1) for i in range(1_000)])
    assert not any(state.changes for _, state in tasks.halves)


FLOWS: dict[str, Any] = {
    "sums": lambda rows: rows.agg(n=fk.len(), x=fk.sum("x")),
    "best values of totals": lambda rows: (
        rows.group_by("k").agg(x=fk.sum("x")).agg(n=fk.len(), x=fk.max("x"), low=fk.min("x"))
    ),
    "values": lambda rows: rows.agg(everything=fk.n_unique("x"), x=fk.max("x")),
    "users": lambda rows: rows.group_by("k").agg(x=fk.sum("x")).select("x").agg(x=fk.max("x"), all=fk.collect("x")),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "regime"), [*zip(FLOWS, cycle([fk.EagerCheckpoint(), fk.LazyCheckpoint()]), strict=False)]
)
def test_totals_are_the_same_after_crashes_everywhere(name: str, regime: Any) -> None:
    flow = fk.Flow("totals", regime=regime)
    rows = flow.source("rows", value=fk.Json({"k": int, "x": int}))
    FLOWS[name](rows).sink("out", value=fk.Json())
    given = [{"k": i % 4, "x": (i * 7) % 5 - 2} for i in range(12)]
    app = fk.testing.run(flow, {"rows": given}, crash_at="everywhere", step_rows=3, partitions=2)
    frame = pl.DataFrame(given)
    totals = sorted(frame.group_by("k").agg(pl.col("x").sum())["x"])
    assert (
        app.sinks["out"].table[b""]
        == {
            "sums": {"n": 12, "x": frame["x"].sum()},
            "best values of totals": {"n": 4, "x": totals[-1], "low": totals[0]},
            "values": {"everything": frame["x"].n_unique(), "x": frame["x"].max()},
            "users": {"x": totals[-1], "all": totals},
        }[name]
    )


def test_a_row_that_is_gone_is_a_tombstone_without_a_key() -> None:
    flow = fk.Flow("totals")
    rows = flow.source("rows", value=fk.Json({"x": int, "weight": int}), changes="weights")
    rows.agg(n=fk.len()).sink("out", value=fk.Json())
    total = rows.agg(n=fk.len(), id="again")
    total.sink("log", value=fk.Json(), changes="debezium")
    app = fk.testing.run(flow, {"rows": [{"x": 1, "weight": 2}, {"x": 1, "weight": -2}]}, step_rows=1)
    assert app.sinks["out"].rows == [{"n": 2}, None]
    assert {record.key for record in app.sinks["out"].records} == {b""}
    assert [row["op"] for row in app.sinks["log"].rows] == ["c", "d"]


def test_a_row_taken_back_that_never_came_stops_the_app() -> None:
    flow = fk.Flow("totals")
    rows = flow.source("rows", value=fk.Json({"x": int, "weight": int}), changes="weights")
    rows.agg(n=fk.len()).sink("out", value=fk.Json())
    with pytest.raises(UserCodeError, match="is retracted, but was never added"):
        fk.testing.run(flow, {"rows": [{"x": 1, "weight": -1}]})


@pytest.mark.parametrize(
    ("aggregates", "message"),
    [
        ({}, "agg\\(\\) has no aggregates"),
        ({"n": 3}, "n=3 is not an aggregate"),
        ({"id": fk.len()}, "is not the id of the state"),
        ({"version": fk.len()}, "is not the version of the state"),
        ({"x": fk.sum("nope")}, "nope"),
    ],
)
def test_what_is_no_aggregate_of_a_stream_is_refused(aggregates: dict[str, Any], message: str) -> None:
    rows = fk.Flow("f").source("rows", value=fk.Json({"x": int}))
    with pytest.raises(DefinitionError, match=message):
        rows.agg(**aggregates)
