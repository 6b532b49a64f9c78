"""The user's API: flows, streams and tables; finding a flow and running it.

flow.py              Flow: sources, tables, the plan
streams.py           Stream: the output of an operator, and the operators that can follow
rowwise.py           those of them that look at one row at a time
combining.py         those that take streams of the same columns: concat, union, intersect, subtract
method.py            makes a method of Stream from a function that returns an operator
keyed.py             the operators after group_by and key_by
joining/             joins, and tables with their lookups
alternatives.py      other tools' names for these methods: the error for such a name suggests ours

What such a method checks, and the operators that it makes:
    windowing.py     group_by in windows, and `final`
    totals.py        the aggregates of agg, of groups or of a whole stream
    tops.py          top_k: the best rows of each group
    overs.py         over: functions of the rows around each row
    iterating.py     iterate: a part that runs until its rows stay the same
    enriching.py     enrich: columns from an async function

Sources and sinks:
    sources.py       the options of sources: cluster, metadata columns, start
    changing.py      `changes=`: sources of rows that change, and how a sink writes changes
    identified.py    one row for each key, for a sink whose input may have several
    routing.py       a sink of several topics
    requests.py      `flow.http` and `stream.answer`: requests over HTTP, and their answers
    databases.py     sink_postgres: a table of PostgreSQL
    lakes.py         sink_delta: a table of Delta Lake

What is done with a finished flow:
    load.py          finds a flow by its name: a module or file, and a variable in it
    launcher.py      the function behind `flow.run()`, registered by a higher room
    explain.py       a plan as text
    drawing.py       a plan as a drawing: Mermaid, Graphviz
"""

from __future__ import annotations
