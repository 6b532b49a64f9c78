"""What a step of a join costs, over RocksDB, by the rows in its state: it should be flat.

    many      each key has 5 rows on either side
    one       each key has one row on either side, and each row finds its partner
    hot       one key has all rows of the left side; rows of the right side come for other keys
    interval  each key has 5 rows on either side, and finds those near it in time; all rows of the state can find partners

A step brings 1,000 rows, half to each side; in `one` also 10,000.

    python bench/joins.py [many one hot interval] [--sizes 10000,100000,1000000]
"""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import median
from typing import Any

import click
import polars as pl

import falkirk as fk
from falkirk.state.engine import Engine
from falkirk.stream.dataflow.batch import TS, Batch
from falkirk.stream.dataflow.event_time import Watermark
from harness.circuits import Operator, engine
from harness.command import command

A_KEY, STEPS, LOAD = 5, 20, 20_000
Rows = list[tuple[int, int]]
Sides = tuple[Rows, Rows]
"""Of both sides, key and value; the value is the event time of an interval join."""


class Bench:
    """A join over a store of its own."""

    def __init__(self, engine: Engine, within: tuple[str, str] | None) -> None:
        flow = fk.Flow("bench")
        value = fk.Json({"k": fk.Int64, "at": fk.Int64})
        more: Any = {"time": "at", "late": "0s"} if within else {}
        a, b = (flow.source(name, key="k", value=value, **more) for name in ("a", "b"))
        joined = a.join(b, on="k", within=within, id="join")
        joined.sink("out", value=fk.Json())
        self.engine, self._join, self._watermark = engine, Operator(flow, joined), 0

    def step(self, sides: Sides, watermark: int = 0) -> float:
        """CPU seconds."""
        inputs = [
            Batch(pl.DataFrame(rows, i.schema, orient="row"), pl.DataFrame({TS: [5] * len(rows)}, {TS: pl.Int64}))
            for i, rows in zip(self._join.operator.inputs, sides, strict=True)
        ]
        moved = Watermark(self._watermark, watermark, idle=False) if watermark else None
        self._watermark = watermark
        return self._join.cpu(self.engine, *inputs, watermark=moved)


def many(bench: Bench, size: int, rows: int) -> float:
    rng, keys = random.Random(7), size // (2 * A_KEY)
    for start in range(0, size, LOAD):
        some = [(n // 2 % keys, n) for n in range(start, min(start + LOAD, size))]
        bench.step((some[::2], some[1::2]))
    bench.engine.flush()

    def side() -> Rows:
        return [(rng.randrange(keys), rng.randrange(1 << 40)) for _ in range(rows // 2)]

    return median(bench.step((side(), side())) for _ in range(STEPS))


def one(bench: Bench, size: int, rows: int) -> float:
    for start in range(0, size, LOAD):
        bench.step(([(n, n) for n in range(start, min(start + LOAD, size))], []))
    bench.engine.flush()
    took, half, keys = [], rows // 2, list(range(size))
    random.Random(7).shuffle(keys)
    for n in range(STEPS):
        new = range(size + n * half, size + (n + 1) * half)
        partners = [keys[i % size] for i in range(n * half, (n + 1) * half)]
        took.append(bench.step(([(k, k) for k in new], [(k, k) for k in partners])))
    return median(took)


def hot(bench: Bench, size: int, rows: int) -> float:
    for start in range(0, size, LOAD):
        bench.step(([(1, n) for n in range(start, min(start + LOAD, size))], []))
    bench.engine.flush()
    half = rows // 2
    begins = [size + n * half for n in range(STEPS)]
    return median(
        bench.step(([(1, n + i) for i in range(half)], [(n + i + 2, n) for i in range(half)])) for n in begins
    )


def interval(bench: Bench, size: int, rows: int) -> float:
    """A row a millisecond on either side; each is kept for as long as `size` rows take to come."""
    rng, keys, at = random.Random(7), size // (2 * A_KEY), 10**9
    took: list[float] = []
    while at < 10**9 + size // 2 + (STEPS + 5) * rows // 2:
        count = LOAD // 2 if at < 10**9 + size // 2 else rows // 2
        a, b = ([(rng.randrange(keys), at + i) for i in range(count)] for _ in range(2))
        spent = bench.step((a, b), at)
        at += count
        took += [spent] if count < LOAD // 2 else []
    return median(took)


KINDS: dict[str, tuple[Callable[[Bench, int, int], float], tuple[int, ...]]] = {
    "many": (many, (1_000,)), "one": (one, (1_000, 10_000)), "hot": (hot, (1_000,)), "interval": (interval, (1_000,)),
}  # fmt: skip


@command(__doc__)
@click.argument("kinds", nargs=-1, type=click.Choice(list(KINDS)))
@click.option(
    "--sizes", default="10000,100000,1000000", show_default=True, help="Rows of state, one number after another."
)
def main(kinds: tuple[str, ...], sizes: str) -> None:
    """Show what a step costs."""
    for kind in kinds or KINDS:
        measure, steps = KINDS[kind]
        for rows in steps:
            first = 0.0
            for size in map(int, sizes.split(",")):
                within = (f"-{size // 2}ms", f"{size // 2}ms") if kind == "interval" else None
                with engine() as store:
                    took = measure(Bench(store, within), size, rows)
                first = first or took
                print(
                    f"{kind:8} {size:>10,} rows of state, steps of {rows:,}: "
                    f"{rows / took:>8,.0f} rows/s of CPU, {took / first:.2f} of the time",
                    flush=True,
                )


if __name__ == "__main__":
    main()
