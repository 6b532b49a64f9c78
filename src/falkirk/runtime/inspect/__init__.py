"""An app seen from outside, through its topics. Nothing here asks its workers or opens their files.

status.py          the state of tasks, workers, inputs and epochs
owners.py          which worker has each task, on which host, and what it reports
inputs.py          what is left of the inputs, and what keeps the app from reading them
drained.py         whether a drain has come to its end
low.py             how far back a failure takes each task, and what holds that back
recovery.py        plans the recovery from a failure that has not happened
failure.py         the answer: what the failure touches, and how long the recovery takes
state.py           rows of state, from the newest versions
peek.py            records of a topic, in the formats of the flow
lineage.py         why a record exists: asks the cluster, step by step
lineage_step.py    one step of that: who wrote the record, and what that read
dead_letters.py    dead letters: shown, counted, written again
letters.py         dead letters as they are read: what they say, which are chosen, which are settled
sending.py         rows written to a topic as its producers would
check.py           preflight checks of all that a flow needs
"""

from __future__ import annotations
