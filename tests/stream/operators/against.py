"""One operator, driven step by step with rows that come and go, against DuckDB over what is left of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl
from hypothesis import strategies as st
from tests.duck import database

import falkirk as fk
from falkirk.checkpoint.overlay import Overlay
from falkirk.stream.circuit.circuit import StageCircuit
from falkirk.stream.dataflow.batch import ORIGIN, TS, WEIGHT, Batch
from falkirk.stream.dataflow.circuit import StepInput
from falkirk.stream.dataflow.operator import joined
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.dataflow.topics import Layout
from falkirk.testing.memory import DictState

Row = tuple[Any, ...]
Change = list[tuple[Row, int]]
"""Rows and their weights."""


class Driven:
    """What `build` makes of streams `a`, `b`, … of one schema, in one task."""

    def __init__(self, schema: Mapping[str, Any], build: Callable[..., Any], ports: int = 1, *, retract: bool) -> None:
        flow = fk.Flow("f")
        sources = [flow.source("ab"[i], value=fk.Json(dict(schema))) for i in range(ports)]
        streams = sources if not retract else [_changing(s) for s in sources]
        built = build(*streams)
        built.sink("out", key=sorted(built._op.unique or built.schema), value=fk.Json())
        self.operator, self.retract = built._op, retract
        (stage,) = [s for s in flow.plan().stages if self.operator in s.operators]  # type: ignore[attr-defined]
        circuit = stage.circuit(0, Layout({t.topic: 1 for t in (*stage.inputs, *stage.outputs)}))
        assert isinstance(circuit, StageCircuit)
        self.circuit, self.state = circuit, Overlay(DictState())
        self.schema = streams[0].schema
        self.inputs: list[Counter[Row]] = [Counter() for _ in range(ports)]
        self.output: Counter[Row] = Counter()

    def step(self, *changes: Change) -> Counter[Row]:
        """What is left of everything that was emitted, after one more step. Rows are only taken back if they are there."""
        batch = self.emitted(*changes)
        if batch is not None:
            for *row, weight in batch.rows.hstack(batch.meta.select(WEIGHT)).rows():
                self.output[shown(row)] += weight
        assert min(self.output.values(), default=1) >= 0
        return +self.output

    def emitted(self, *changes: Change) -> Batch | None:
        """What the operator gives in one more step."""
        batches = [self._batch(port, change) for port, change in enumerate(changes)]
        run = StepRun(StepInput(1, []), self.state, self.circuit.failures)
        return joined([self.circuit.runners[self.operator].step(run, *batches)], weighted=True)

    def _batch(self, port: int, change: Change) -> Batch | None:
        there, kept = self.inputs[port], []
        for row, weight in change:
            allowed = max(weight, -there[row]) if self.retract else abs(weight)
            there[row] += allowed
            if allowed:
                kept += [(row, allowed)] if self.retract else [(row, 1)] * allowed
        rows = pl.DataFrame([row for row, _ in kept], self.schema, orient="row")
        meta = pl.DataFrame({TS: [5] * len(kept), ORIGIN: [None] * len(kept)}, {TS: pl.Int64, ORIGIN: pl.UInt32})
        weights = pl.Series(WEIGHT, [w for _, w in kept], dtype=pl.Int64)
        return Batch(rows, meta.with_columns(weights) if self.retract else meta) if kept else None

    def wanted(self, query: str) -> Counter[Row]:
        """What the query gives over tables `a`, `b`, … of what is left of each input."""
        tables = (pl.DataFrame([*rows.elements()], self.schema, orient="row") for rows in self.inputs)
        with database(**dict(zip("ab", tables, strict=False))) as db:
            return Counter(map(shown, db.execute(query).fetchall()))


def _changing(source: Any) -> Any:
    columns = source.schema.names()
    return source.group_by(*columns, id=f"counted.{source._op.id}").agg(__n=fk.len()).select(*columns)


def shown(row: Sequence[Any]) -> Row:
    """Values that can be compared: lists as tuples, floats to 12 digits, NaN as text."""
    return tuple(_shown(cell) for cell in row)


def _shown(cell: Any) -> Any:
    if isinstance(cell, list):
        return tuple(map(_shown, cell))
    if isinstance(cell, float):
        return "nan" if cell != cell else float(f"{cell:.12g}")
    return cell


def changes(row: st.SearchStrategy[Row]) -> st.SearchStrategy[list[Change]]:
    """Steps of rows that come, often the same ones, and are taken back."""
    return st.lists(st.lists(st.tuples(row, st.sampled_from([-2, -1, -1, 1, 1, 2])), max_size=8), max_size=6)
