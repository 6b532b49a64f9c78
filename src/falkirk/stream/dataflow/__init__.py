"""What an operator is, and what flows between two.

operator.py        the interface: everything that others ask of an operator
graph.py           the operators of a flow
circuit.py         what a stage does with the input of a step: the seam to the protocol
batch.py           rows, weights and updates
step.py            what operators share while a step runs
exchange.py        how rows of a key meet in a batch (place.py: where they come from)
records.py         what is read of a topic, in columns (metadata.py: what of it can become a column)
topics.py          inputs and outputs of a stage
packing.py         rows as bytes, from task to task (arrow.py: the head of an Arrow stream)
partitioners.py    checks that keys are where the flow believes them to be
catching.py        rows that fail, and where they came from
handling.py        what becomes of what fails: chosen when the flow is built
failures.py        the same while a step runs
process.py         Process: a Python object with state and timers
earlier.py         From: what an operator kept in an earlier version
provenance.py      what a record of an output says of its making
"""

from __future__ import annotations
