"""A backfill as a job: the histories of an app's tasks, run by the stages' own circuits, level by level.

sources ──▶ level 0: tasks that read sources alone ──edges──▶ sort ──▶ level 1 ──edges──▶ sort ──▶ … ──▶ result rows
              └── base of each task's state                    └── base of each task's state

state(base) = fold of the circuit over the history, in large steps at one clock
the records of sinks are those of the stream; of a grouped result, the last of each key

stage.py      all streaming stages of a flow, as one part; refuses what a backfill cannot do
job.py        the work of each task, at each level
history.py    a table in the place of the oldest records of a source
past.py       rows of such a table, as records for the tasks that read the source
pile.py       keeps the last record of each key of a grouped result
"""

from __future__ import annotations

from falkirk.stream.backfill.history import History
from falkirk.stream.backfill.job import BackfillJob, HistoryTask, Keeper
from falkirk.stream.backfill.stage import BackfillStage

__all__ = ["BackfillJob", "BackfillStage", "History", "HistoryTask", "Keeper"]
