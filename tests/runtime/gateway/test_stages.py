"""Which stages a request passes: what others do does not keep it from being taken."""

from __future__ import annotations

import falkirk as fk
from falkirk.runtime.gateway.gateway import served_by


def test_only_stages_between_requests_and_answers_count() -> None:
    flow = fk.Flow("shop")
    asked = flow.http("asked", value=fk.Json({"item": str, "usd": int}))
    other = flow.source("other", value=fk.Json({"item": str, "usd": int}))
    answered = asked.repartition("item", id="by-item").repartition("usd", id="by-usd")
    answered.answer("asked")
    answered.repartition("request", id="later").sink("later", value=fk.Json())
    other.group_by("item", id="beside").agg(n=fk.len()).sink("beside", key="item", value=fk.Json())
    taken = flow.http("taken", value=fk.Json({"item": str}))
    taken.repartition("item", id="after").sink("all", value=fk.Json())
    plan = flow.plan()
    assert {stage.id for stage in plan.stages} >= {
        "asked.once",
        "by-item",
        "by-usd",
        "later",
        "beside",
        "taken.once",
        "after",
    }
    served = served_by(plan)
    assert served["asked"].stages == {"asked.once", "by-item", "by-usd"}
    assert served["taken"].stages == {"taken.once"}
