"""The flow under test: of each request it counts which one it is of its item, so that one that was computed twice is seen."""

from __future__ import annotations

import os

import falkirk as fk

PREFIX = os.environ.get("PREFIX", "")


class Numbering(fk.Process):
    """Numbers the requests of each item: 1, 2, 3 …"""

    state = {"n": fk.Int64}  # noqa: RUF012

    def on_row(self, row, key):
        n = (key.get() or {"n": 0})["n"] + 1
        key.put({"n": n})
        yield {"request": row["request"], "item": row["item"], "n": n}


flow = fk.Flow(f"{PREFIX}shop", regime=fk.EagerCheckpoint(step="20ms"))
BODY = {"item": fk.String, "usd": fk.Int64}

# Answered in the step that reads the request: a state of its own, in the task of the request.
taxed = flow.http("taxed", value=fk.Json(BODY), topic=f"{PREFIX}taxed", partitions=2, keep="1h")
taxed.sink(f"{PREFIX}seen", key="request", value=fk.Json())
taxed.filter(fk.col("usd") > 0).with_columns(tax=fk.col("usd") * 2).select("request", "tax").answer("taxed")

# Answered by another task, in a later step.
numbered = flow.http("numbered", value=fk.Json(BODY), topic=f"{PREFIX}numbered", partitions=2, keep="1h")
returns = {"request": fk.String, "item": fk.String, "n": fk.Int64}
numbered.key_by("item").process(Numbering(), id="numbers", returns=returns).answer("numbered")

# Acknowledged.
taken = flow.http("taken", value=fk.Json(BODY), topic=f"{PREFIX}taken", partitions=2, keep="1h")
taken.sink(f"{PREFIX}kept", key="request", value=fk.Json())

# Requests of many rows, which gateways reduce before they log them.
READING = {**BODY, "note": fk.String}
dear = flow.http(
    "dear", value=fk.Json(READING), reduce=lambda rows: rows.filter(fk.col("usd") > 50).select("item", "usd"),
    topic=f"{PREFIX}dear", partitions=2, keep="1h",
)  # fmt: skip
dear.sink(f"{PREFIX}dear-rows", key="request", value=fk.Json())
dear.answer("dear")
