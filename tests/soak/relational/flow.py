"""An interval join, sessions, top-k and a loop, fed by rows of which some come late: in both regimes."""

from __future__ import annotations

import falkirk as fk

BID = {"id": fk.Int64, "auction": fk.Int64, "bidder": fk.Int64, "price": fk.Int64, "at": fk.Int64}
EAGER = fk.EagerCheckpoint(step="100ms", every="20s")
LAZY = fk.LazyCheckpoint(step="100ms", every="15s")

relational = fk.Flow("soak-relational", regime=EAGER)
bids = relational.source("bids", key="auction", time="at", late="90ms", value=fk.Json(BID))
bids.late.sink("late-bids", key="auction", value=fk.Json())

sessions = bids.group_by("auction", fk.session("at", gap="200ms"), id="sessions").agg(n=fk.len(), top=fk.max("price"))
sessions.sink("sessions", key=["auction", "window_start"], value=fk.Json(), changes="weights")
sessions.final().sink("sessions-final", key="auction", value=fk.Json())
visits = sessions.group_by("auction", id="visits").agg(sessions=fk.len(), bids=fk.sum("n"), longest=fk.max("n"))
visits.sink("visits", key="auction", value=fk.Json())

last = bids.group_by("auction", id="last").top_k(1, by=["at", "id"])
best = (
    last.select("auction", "bidder", "price")
    .group_by("bidder", id="best")
    .top_k(2, by=["price", "auction"], rank="rank")
)
best.sink("best", key=["bidder", "rank"], value=fk.Json())

lazily = bids.with_regime(LAZY, id="lazily").select("bidder", "id", "at", "price")
low, high = lazily.filter(fk.col("price") < 5_000), lazily.filter(fk.col("price") >= 5_000)
pairs = low.join(high, on="bidder", within=("-200ms", "600ms"), how="left", id="pairs")
pairs.sink("pairs", key=["bidder", "id", "id_right"], value=fk.Json(), changes="weights")
gain = fk.col("price_right") - fk.col("price")
pairs.group_by("bidder", id="paired").agg(n=fk.len(), gain=fk.sum(gain)).sink("paired", key="bidder", value=fk.Json())

few = last.filter(fk.col("auction") < 32).with_regime(LAZY, id="links")
links = few.select(node="auction", to=fk.col("bidder") % 32)


def further(near: fk.Stream) -> fk.Stream:
    """The nodes that a node leads to, directly or through others."""
    longer = near.join(links, left_on="to", right_on="node", suffix="_2").select("node", to="to_2")
    return longer.concat(links).unique()


links.iterate(further, id="near").sink("near", key=["node", "to"], value=fk.Json())
