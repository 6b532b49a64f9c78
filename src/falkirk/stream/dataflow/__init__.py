"""The interface of operators, and the batches that flow between them.

operator.py        the interface of an operator
graph.py           the operators of a flow
circuit.py         the interface between stages and the checkpoint protocol
batch.py           rows, weights and updates
step.py            the context that operators share while a step runs
exchange.py        how the batch regime brings rows of a key together (place.py: their origin)
records.py         records of a topic, in columns (metadata.py: metadata that can become columns)
topics.py          inputs and outputs of a stage
packing.py         rows as bytes, from task to task (arrow.py: the head of an Arrow stream)
task_tables.py     tables of a task, and what becomes of them in other tasks
event_time.py      watermarks, and rows that are late
partitioners.py    checks that keys are in the expected partitions
hot_keys.py        keys that have most of an operator's rows
calls.py           calls of users' async functions, in a loop of their own
task_counts.py     what a task reports to people: calls, hot keys, watermarks
catching.py        rows that fail, and where they came from
handling.py        the handling of failures, chosen when the flow is built
failures.py        the handling of failures while a step runs
process.py         Process: a Python object with state and timers
earlier.py         From: an operator's state in an earlier version
provenance.py      the step or epoch that made an output record
"""

from __future__ import annotations
