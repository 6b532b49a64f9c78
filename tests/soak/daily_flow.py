"""A flow as teams have it: Avro under a registry, records that cannot be read, a source in another cluster, and a password.

In a file of its own, for not everybody who runs the others has what Avro needs.
"""

from __future__ import annotations

import os

import falkirk as fk

registry = fk.Registry(os.environ.get("SOAK_REGISTRY", "http://127.0.0.1:1"))
BID = fk.Avro({"id": fk.Int64, "auction": fk.Int64, "bidder": fk.Int64, "price": fk.Int64}, registry=registry)


def count(bids: fk.Stream, by: str, name: str) -> None:
    """A row for each `by`, in the topic `name`."""
    stats = bids.group_by(by, id=name).agg(n=fk.len(), top=fk.max("price"), total=fk.sum("price"))
    stats.sink(name, key=by, value=fk.Avro(registry=registry))


daily = fk.Flow("soak-daily", regime=fk.EagerCheckpoint(step="100ms", every="20s"))
bids = daily.source("bids", cluster="sales", key="auction", value=BID)
count(bids, "auction", "eager")
lazily = bids.select("bidder", "price").with_regime(fk.LazyCheckpoint(step="100ms", every="15s"), id="lazily")
count(lazily, "bidder", "lazy-bidders")
