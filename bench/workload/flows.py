"""Falkirk's side of the comparison. Names come from the environment, so that every run is an app of its own.

BENCH_APP, BENCH_SOURCE, BENCH_TARGET: the flow's name and its topics.
"""

from __future__ import annotations

import os
import time

import polars as pl

import falkirk as fk

APP = os.environ.get("BENCH_APP", "bench")
SOURCE = os.environ.get("BENCH_SOURCE", "bids")
TARGET = os.environ.get("BENCH_TARGET", "stats")

EAGER = fk.EagerCheckpoint(step="100ms")
LAZY = fk.LazyCheckpoint(step="100ms")


def counts(regime: fk.EagerCheckpoint | fk.LazyCheckpoint, by: str) -> fk.Flow:
    """How many bids each key had, and the highest. The topic is keyed by auction: any other key takes an exchange."""
    flow = fk.Flow(APP, regime=regime)
    value = fk.Json({"auction": fk.Int64, by: fk.Int64, "price": fk.Int64})
    bids = flow.source("bids", topic=SOURCE, key="auction", value=value)
    stats = bids.group_by(by, id="stats").agg(n=fk.len(), top=fk.max("price"))
    stats.sink("stats", topic=TARGET, key=by, value=fk.Json())
    return flow


def stamps(*, grouped: bool) -> fk.Flow:
    """When each bid was sent: passed through, or the latest of each auction."""
    flow = fk.Flow(APP, regime=EAGER)
    value = fk.Json({"auction": fk.Int64, "sent": fk.Int64})
    bids = flow.source("bids", topic=SOURCE, key="auction", value=value)
    if grouped:
        bids = bids.group_by("auction", id="stats").agg(n=fk.len(), sent=fk.max("sent"))
    bids.sink("stamps", topic=TARGET, key="auction", value=fk.Json())
    return flow


def hops(exchanges: int) -> fk.Flow:
    """When each bid was sent, behind so many exchanges."""
    flow = fk.Flow(APP, regime=fk.EagerCheckpoint(step="20ms"))
    value = fk.Json({"auction": fk.Int64, "price": fk.Int64, "sent": fk.Int64})
    bids = flow.source("bids", topic=SOURCE, key="auction", value=value)
    for column in ["price", "auction"][:exchanges]:
        bids = bids.repartition(column)
    bids.sink("stamps", topic=TARGET, key="auction", value=fk.Json())
    return flow


def beside(computes: bool | None) -> fk.Flow:
    """When each bid was sent, in steps of 50 ms. Beside that, if it computes or waits, a lazy part in steps of 2 s, each of
    which takes a second."""
    flow = fk.Flow(APP, regime=fk.EagerCheckpoint(step="50ms"))
    value = fk.Json({"auction": fk.Int64, "sent": fk.Int64})
    bids = flow.source("bids", topic=SOURCE, key="auction", value=value)
    bids.sink("stamps", topic=TARGET, key="auction", value=fk.Json())

    def slow(rows: pl.DataFrame) -> pl.DataFrame:
        end = time.monotonic() + 1.0
        while computes and time.monotonic() < end:
            sum(range(1_000))
        time.sleep(max(0.0, end - time.monotonic()))
        return rows

    if computes is not None:
        lazy = bids.with_regime(fk.LazyCheckpoint(step="2s"))
        lazy.map_batches(slow).sink("slow", topic=f"{TARGET}.slow", key="auction", value=fk.Json())
    return flow


def computed(*, grouped: bool = False, **more: type) -> fk.Flow:
    """One epoch of a batch part: a row for each bid, with all of its columns, or for each auction."""
    flow = fk.Flow(APP)
    value = fk.Json({"auction": fk.Int64, "bidder": fk.Int64, "price": fk.Int64, **more})
    bids = flow.source("bids", topic=SOURCE, key="auction", value=value).with_regime(fk.Batch(every=None))
    if grouped:
        bids = bids.group_by("auction", id="stats").agg(n=fk.len(), top=fk.max("price"))
    bids.sink("computed", topic=TARGET, key="auction", value=fk.Json())
    return flow


eager = counts(EAGER, "auction")
lazy = counts(LAZY, "auction")
exchange = counts(EAGER, "bidder")
echo = stamps(grouped=False)
latest = stamps(grouped=True)
alone, computes, waits = beside(None), beside(True), beside(False)
hops0, hops1, hops2 = hops(0), hops(1), hops(2)
copied = computed()
padded = computed(pad=str)
totals = computed(grouped=True)
