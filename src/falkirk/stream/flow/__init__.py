"""What a user touches: flows, streams, tables, and how a flow is found and run.

flow.py            Flow: sources, tables, and the way to a plan
streams.py         Stream: the output of an operator, and the operators that can follow (rowwise.py: those without state)
keyed.py           what follows group_by and key_by
lookups.py         tables, and streams that look them up
routing.py         a sink of several topics
alternatives.py    names that other tools have, and what to write instead
explain.py         a plan in words
drawing.py         a plan as a drawing: Mermaid, Graphviz
load.py            finds a flow by its name, such as app.py:flow
launcher.py        what runs a flow registers itself here
"""

from __future__ import annotations
