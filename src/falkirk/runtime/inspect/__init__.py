"""An app seen from outside, through its topics. Nothing here asks its workers or opens their files.

status.py          the state of tasks, workers, inputs and epochs
low.py             how far back a failure takes each task, and what holds that back
state.py           rows of state, from the newest versions
peek.py            records of a topic, in the formats of the flow
lineage.py         why a record exists: asks the cluster, step by step
lineage_step.py    one step of that: who wrote the record, and what that read
dead_letters.py    dead letters: shown, counted, written again
sending.py         rows written to a topic as its producers would
check.py           preflight checks of all that a flow needs
"""

from __future__ import annotations
