"""A join in a task of its own, that is given changes of both sides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

import falkirk as fk
from falkirk.checkpoint.overlay import Overlay
from falkirk.stream.circuit.circuit import StageCircuit
from falkirk.stream.dataflow.batch import TS, WEIGHT, Batch
from falkirk.stream.dataflow.circuit import StepInput
from falkirk.stream.dataflow.operator import joined
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.dataflow.topics import Layout
from falkirk.testing.memory import DictState

Changes = Sequence[tuple[Any, ...]]
"""Rows, each with its weight last."""


class CountingState(DictState):
    """State that counts which keys are read and written."""

    def __init__(self) -> None:
        super().__init__()
        self.gets = self.puts = self.calls = 0

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.calls += 1
        self.gets += len(keys)
        return super().get(keys)

    def put(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        self.puts += len(keys)
        super().put(keys, values)


def joined_by(how: Any, dtype: pl.DataType, **more: Any) -> tuple[fk.Flow, fk.Stream]:
    """Two streams with retractions, joined on their column k."""
    flow = fk.Flow("f")
    sides = []
    for name in ("a", "b"):
        rows = flow.source(name, key=None, value=fk.Json({"k": dtype, "v": fk.Int64}))
        sides.append(rows.group_by("k", "v", id=f"by-{name}").agg(n=fk.len()).select("k", "v"))
    return flow, sides[0].join(sides[1], on="k", how=how, id="join", **more)


class JoinTask:
    """One join."""

    def __init__(self, flow: fk.Flow, stream: fk.Stream, state: DictState | None = None) -> None:
        self.operator: Any = stream._op
        stream.sink("out", key=list(stream.schema) if self.operator.changes else None, value=fk.Json())
        (stage,) = [s for s in flow.plan().stages if self.operator in s.operators]
        counts = {t.topic: 1 for t in (*stage.inputs, *stage.outputs)}
        circuit = stage.circuit(0, Layout(counts))
        assert isinstance(circuit, StageCircuit)
        self.circuit, self.state = circuit, state or DictState()

    def step(self, left: Changes = (), right: Changes = (), time: int = 5) -> list[tuple[Any, ...]]:
        """What it gives: rows, each with its weight last."""
        out = self.batch(left, right, time)
        return [] if out is None else out.rows.hstack(out.meta.select(WEIGHT)).rows()

    def batch(self, left: Changes = (), right: Changes = (), time: int = 5) -> Batch | None:
        """The same with its timestamps."""
        overlay = Overlay(self.state)
        run = StepRun(StepInput(1, []), overlay, self.circuit.failures)
        inputs = [
            batch_of(i.schema, changes, time) for i, changes in zip(self.operator.inputs, (left, right), strict=True)
        ]
        out = joined([self.circuit.runners[self.operator].step(run, *inputs)], weighted=True)
        self.state.put(list(overlay.changes), list(overlay.changes.values()))
        return out


def batch_of(schema: pl.Schema, changes: Changes, time: int) -> Batch | None:
    if not changes:
        return None
    rows = pl.DataFrame([row[:-1] for row in changes], schema, orient="row")
    meta = {TS: [time] * len(changes), WEIGHT: [row[-1] for row in changes]}
    return Batch(rows, pl.DataFrame(meta, {TS: pl.Int64, WEIGHT: pl.Int64}))
