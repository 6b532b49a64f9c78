"""The user's API: flows, streams and tables; finding a flow and running it.

flow.py            Flow: sources, tables, the plan
streams.py         Stream: the output of an operator, and the operators that can follow (rowwise.py: those without state)
keyed.py           the operators after group_by and key_by
lookups.py         tables, and streams that look them up
routing.py         a sink of several topics
alternatives.py    Falkirk's names for the methods of other tools
explain.py         a plan as text
drawing.py         a plan as a drawing: Mermaid, Graphviz
load.py            finds a flow by its name, such as app.py:flow
launcher.py        the function behind `flow.run()`, registered by a higher room
"""

from __future__ import annotations
