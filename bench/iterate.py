"""What a step of `iterate` costs beside a computation from nothing: connected components over RocksDB.

A random graph is loaded. Then each step adds 50 edges and takes 50 back. Beside it stands the time in which the same
loop runs over all edges in a batch, and in which DuckDB does the same by a recursive query, if it is asked for.

    python bench/iterate.py --edges 1000000 [--loop reach] [--duckdb]
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import click
import polars as pl

import falkirk as fk
from falkirk.checkpoint.overlay import EmptyReader, Overlay
from falkirk.state.engine import MIB
from falkirk.stream.dataflow.batch import TS, WEIGHT, Batch
from harness.circuits import Operator, engine
from harness.command import command

STEPS, CHANGES = 20, 100


def components(edges: Any, nodes: Any) -> Any:
    """The least node that is connected with each."""

    def least(labels: Any) -> Any:
        told = labels.join(edges, left_on="node", right_on="a").select(node="b", label="label")
        return told.concat(nodes).group_by("node").agg(label=fk.min("label"))

    return nodes.iterate(least, id="loop")


def reach(edges: Any, nodes: Any) -> Any:
    """The nodes that can be reached from node 0."""
    start = nodes.filter(fk.col("node") == 0)

    def further(near: Any) -> Any:
        told = near.join(edges, left_on="node", right_on="a").select(node="b", label=fk.lit(0).cast(fk.Int64))
        return told.concat(start).unique()

    return start.iterate(further, id="loop")


LOOPS: dict[str, Callable[[Any, Any], Any]] = {"components": components, "reach": reach}
SQL = {
    "components": "with recursive l(node, label) using key (node) as (select node, label from nodes union "
    "select e.b, min(l.label) from l join edges e on l.node = e.a join recurring.l r on r.node = e.b "
    "where l.label < r.label group by e.b) select count(*) from l",
    "reach": "with recursive l(node) as (select 0 union select e.b from l join edges e on l.node = e.a) "
    "select count(*) from l",
}


class Task:
    """The loop in one task, without the edges before it."""

    def __init__(self, loop: str) -> None:
        flow = fk.Flow("bench")
        edges = flow.source("edges", value=fk.Json({"a": int, "b": int, "weight": int}), changes="weights")
        nodes = flow.source("nodes", value=fk.Json({"node": int, "label": int, "weight": int}), changes="weights")
        built = LOOPS[loop](edges, nodes)
        built.sink("out", key=sorted(built.schema), value=fk.Json())
        self._loop = Operator(flow, built)

    def step(self, state: Overlay, changes: dict[str, tuple[Sequence[tuple[int, int]], Sequence[int]]]) -> int:
        """Rows of the output's change, for the rows of each stream from outside and their weights."""
        inputs = []
        for before in self._loop.operator.outside:
            rows, weights = changes.get("edges" if "a" in before.schema else "nodes", ((), ()))
            columns = list(zip(*rows, strict=True)) or [(), ()]
            frame = pl.DataFrame([pl.Series(n, c, t) for (n, t), c in zip(before.schema.items(), columns, strict=True)])
            meta = pl.DataFrame({TS: [5] * len(weights), WEIGHT: weights}, {TS: pl.Int64, WEIGHT: pl.Int64})
            inputs.append(Batch(frame, meta) if len(weights) else None)
        found = self._loop.step(state, *inputs)
        return 0 if found is None else len(found)


def timed(work: Callable[[], Any]) -> float:
    """CPU seconds."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


@command(__doc__)
@click.option("--edges", default=20_000, show_default=True, help="Of the graph, both ways counted.")
@click.option(
    "--loop",
    type=click.Choice(list(LOOPS)),
    default="components",
    show_default=True,
    help="Connected components, or the nodes that can be reached from one.",
)
@click.option("--duckdb", "beside", is_flag=True, help="Show DuckDB's time, too.")
def main(edges: int, loop: str, beside: bool) -> None:
    """Measure, and print."""
    count, rng = edges, random.Random(1)
    size = count // 5  # ten neighbours each, on either way
    one_way = {(rng.randrange(size), rng.randrange(size)) for _ in range(count // 2)}
    both = sorted({way for a, b in one_way for way in ((a, b), (b, a))})
    nodes = [(node, node) for node in range(size)]
    task = Task(loop)
    given = {"edges": (both, [1] * len(both)), "nodes": (nodes, [1] * size)}
    recompute = timed(lambda: task.step(Overlay(EmptyReader()), given))
    print(f"{len(both):,} edges, {size:,} nodes: computed from nothing in {recompute:.1f} s of CPU", flush=True)
    if beside:
        import duckdb

        with duckdb.connect() as db:
            db.execute("set threads = 1")
            db.register("edges", pl.DataFrame(both, ["a", "b"], orient="row").to_arrow())
            db.register("nodes", pl.DataFrame(nodes, ["node", "label"], orient="row").to_arrow())
            print(f"DuckDB: {timed(lambda: db.execute(SQL[loop]).fetchall()):.2f} s of CPU", flush=True)
    with engine(cache=256 * MIB) as store:
        state = Overlay(store)
        load = timed(lambda: task.step(state, given))
        load += timed(lambda: store.write(state.changes))
        print(f"loaded into state in {load:.1f} s, {len(state.changes):,} rows of state", flush=True)
        seconds, rows = [], []
        there = set(both)
        given.clear()
        state = Overlay(store)
        gc.freeze()  # what the benchmark itself keeps is not the collector's work in a worker
        for _ in range(STEPS):
            gone = rng.sample(both, CHANGES // 2)
            come = [(rng.randrange(size), rng.randrange(size)) for _ in range(CHANGES // 2)]
            gone = [edge for edge in dict.fromkeys(gone) if edge in there]
            come = [edge for edge in dict.fromkeys(come) if edge not in there]
            there.difference_update(gone)
            there.update(come)
            change = {"edges": ([*gone, *come], [-1] * len(gone) + [1] * len(come))}
            begin = time.process_time()
            state = Overlay(store)
            rows.append(task.step(state, change))
            store.write(state.changes)
            seconds.append(time.process_time() - begin)
    each = median(seconds)
    print(
        f"a step of {CHANGES} changes: {each * 1e3:.1f} ms, {median(rows):.0f} rows of output, "
        f"{recompute / each:,.0f} times less"
    )


if __name__ == "__main__":
    main()
