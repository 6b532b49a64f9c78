"""The number of bids and the highest one, for each auction.

falkirk dev examples/auction_stats.py:flow                                # prints the address of its Kafka
printf '7\t{"auction":7,"price":120}\n' | python examples/topic.py write bids --brokers ADDRESS
python examples/topic.py read auction-stats --brokers ADDRESS             # 7 {"auction":7,"n":1,"top":120}
"""

from __future__ import annotations

import falkirk as fk

flow = fk.Flow("auction-stats", regime=fk.EagerCheckpoint(step="100ms"))

# The topic is keyed by auction, so all bids of one are in one partition: grouping by it needs no exchange.
bids = flow.source("bids", key="auction", value=fk.Json({"auction": fk.Int64, "price": fk.Int64}))
stats = bids.filter(fk.col("price") > 100).group_by("auction", id="stats").agg(n=fk.len(), top=fk.max("price"))
stats.sink("auction-stats", key="auction", value=fk.Json())
