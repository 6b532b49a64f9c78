"""What a step of an inner join costs, over RocksDB, by the rows in its state: it should be flat.

Each key has 5 rows on either side. A step brings 1,000 rows, half to each side.

python bench/joins.py
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl

import falkirk as fk
from falkirk.checkpoint.overlay import Overlay
from falkirk.state.engine import MIB, Engine, Memory
from falkirk.stream.circuit.circuit import StageCircuit
from falkirk.stream.dataflow.batch import TS, Batch
from falkirk.stream.dataflow.circuit import StepInput
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.dataflow.topics import Layout

SIZES = (10_000, 100_000, 1_000_000)
STEP, A_KEY, STEPS, LOAD = 1_000, 5, 20, 20_000


def circuit() -> tuple[Any, StageCircuit]:
    flow = fk.Flow("bench")
    a, b = (flow.source(name, key="k", value=fk.Json({"k": fk.Int64, name: fk.Int64})) for name in ("a", "b"))
    joined = a.join(b, on="k", id="join")
    joined.sink("out", value=fk.Json())
    (stage,) = flow.plan().stages
    bound = stage.circuit(0, Layout({"a": 1, "b": 1, "out": 1}))
    assert isinstance(bound, StageCircuit)
    return joined._op, bound


def batch(schema: pl.Schema, rows: list[tuple[int, int]]) -> Batch:
    return Batch(pl.DataFrame(rows, schema, orient="row"), pl.DataFrame({TS: [5] * len(rows)}))


def step(engine: Engine, operator: Any, bound: StageCircuit, rows: list[tuple[int, int]]) -> float:
    """CPU seconds."""
    half = len(rows) // 2
    inputs = [batch(i.schema, some) for i, some in zip(operator.inputs, (rows[:half], rows[half:]), strict=True)]
    begin = time.process_time()
    state = Overlay(engine)
    bound.runners[operator].step(StepRun(StepInput(1, []), state, bound.failures), *inputs)
    engine.write(state.changes)
    return time.process_time() - begin


def main() -> None:
    operator, bound = circuit()
    first = 0.0
    for size in SIZES:
        rng, keys = random.Random(7), size // (2 * A_KEY)
        with tempfile.TemporaryDirectory() as folder:
            engine = Engine(Path(folder), Memory(128 * MIB, 64 * MIB), create=True)
            for start in range(0, size, LOAD):
                some = [(n // 2 % keys, n) for n in range(start, min(start + LOAD, size))]
                step(engine, operator, bound, some[::2] + some[1::2])
            engine.flush()
            took = median(
                step(engine, operator, bound, [(rng.randrange(keys), rng.randrange(1 << 40)) for _ in range(STEP)])
                for _ in range(STEPS)
            )
            engine.close()
        first = first or took
        print(
            f"{size:>9,} rows of state: {STEP / took:>8,.0f} rows/s of CPU, {took / first:.2f} of the time", flush=True
        )


if __name__ == "__main__":
    main()
