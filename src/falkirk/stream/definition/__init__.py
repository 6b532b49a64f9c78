"""Parts of a flow's definition that are not operators.

expressions.py    expressions over columns, checked on an empty frame
translation.py    expressions from Narwhals to Polars, once, before a circuit runs them
functions.py      Python functions (frames.py: frames from their results; fitting.py: what values a column may have)
keys.py           the keys and formats that users name
names.py          names of topics and apps
pattern.py        which topics a source reads
event_time.py     the time column of a source, and how late its rows may be
windows.py        tumbling, hopping, session and count windows for `group_by`
regimes.py        regimes (regime_plan.py: with all defaults resolved)
on_error.py       the handling of failures: Stop, Skip, DeadLetter
task_numbers.py   how many tasks a stage has
on_failure.py     what stops when a part fails: the app, or that part alone
outlets.py        where a sink outside Kafka writes: files, tables of PostgreSQL or Delta Lake
requests.py       an HTTP endpoint: the fields of requests and of answers
"""

from __future__ import annotations
