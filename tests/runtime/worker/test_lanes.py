"""Two stages may read one topic, and one consumer cannot hold a partition twice."""

from __future__ import annotations

import pytest

import falkirk as fk
from falkirk.runtime.worker.reading.inputs import gathers, lanes_of


def test_stages_that_read_one_topic_have_consumers_of_their_own() -> None:
    flow = fk.Flow("two-regimes")
    bids = flow.source("bids", key="auction", value=fk.Json({"auction": fk.Int64, "price": fk.Int64}))
    bids.group_by("auction", id="eager").agg(n=fk.len()).sink("eager", key="auction", value=fk.Json())
    lazy = bids.with_regime(fk.LazyCheckpoint(), id="lazy")
    lazy.group_by("price", id="prices").agg(n=fk.len()).sink("prices", key="price", value=fk.Json())
    stages = flow.plan().stages
    assert [(s.id, [i.topic for i in s.inputs]) for s in stages] == [
        ("eager", ["bids"]),
        ("lazy", ["bids"]),
        ("prices", ["falkirk.two-regimes.edge.prices"]),
    ]
    assert lanes_of(stages) == {"eager": 0, "lazy": 1, "prices": 0}


@pytest.mark.parametrize(("step", "many"), [("100ms", False), ("999ms", False), ("1s", True), ("2s", True)])
def test_only_a_consumer_of_slow_stages_fetches_many_records_at_a_time(step: str, many: bool) -> None:
    flow = fk.Flow("slow", regime=fk.LazyCheckpoint(step=step))
    bids = flow.source("bids", key="auction", value=fk.Json({"auction": fk.Int64, "price": fk.Int64}))
    bids.group_by("price", id="prices").agg(n=fk.len()).sink("prices", key="price", value=fk.Json())
    stages = flow.plan().stages
    assert len(stages) == 2
    assert gathers(stages) == many
