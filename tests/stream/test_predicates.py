"""Several predicates of one column: a range, written as one would."""

from __future__ import annotations

import msgspec

import falkirk as fk
from falkirk.testing.memory import MemoryApp


def test_predicates_of_one_column() -> None:
    flow = fk.Flow("range")
    bids = flow.source("bids", value=fk.Json({"price": fk.Int64}))
    bids.filter(fk.col("price") > 1, fk.col("price") < 5).sink("between", value=fk.Json())
    low, high = bids.branch(fk.col("price") < 3, fk.col("price") < 6)
    low.sink("low", value=fk.Json())
    high.sink("high", value=fk.Json())
    app = MemoryApp(flow)
    for price in range(8):
        app.append("bids", None, msgspec.json.encode({"price": price}))
    app.run()

    def prices(topic: str) -> list[int]:
        return [msgspec.json.decode(record.value() or b"")["price"] for record in app.records(topic)]

    assert (prices("between"), prices("low"), prices("high")) == ([2, 3, 4], [0, 1, 2], [3, 4, 5])
