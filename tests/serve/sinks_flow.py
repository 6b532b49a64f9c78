"""A flow without HTTP sources, whose sinks are subscribed to: rows that stay, rows that change, and each change."""

from __future__ import annotations

import os

import falkirk as fk

PREFIX = os.environ.get("PREFIX", "")

flow = fk.Flow(f"{PREFIX}shop", regime=fk.EagerCheckpoint(step="20ms"))
orders = flow.source(f"{PREFIX}orders", value=fk.Json({"item": fk.String, "usd": fk.Int64}))
orders.sink(f"{PREFIX}all", key="item", value=fk.Json())
# An item that ends in the red is not shown: its row is taken back.
totals = orders.group_by("item", id="totals").agg(usd=fk.sum("usd")).filter(fk.col("usd") > 0)
totals.sink(f"{PREFIX}totals", key="item", value=fk.Json())
totals.sink(f"{PREFIX}changes", key="item", value=fk.Json(), changes="weights")
