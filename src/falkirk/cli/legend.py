"""What the columns of `falkirk status` and of the live view mean: the end of their --help."""

from __future__ import annotations

_BOTH = """
  records/s   records processed per second, from the first to the last step of the last 10 seconds
  lag         records in the inputs that are not processed yet
  step        the number of the last committed step
  step ms     mean time to compute a step
  commit ms   mean time to commit its transaction
  commits/s   transactions per second; a transaction holds a step of each task that had input
  version     the newest saved version of the state, which a recovery starts from
  behind      how much older it is than the last step"""

LIVE = f"""\b
What the live view shows, on a terminal. Elsewhere: a line every 5 seconds.
  tasks       tasks of the stage that run here, of all its tasks; of a worker: those that it owns
  read        in the title: records read from the sources since the start{_BOTH}
  dead letters, skipped   records that failed since the start
  recoveries  workers that died, were replaced, and have all their tasks running again
"""

STATUS = f"""\b
What the columns mean:
  tasks       tasks of the stage that run, of all its tasks; of a worker: those that it owns
  owner       the worker that owns the task{_BOTH}
  age         how long ago the step was committed
  clock       how much the host's clock is ahead of the broker's, at least
  reported    when the worker's last report was sent
  low-watermark   the step that a failure takes a task of the stage back to at most; what is before it can be deleted
"""
