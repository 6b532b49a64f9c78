"""The batch regime: a part of a flow as a job that any engine can run which moves, sorts and retries.

    sources ──pieces──▶ head ──parcels──▶ sort ──▶ level 1 ──parcels──▶ sort ──▶ … ──▶ level n ──▶ result rows

    batch(a ++ b) = stream(a), then stream(b), as its sinks' topics are in the end

The operators are those of the stream, run over the whole division from the empty state: there is one of each.

stage.py      the batch part, from its sources to its sinks
wiring.py     the level of each operator, and what rows pass from one level to the next
job.py        the work of one epoch, cut into tasks
sending.py    what leaves a task: packed rows for later levels, and records of sinks
parcels.py    the one table for all that travels between tasks
"""

from __future__ import annotations

from falkirk.stream.batch.job import Job
from falkirk.stream.batch.parcels import PARCELS, Piece
from falkirk.stream.batch.stage import BatchStage

__all__ = ["PARCELS", "BatchStage", "Job", "Piece"]
