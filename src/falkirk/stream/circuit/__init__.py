"""How a stage runs one step: the circuit of its operators.

circuit.py       sources and edges in, operators one after another, sinks and edges out
edges.py         edges between stages
watermarks.py    event time in one task: from times of inputs to the watermarks of operators
broadcast.py     broadcast tables, shared by all tasks of a worker
"""

from __future__ import annotations
