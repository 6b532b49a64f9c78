"""The flow that the tests of commands and kills start: an eager part, and a lazy one that calls `checked`."""

from __future__ import annotations

FLOW = """
BID = {"id": fk.Int64, "auction": fk.Int64, "bidder": fk.Int64, "price": fk.Int64}
flow = fk.Flow(NAME, regime=fk.EagerCheckpoint(step="50ms"), on_failure="part")
bids = flow.source(PREFIX + "bids", key="auction", value=fk.Json(BID))

def stats(rows, name):
    counts = rows.group_by("auction", id=name).agg(n=fk.len(), top=fk.max("price"), total=fk.sum("price"))
    counts.sink(PREFIX + name, key="auction", value=fk.Json())

def checked(row):
    if poisoned(row):
        raise ValueError("poison")
    return row

stats(bids, "stats")
stats(bids.with_regime(fk.LazyCheckpoint(step="100ms", every="1s")).map(checked), "lazy")
"""
