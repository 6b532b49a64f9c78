"""What a step of session windows costs, over RocksDB, by the sessions in its state: it should be flat.

A step brings 1,000 rows. Most of them prolong the last session of their key; one in ten falls before it.

    python bench/sessions.py [--size 10000000]
"""

from __future__ import annotations

from statistics import median

import click
import numpy as np
import numpy.typing as npt
import polars as pl

import falkirk as fk
from falkirk.stream.dataflow.batch import TS, Batch
from harness.circuits import Operator, engine
from harness.command import command

SIZES = (10_000, 100_000, 1_000_000)
STEP, STEPS, LOAD, SESSIONS_A_KEY = 1_000, 20, 20_000, 4
GAP, APART = 10, 100

Numbers = npt.NDArray[np.int64]


def sessions() -> Operator:
    """The operator of session windows."""
    flow = fk.Flow("bench")
    rows = flow.source("rows", key="k", value=fk.Json({"k": fk.Int64, "t": fk.Int64}))
    found = rows.group_by("k", fk.session("t", f"{GAP}ms"), id="w").agg(n=fk.len(), last=fk.max("t"))
    found.sink("out", key=["k", "window_start"], value=fk.Json())
    return Operator(flow, found)


def batch(keys: Numbers, times: Numbers) -> Batch:
    """The rows of a step."""
    return Batch(pl.DataFrame({"k": keys, "t": times}), pl.DataFrame({TS: [5] * len(keys)}))


def cost(size: int) -> float:
    """CPU seconds of a step."""
    operator, rng, keys = sessions(), np.random.default_rng(7), size // SESSIONS_A_KEY
    with engine() as store:
        for some in np.split(np.arange(size), range(LOAD, size, LOAD)):
            operator.cpu(store, batch(some % keys, some // keys * APART))
        store.flush()
        times = []
        for _ in range(STEPS):
            which = np.where(rng.random(STEP) < 0.9, SESSIONS_A_KEY - 1, rng.integers(0, SESSIONS_A_KEY, STEP))
            rows = batch(rng.integers(0, keys, STEP), which * APART + rng.integers(0, GAP, STEP))
            times.append(operator.cpu(store, rows))
    return median(times)


@command(__doc__)
@click.option(
    "--size", "sizes", type=int, multiple=True, default=SIZES, show_default=True, help="Sessions; may be repeated."
)
def main(sizes: tuple[int, ...]) -> None:
    """Show what a step of 1,000 rows costs."""
    first = 0.0
    for size in sizes:
        took = cost(size)
        first = first or took
        print(
            f"{size:>9,} sessions of state: {STEP / took:>8,.0f} rows/s of CPU, {took / first:.2f} of the time",
            flush=True,
        )


if __name__ == "__main__":
    main()
