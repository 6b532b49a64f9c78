"""What a recovery will take: from what is kept of each task, and from what earlier recoveries took.

    rates.py        seconds of each part of a take-over, from the take-overs so far
    plan.py         after a failure: who goes back to what, what is replayed, how long it takes
    placement.py    when the next version is due, so that a recovery ends within a given time

Nothing here does I/O or knows a clock: what is kept and what was measured is given.
"""

from __future__ import annotations

from falkirk.checkpoint.planning.placement import LogGrowth, Objective, Pace
from falkirk.checkpoint.planning.plan import Kept, Lost, RecoveryPlan, TaskFacts, TaskPlan, plan
from falkirk.checkpoint.planning.rates import NOTHING, Cost, Line, Rates, Replay, Seconds

__all__ = [
    "NOTHING", "Cost", "Kept", "Line", "LogGrowth", "Lost", "Objective", "Pace", "Rates", "RecoveryPlan", "Replay", "Seconds",
    "TaskFacts", "TaskPlan", "plan",
]  # fmt: skip
