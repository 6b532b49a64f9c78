"""Where rows come from: records of topics, changes, tables, and rows that came too late.

source.py       the records of topics as rows
late.py         the late rows of a source
changed.py      the records of a change stream, as rows with weights
latest.py       a source that replaces rows: a new row of a key takes the one before back
table.py        the records of a table, for lookups
requests.py     the requests of an HTTP endpoint
reduction.py    `flow.http(…, reduce=…)`: what a gateway does with the rows of a request
"""

from __future__ import annotations
