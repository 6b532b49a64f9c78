"""What a step of session windows costs, over RocksDB, by the sessions in its state: it should be flat.

A step brings 1,000 rows. Most of them prolong the last session of their key; one in ten falls before it.

python bench/sessions.py
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
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
STEP, STEPS, LOAD, SESSIONS_A_KEY = 1_000, 20, 20_000, 4
GAP, APART = 10, 100

Numbers = npt.NDArray[np.int64]


def circuit() -> tuple[Any, StageCircuit]:
    flow = fk.Flow("bench")
    rows = flow.source("rows", key="k", value=fk.Json({"k": fk.Int64, "t": fk.Int64}))
    found = rows.group_by("k", fk.session("t", f"{GAP}ms"), id="w").agg(n=fk.len(), last=fk.max("t"))
    found.sink("out", key=["k", "window_start"], value=fk.Json())
    (stage,) = flow.plan().stages
    bound = stage.circuit(0, Layout({"rows": 1, "out": 1}))
    assert isinstance(bound, StageCircuit)
    return found._op, bound


def step(engine: Engine, operator: Any, bound: StageCircuit, keys: Numbers, times: Numbers) -> float:
    """CPU seconds."""
    batch = Batch(pl.DataFrame({"k": keys, "t": times}), pl.DataFrame({TS: [5] * len(keys)}))
    begin = time.process_time()
    state = Overlay(engine)
    bound.runners[operator].step(StepRun(StepInput(1, []), state, bound.failures), batch)
    engine.write(state.changes)
    return time.process_time() - begin


def main() -> None:
    operator, bound = circuit()
    first = 0.0
    for size in SIZES:
        rng, keys = np.random.default_rng(7), size // SESSIONS_A_KEY
        with tempfile.TemporaryDirectory() as folder:
            engine = Engine(Path(folder), Memory(128 * MIB, 64 * MIB), create=True)
            every = np.arange(size)
            for some in np.split(every, range(LOAD, size, LOAD)):
                step(engine, operator, bound, some % keys, some // keys * APART)
            engine.flush()
            times = []
            for _ in range(STEPS):
                which = np.where(rng.random(STEP) < 0.9, SESSIONS_A_KEY - 1, rng.integers(0, SESSIONS_A_KEY, STEP))
                times.append(
                    step(
                        engine, operator, bound, rng.integers(0, keys, STEP), which * APART + rng.integers(0, GAP, STEP)
                    )
                )
            engine.close()
        took = median(times)
        first = first or took
        print(
            f"{size:>9,} sessions of state: {STEP / took:>8,.0f} rows/s of CPU, {took / first:.2f} of the time",
            flush=True,
        )


if __name__ == "__main__":
    main()
