"""The batch regime: a part of a flow as a job that any engine can run which moves, sorts and retries.

    sources ──pieces──▶ head ──parcels──▶ sort ──▶ level 1 ──parcels──▶ sort ──▶ … ──▶ level n ──▶ result rows

    batch(a ++ b) = stream(a), then stream(b), as its sinks' topics are in the end

The operators are those of the stream, run over the whole division from the empty state: there is one of each.
"""

from __future__ import annotations

from falkirk.stream.batch.job import Job
from falkirk.stream.batch.parcels import PARCELS, Piece
from falkirk.stream.batch.stage import BatchStage

__all__ = ["PARCELS", "BatchStage", "Job", "Piece"]
