"""From the flow that a user defines to circuits that run its steps. Each room imports only rooms below it.

sql/           SQL: a query becomes the operators that the API would make
flow/          Flow and Stream: what users touch
planner/       from operators to stages
backfill/      a backfill as a job
access/        topics and state of a flow, as people read and write them
batch/         epochs as jobs of tasks that any engine can run
evolution/     moves, rebuilds and corrects state after the code has changed
circuit/       runs the operators of a stage, step by step
stages/        stages: what each reads, writes and keeps
operators/     the operators: how each runs in a step, and in a batch
dataflow/      the interface of operators, and the batches between them
aggregates/    the aggregates of a grouping and their state
definition/    expressions, regimes, keys and names in a flow's definition
formats/       encodings of keys and values
"""

from __future__ import annotations
