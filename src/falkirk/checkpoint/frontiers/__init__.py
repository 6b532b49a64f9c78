"""Logical times, frontiers and consistent rollback: seed 000, sections 2 to 4, as values and pure functions.

    times.py          a time, and the order of the times of one domain
    frontier.py       a downward-closed set of times: ∅, ↓{t, …}, ⊤
    projections.py    φ(e): which times on an edge are fixed by a frontier of its sender
    rollback.py       the greatest consistent frontiers after a failure (figure 6), what is sent again
    monitor.py        the frontiers below which nobody rolls back (section 4.2), version by version

Nothing here does I/O or knows Kafka: who persists a checkpoint says so, and who recovers asks.

In an app all edges are logged, so little of this runs: `falkirk.checkpoint.planning.plan` chooses frontiers to say what a
failure would cost. `falkirk.state.store.low_watermark` is the monitor's answer for one task of such an app, and tests compare
the two. The rest is for edges that are not logged.
"""

from __future__ import annotations

from falkirk.checkpoint.frontiers.frontier import Frontier
from falkirk.checkpoint.frontiers.monitor import Monitor
from falkirk.checkpoint.frontiers.rollback import AnyFrontier, Checkpoint, Edge, Graph, Rollback, choose, sent_again
from falkirk.checkpoint.frontiers.times import FOREVER, Domain, Sequences, Structured, Time

__all__ = [
    "FOREVER", "AnyFrontier", "Checkpoint", "Domain", "Edge", "Frontier", "Graph", "Monitor", "Rollback", "Sequences",
    "Structured", "Time", "choose", "sent_again",
]  # fmt: skip
