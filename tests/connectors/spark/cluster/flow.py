"""What the cluster's executors get by value: they cannot import this file."""

from __future__ import annotations

import os
import time
from typing import Any

import falkirk as fk

PREFIX = os.environ.get("TOPICS", "")
SLOW = 0.005
"""Seconds a record: an epoch lasts long enough to be harmed in its middle."""


def named(bid: dict[str, Any]) -> dict[str, Any]:
    time.sleep(SLOW)
    return {"name": f"bidder {bid['bidder']}", "price": bid["price"]}


flow = fk.Flow(f"{PREFIX}app", regime=fk.Batch())
bids = flow.source(
    "bids", topic=f"{PREFIX}bids", key="auction", value=fk.Json({"auction": int, "bidder": int, "price": int})
)
bidders = bids.map(named, returns={"name": str, "price": int}).group_by("name", id="bidders")
totals = bidders.agg(n=fk.len(), total=fk.sum("price"), top=fk.max("price")).filter(fk.col("n") % 3 != 0)
totals.sink("totals", topic=f"{PREFIX}totals", key="name", value=fk.Json())
