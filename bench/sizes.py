"""What a step costs by the size of its state: join, window, unique, top-k. It should be flat.

    python bench/sizes.py [--size 10000000] [--only join]

A circuit without a broker, over RocksDB: decoding, operators, writing of the state. The state has as many rows as the
size. All of it is read once, so that the cache holds what fits: block cache and write buffers have 192 MiB. Then steps of
1,000 rows touch keys all over it. CPU seconds; the median of 20 steps.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np
import polars as pl

import falkirk as fk
from falkirk.stream.dataflow.records import Records
from harness.circuits import CLOCK, Stages
from harness.command import command

STEP, STEPS, LOAD, SIZES = 1_000, 20, 20_000, (10_000, 100_000, 1_000_000)
HOUR = 3_600_000
VALUE = fk.Json({"k": fk.Int64, "n": fk.Int64, "t": fk.Int64})


def source(flow: fk.Flow, name: str) -> Any:
    return flow.source(name, key="k", value=VALUE, time="t", late="1h")


def join(flow: fk.Flow) -> Any:
    a, b = source(flow, "a"), source(flow, "b").select("k", m=fk.col("n"))
    return a.join(b, on="k", id="join"), None


def window(flow: fk.Flow) -> Any:
    return source(flow, "a").group_by("k", fk.tumbling("t", "1h"), id="w").agg(n=fk.len()), ["k", "window_start"]


def unique(flow: fk.Flow) -> Any:
    return source(flow, "a").select("k", "n").unique(id="unique"), None


def top_k(flow: fk.Flow) -> Any:
    return source(flow, "a").select("k", "n").group_by("k", id="top").top_k(3, by="n", rank="rank"), ["k", "rank"]


@dataclass(frozen=True)
class Case:
    """An operator, and how many rows of its state a key has."""

    made: Callable[[fk.Flow], Any]
    inputs: tuple[str, ...]
    each: int


CASES: Mapping[str, Case] = {
    "join": Case(join, ("a", "b"), 4), "window": Case(window, ("a",), 1), "unique": Case(unique, ("a",), 10),
    "top_k": Case(top_k, ("a",), 3),
}  # fmt: skip


def rows(inputs: tuple[str, ...], keys: np.ndarray, numbers: np.ndarray, at: Mapping[str, int]) -> dict[str, Records]:
    """Rows, turn by turn for each input."""
    found = {}
    for i, name in enumerate(inputs):
        k, n = keys[i :: len(inputs)], numbers[i :: len(inputs)]
        frame = pl.DataFrame({"k": k, "n": n, "t": np.full(len(k), CLOCK - HOUR)})
        spelt = frame["k"].cast(pl.String).cast(pl.Binary).to_list()
        offsets = list(range(at[name], at[name] + len(k)))
        found[name] = Records(offsets, spelt, list(fk.Json().encode(frame)), [CLOCK] * len(k))
    return found


def cost(case: Case, size: int) -> float:
    """CPU seconds of a step."""
    flow, random = fk.Flow("bench", regime=fk.EagerCheckpoint()), np.random.default_rng(7)
    result, key = case.made(flow)
    result.sink("out", key=key, value=fk.Json())
    keys, at, clock = max(1, size // case.each), dict.fromkeys(case.inputs, 0), CLOCK
    with tempfile.TemporaryDirectory() as folder:
        stages = Stages(flow, Path(folder))

        def step(k: np.ndarray, n: np.ndarray) -> float:
            nonlocal clock
            read, clock = rows(case.inputs, k, n, at), clock + 100
            for name, records in read.items():
                at[name] += len(records)
            begin = time.process_time()
            stages.run(clock, read)
            return time.process_time() - begin

        for start in range(0, size, LOAD):
            n = np.arange(start, min(start + LOAD, size))
            step(n // len(case.inputs) % keys, n)
        for engine in stages.engines:
            engine.flush()
            deque(engine.scan(b"", b"\xff" * 32), maxlen=0)  # a state that runs for long is in the cache, if it fits
        took = median(step(random.integers(0, keys, STEP), random.integers(size, 1 << 40, STEP)) for _ in range(STEPS))
        stages.close()
    return took


@command(__doc__)
@click.option(
    "--size", "sizes", type=int, multiple=True, default=SIZES, show_default=True, help="Rows; may be repeated."
)
@click.option("--only", type=click.Choice(list(CASES)), multiple=True, help="Measure this alone; may be repeated.")
def main(sizes: tuple[int, ...], only: tuple[str, ...]) -> None:
    """Show what a step of 1,000 rows costs."""
    for name in only or CASES:
        first = 0.0
        for size in sizes:
            took = cost(CASES[name], size)
            first = first or took
            print(f"{name:<8}{size:>11,} rows of state: {took * 1e3:>7.1f} ms, {took / first:.2f} times", flush=True)


if __name__ == "__main__":
    main()
