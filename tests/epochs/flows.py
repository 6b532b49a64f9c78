"""What the trial runs: `totals` computes the whole again each time, `added` what is new; `live` is streamed beside them, and
so is `told`, which looks up in `totals`."""

from __future__ import annotations

import falkirk as fk

BID = {"id": fk.Int64, "auction": fk.Int64, "bidder": fk.Int64, "price": fk.Int64}

flow = fk.Flow("epochs")
bids = flow.source("bids", key="auction", value=fk.Json(BID))
bids.group_by("auction", id="live").agg(n=fk.len(), top=fk.max("price")).sink("live", key="auction", value=fk.Json())

# Auctions come and go in the result, so that there are rows to be buried.
whole = bids.with_regime(fk.Batch(every="2s"), id="whole")
totals = whole.filter(fk.col("price") >= 100).group_by("auction", id="totals").agg(n=fk.len(), sum=fk.sum("price"))
totals.filter(fk.col("n") % 3 != 0).sink("totals", key="auction", value=fk.Json())

TOTAL = {"auction": fk.Int64, "n": fk.Int64, "sum": fk.Int64}
table = flow.table("totals", key="auction", value=fk.Json(TOTAL), broadcast=True)
told = bids.lookup(table, columns={"n": "known", "sum": "so_far"}).select("id", "auction", "known", "so_far")
told.sink("told", key="auction", value=fk.Json())

new = bids.with_regime(fk.Batch(every="3s", history="new"), id="new")
named = new.map(
    lambda bid: {"bidder": f"b{bid['bidder']}", "price": bid["price"]}, returns={"bidder": fk.String, "price": fk.Int64}
)
named.group_by("bidder", id="added").agg(n=fk.len(), top=fk.max("price")).sink("added", key="bidder", value=fk.Json())
