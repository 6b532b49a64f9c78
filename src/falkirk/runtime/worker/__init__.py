"""A worker: the loop that reads, runs steps, commits, and keeps state.

worker.py          the loop
task.py            one task: what it has read, and the closing of its steps
inputs.py          the inputs of all tasks (pending.py: what was read and is not stepped yet)
pacing.py          when a step closes, and how large it is
committer.py       the thread that runs transactions
aborts.py          transactions that abort one after another
takeovers.py       tasks on their way to this worker
replay.py          recorded steps, run again (published.py: what they have written)
rereading.py       inputs read again for operators that are rebuilt
stores.py          where tasks keep state (store_health.py: whether the checkpoint store answers)
maintenance.py     flushes, versions, copies and trimming (threads.py: who does it)
broadcast.py       broadcast tables, shared by all tasks of the worker
topic_watch.py     watches the topics that the app reads
work.py            a worker with its identity and its reports
"""

from __future__ import annotations
