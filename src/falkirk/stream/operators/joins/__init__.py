"""Operators that bring two inputs together by key.

join.py               `stream.join(other)`, and the rules of each kind of join
join_side.py          one side: its changes in a step, and its rows in state
join_step.py          one step
join_batch.py         the batch form

timed_join.py         what joins by event time have in common: when state may go
timed_step.py         one step of them: rows, then the watermark, then the rows that may go
timeline.py           rows in the order of their times, and which of them a row reaches

interval.py           `join(…, within=…)`: rows whose times are near each other
interval_step.py      one step
interval_expiry.py    finds the rows that leave the state
interval_batch.py     the batch form

asof.py               `join_asof`: the one row that is the nearest in time
nearest.py            which row that is
asof_step.py          one step
asof_batch.py         the batch form

lookup.py             `lookup`: the row of a table that has the key, as of the step
"""

from __future__ import annotations
