"""What a gateway logs of rows that it reduces, and how fast: 336,776 flights, in requests of 1,000 rows.

    python bench/reduced.py

It runs what a gateway runs between the body of a request and the record of it, in one thread and without a broker: once
with `reduce=` of a filter and a projection, and once with a `reduce=` that leaves all. Bytes are those of bodies and of
records before compression.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import falkirk as fk
from falkirk.runtime.gateway.desk import ToAppend, rows_of
from falkirk.runtime.gateway.gateway import served_by
from falkirk.runtime.gateway.metrics import ReducedRows
from falkirk.runtime.gateway.recording import reduced_by
from harness.command import command
from harness.processes import ROOT

sys.path.insert(0, str(ROOT / "examples" / "flights"))
from data import flights

EACH = 1000
"""Rows of a request."""

FLIGHT = fk.Json({"id": int, "carrier": str, "origin": str, "dest": str, "delay": int, "at": int})

Reduce = Callable[[fk.Stream[Any]], fk.Stream[Any]]


@command(__doc__)
def main() -> None:
    """Measure both, and print a line for each."""
    lines = FLIGHT.encode(flights())
    bodies = [b"\n".join(lines[i : i + EACH]) for i in range(0, len(lines), EACH)]
    late = fk.col("delay") > 15
    print(f"all rows         {measured(bodies, lambda rows: rows)}")
    print(f"late by 15 min   {measured(bodies, lambda rows: rows.filter(late).select('carrier', 'delay'))}")


def measured(bodies: list[bytes], reduce: Reduce) -> str:
    """One reduction, in words."""
    flow = fk.Flow("bench")
    flow.http("flights", value=FLIGHT, reduce=reduce)
    reduction = served_by(flow.plan())["flights"].reduction
    assert reduction is not None
    counted = ReducedRows(["flights"])
    records = reduced_by(reduction, "flights", counted)
    logged, began = 0, time.process_time()
    for number, body in enumerate(bodies):
        rows = rows_of(body, lines=True)
        assert isinstance(rows, list)
        (value,) = records([ToAppend(str(number), b"", "0" * 32, rows)])
        logged += len(value) if isinstance(value, bytes) else 0
    seconds = time.process_time() - began
    received, left, size = counted.received["flights"], counted.logged["flights"], sum(map(len, bodies))
    share = f"{logged / 1e6:5.1f} MB of {size / 1e6:.1f} logged, {left:,} of {received:,} rows"
    return f"{share}, {seconds / received * 1e6:.2f} µs of CPU a row received"


if __name__ == "__main__":
    main()
