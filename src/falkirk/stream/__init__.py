"""From the flow that a user defines to circuits that run its steps. Each room imports only rooms below it.

flow          Flow and Stream: what users touch
planner       from operators to stages
backfill      a backfill as a job
access        topics and state of a flow, as people read and write them
batch         epochs as jobs of tasks that any engine can run
evolution     state when the code has changed: moved, rebuilt, corrected
circuit       runs the operators of a stage, step by step
stages        stages: what each reads, writes and keeps
operators     one file each
dataflow      what an operator is, and what flows between two
aggregates    what a grouping keeps
definition    what users say beside operators: expressions, regimes, names
formats       what the bytes of keys and values mean
"""

from __future__ import annotations
