"""What sinks of tables log, for a publisher to write."""

from __future__ import annotations

import polars as pl

from falkirk.connectors.kafka.reading.outbox import public
from falkirk.stream.dataflow.packing import unpacked_all
from falkirk.testing.memory import MemoryApp

TOPIC = "falkirk.app.rows.table"


def logged(app: MemoryApp) -> list[pl.DataFrame]:
    """The rows of the sink `table` of flow `app`, by partition."""
    values = [[record.value() for record in records] for records in app.topics[TOPIC]]
    return [pl.concat(map(public, unpacked_all(some, str)[0])) if some else pl.DataFrame() for some in values]
