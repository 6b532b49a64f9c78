"""What a circuit costs, without a broker and a store.

Large steps decide throughput: source → filter → group_by → len, max → sink, on slices of 20,000 records. What is left
when the reading of JSON is taken off is Falkirk's own.
Small steps decide latency: 3 records, with and without a group, and 10 records on their way through two exchanges. The
best of many is shown too, for on a busy machine the median is that of the other programs.

    python bench/circuit.py [--profile]
"""

from __future__ import annotations

import cProfile
import pstats
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import click
import numpy as np
import polars as pl
from confluent_kafka import Message

import falkirk as fk
from falkirk.state.shards import murmur2, murmur2_partition
from falkirk.stream.dataflow.circuit import Circuit, Slice, StepInput, StepOutput
from falkirk.stream.dataflow.records import Records
from falkirk.stream.dataflow.topics import Input, Layout
from falkirk.testing.memory import DictState
from harness.command import command

PARTITIONS, ROWS, KEYS, STEPS, SMALL_STEPS = 4, 20_000, 20_000, 60, 500


def small_step(n: int, size: int = 3) -> StepInput:
    """A few records."""
    messages = [
        Message(topic="in", partition=0, offset=i, key=b"%d" % (i % KEYS), value=b'{"id":%d,"at":%d}' % (i % KEYS, n))
        for i in range(size * n, size * (n + 1))
    ]
    return StepInput(n, [Slice("in", "in", 0, Records.of(messages))])


def small_circuit(*, grouped: bool) -> Circuit:
    flow = fk.Flow("bench")
    rows = flow.source("in", key="id", value=fk.Json({"id": fk.Int64, "at": fk.Int64}))
    out = rows.group_by("id").agg(last=fk.max("at")) if grouped else rows.filter(fk.col("id") >= 0)
    out.sink("out", key="id", value=fk.Json())
    (stage,) = flow.plan().stages
    return stage.circuit(0, Layout({"in": 1, "out": PARTITIONS}))


def edge_step(edge: Input, n: int, before: StepOutput) -> StepInput:
    """What a step of the stage before has sent."""
    values = [value for e in before.emitted for value in e.values]
    records = Records([*range(len(values))], [None] * len(values), values, [n] * len(values))
    return StepInput(n, [Slice(edge.id, edge.topic, 0, records)])


def exchanged() -> list[tuple[str, list[float]]]:
    """The times of small steps in each of three stages with an exchange between them."""
    flow = fk.Flow("bench")
    rows = flow.source("in", key="id", value=fk.Json({"id": fk.Int64, "at": fk.Int64}))
    rows.repartition("at").repartition("id").sink("out", key="id", value=fk.Json())
    stages, found, made = flow.plan().stages, [], list[StepOutput]()
    counts = {topic.topic: PARTITIONS for stage in stages for topic in (*stage.inputs, *stage.outputs)}
    given = [small_step(n, 10) for n in range(SMALL_STEPS)]
    for stage in stages:
        if stage is not stages[0]:
            given = [edge_step(stage.inputs[0], n, out) for n, out in enumerate(made)]
        run, state, made = stage.circuit(0, Layout({**counts, "in": 1})).run, DictState(), []
        found.append((stage.id, [timed(lambda: made.append(run(step, state))) for step in given]))  # noqa: B023  # called here
    return found


def circuit() -> Circuit:
    flow = fk.Flow("bench")
    bids = flow.source("bids", key="auction", value=fk.Json({"auction": fk.Int64, "price": fk.Int64}))
    stats = bids.filter(fk.col("price") > 100).group_by("auction", id="stats").agg(n=fk.len(), top=fk.max("price"))
    stats.sink("auction-stats", key="auction", value=fk.Json())
    (stage,) = flow.plan().stages
    return stage.circuit(0, Layout({"bids": PARTITIONS, "auction-stats": PARTITIONS}))


def steps() -> list[StepInput]:
    """Steps of partition 0, which holds about a quarter of the keys: 5,000."""
    rng = np.random.default_rng(7)
    spelt = [b"%d" % k for k in range(KEYS)]
    here = np.flatnonzero(murmur2_partition(murmur2(spelt), PARTITIONS) == 0)
    made = []
    for n in range(STEPS):
        keys, prices = rng.choice(here, ROWS).tolist(), rng.integers(1, 10_000, ROWS).tolist()
        messages = [
            Message(
                topic="bids",
                partition=0,
                offset=n * ROWS + i,
                key=b"%d" % k,
                value=b'{"auction":%d,"price":%d}' % (k, p),
                timestamp=(1, 1_700_000_000_000 + i),
            )
            for i, (k, p) in enumerate(zip(keys, prices, strict=True))
        ]
        made.append(StepInput(1_700_000_000_000 + n, [Slice("bids", "bids", 0, Records.of(messages))]))
    return made


def decode(step: StepInput) -> pl.DataFrame:
    """The floor: nothing but reading JSON."""
    values = [value or b"" for value in step.slices[0].records.values]
    return pl.read_ndjson(b"\n".join(values), schema={"auction": pl.Int64, "price": pl.Int64})


def timed(call: Callable[[], object]) -> float:
    """Seconds."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


@command(__doc__)
@click.option("--profile", is_flag=True, help="Show where the time goes, function by function.")
def main(profile: bool) -> None:
    """Measure, and print."""
    for name, grouped in (("filter", False), ("group_by", True)):
        run, of_small = small_circuit(grouped=grouped).run, DictState()
        small_steps = [small_step(n) for n in range(SMALL_STEPS)]
        times = [timed(partial(run, step, of_small)) for step in small_steps]
        print(f"3 records, {name}: {min(times) * 1e3:.2f} ms at best, median {median(times) * 1e3:.2f} ms")
    for stage, times in exchanged():
        print(f"10 records, stage {stage}: {min(times) * 1e3:.2f} ms at best, median {median(times) * 1e3:.2f} ms")
    all_steps, bound, state = steps(), circuit(), DictState()
    for step in all_steps[:5]:
        bound.run(step, state)
    profiler = cProfile.Profile()
    if profile:
        profiler.enable()
    whole = [timed(lambda step=step: bound.run(step, state)) for step in all_steps]
    profiler.disable()
    decoding = [timed(lambda step=step: decode(step)) for step in all_steps]
    per_row = 1e6 / ROWS
    for name, of in (("at best", min), ("median", median)):
        print(f"{ROWS} records, µs a row, {name}: run() {of(whole) * per_row:.3f}", end=", ")
        print(f"read_ndjson {of(decoding) * per_row:.3f}, the rest {(of(whole) - of(decoding)) * per_row:.3f}")
    if profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
