"""What a step of `iterate` costs beside a computation from nothing: connected components over RocksDB.

A random graph is loaded. Then each step adds 50 edges and takes 50 back. Beside it stands the time in which the same
loop runs over all edges in a batch, and in which DuckDB does the same by a recursive query, if it is asked for.

python bench/iterate.py --edges 1000000 [--loop reach] [--duckdb]
"""

from __future__ import annotations

import argparse
import gc
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl

import falkirk as fk
from falkirk.checkpoint.overlay import EmptyReader, Overlay
from falkirk.state.engine import MIB, Engine, Memory
from falkirk.stream.circuit.circuit import StageCircuit
from falkirk.stream.dataflow.batch import TS, WEIGHT, Batch
from falkirk.stream.dataflow.circuit import StepInput
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.dataflow.topics import Layout

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
        self.operator = built._op
        (stage,) = [s for s in flow.plan().stages if self.operator in s.operators]  # type: ignore[attr-defined]
        circuit = stage.circuit(0, Layout({t.topic: 1 for t in (*stage.inputs, *stage.outputs)}))
        assert isinstance(circuit, StageCircuit)
        self.circuit = circuit

    def step(self, state: Overlay, changes: dict[str, tuple[Sequence[tuple[int, int]], Sequence[int]]]) -> int:
        """Rows of the output's change, for the rows of each stream from outside and their weights."""
        inputs = []
        for before in self.operator.outside:
            rows, weights = changes.get("edges" if "a" in before.schema else "nodes", ((), ()))
            columns = list(zip(*rows, strict=True)) or [(), ()]
            frame = pl.DataFrame([pl.Series(n, c, t) for (n, t), c in zip(before.schema.items(), columns, strict=True)])
            meta = pl.DataFrame({TS: [5] * len(weights), WEIGHT: weights}, {TS: pl.Int64, WEIGHT: pl.Int64})
            inputs.append(Batch(frame, meta) if len(weights) else None)
        run = StepRun(StepInput(1, []), state, self.circuit.failures)
        found = self.circuit.runners[self.operator].step(run, *inputs)
        return 0 if found is None else len(found)


def timed(work: Callable[[], Any]) -> float:
    """CPU seconds."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--edges", type=int, default=20_000)
    parser.add_argument("--loop", choices=LOOPS, default="components")
    parser.add_argument("--duckdb", action="store_true")
    options = parser.parse_args()
    count, rng = options.edges, random.Random(1)
    size = count // 5  # ten neighbours each, on either way
    edges = {(rng.randrange(size), rng.randrange(size)) for _ in range(count // 2)}
    both = sorted({way for a, b in edges for way in ((a, b), (b, a))})
    nodes = [(node, node) for node in range(size)]
    task = Task(options.loop)
    given = {"edges": (both, [1] * len(both)), "nodes": (nodes, [1] * size)}
    recompute = timed(lambda: task.step(Overlay(EmptyReader()), given))
    print(f"{len(both):,} edges, {size:,} nodes: computed from nothing in {recompute:.1f} s of CPU", flush=True)
    if options.duckdb:
        import duckdb

        with duckdb.connect() as db:
            db.execute("set threads = 1")
            db.register("edges", pl.DataFrame(both, ["a", "b"], orient="row").to_arrow())
            db.register("nodes", pl.DataFrame(nodes, ["node", "label"], orient="row").to_arrow())
            print(f"DuckDB: {timed(lambda: db.execute(SQL[options.loop]).fetchall()):.2f} s of CPU", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(Path(folder) / "db", Memory(256 * MIB, 64 * MIB), create=True)
        state = Overlay(engine)
        load = timed(lambda: task.step(state, given))
        load += timed(lambda: engine.write(state.changes))
        print(f"loaded into state in {load:.1f} s, {len(state.changes):,} rows of state", flush=True)
        seconds, rows = [], []
        there = set(both)
        given.clear()
        state = Overlay(engine)
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
            state = Overlay(engine)
            rows.append(task.step(state, change))
            engine.write(state.changes)
            seconds.append(time.process_time() - begin)
    each = median(seconds)
    print(
        f"a step of {CHANGES} changes: {each * 1e3:.1f} ms, {median(rows):.0f} rows of output, "
        f"{recompute / each:,.0f} times less"
    )


if __name__ == "__main__":
    main()
