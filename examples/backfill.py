"""The best bid of each auction, over a topic that has been there for years: computed by Spark first, and streamed from there.

falkirk backfill examples/backfill.py:flow --brokers ADDRESS     # all that is there now, on all cores; needs falkirk[spark]
falkirk run      examples/backfill.py:flow --brokers ADDRESS     # what comes from here on
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import falkirk as fk

flow = fk.Flow("best-bids")
bids = flow.source("old-bids", key="auction", value=fk.Json({"auction": fk.Int64, "bidder": str, "price": fk.Int64}))


class Best(fk.Process):
    """Says who leads, whenever that changes: state that no backfill could make from a query's result alone."""

    state = {"bidder": str, "price": int}
    returns = {"auction": int, "bidder": str, "price": int}

    def on_row(self, row: dict[str, Any], key: fk.KeyContext) -> Iterator[dict[str, Any]]:
        best = key.get()
        if best is None or row["price"] > best["price"]:
            key.put({"bidder": row["bidder"], "price": row["price"]})
            yield row


leading = bids.key_by("auction").process(Best(), id="best")
leading.sink("leading-bids", key="auction", value=fk.Json())

# How many auctions a bidder has led in: through an exchange, whose rows Spark brings together.
leading.group_by("bidder", id="leaders").agg(times=fk.len()).sink("leaders", key="bidder", value=fk.Json())
