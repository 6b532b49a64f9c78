"""Batch epochs and backfills in the simulation.

epochs.py             epochs under faults: drivers, and the copies of their publishing tasks
epoch_actors.py       the actors of such a run, what they publish, and their faults
epochs_weakened.py    the protocol of epochs without one clause each
copies.py             copies of a task, where actions take time: do two fence each other forever?
backfill.py           a backfill beside workers that were started too early
"""

from __future__ import annotations
