"""The job in Quix Streams, exactly-once.

python quix.py BROKERS SOURCE TARGET COUNT COMMIT_MS FOLDER
"""

from __future__ import annotations

import sys
import uuid
from typing import Any

from quixstreams import Application, State


def main() -> None:
    brokers, source, target, count, commit_ms, folder = sys.argv[1:]
    app = Application(
        broker_address=brokers,
        consumer_group=f"{target}-{uuid.uuid4().hex[:8]}",
        processing_guarantee="exactly-once",
        commit_interval=int(commit_ms) / 1000,
        auto_offset_reset="earliest",
        state_dir=folder,
        loglevel="WARNING",
    )

    def update(bid: dict[str, Any], state: State) -> dict[str, int]:
        n, top = state.get("stats", default=(0, 0))
        n, top = n + 1, max(top, bid["price"])
        state.set("stats", (n, top))
        return {"auction": bid["auction"], "n": n, "top": top}

    bids = app.topic(source, key_deserializer="bytes", value_deserializer="json")
    stats = app.topic(target, key_serializer="bytes", value_serializer="json")
    app.dataframe(bids).apply(update, stateful=True).to_topic(stats)
    app.run(count=int(count))


if __name__ == "__main__":
    main()
