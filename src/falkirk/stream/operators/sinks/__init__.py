"""Where rows go: topics, files and tables.

sink.py            records of a topic
sink_changes.py    how a sink writes rows that change
answer.py          answers to HTTP requests

outlet.py          sinks outside Kafka: a step logs their rows, and a publisher copies them later
parquet.py         rows for Parquet files
keyed.py           rows for tables: what replaces what, and rows that no table can hold
postgres.py        rows for a table of PostgreSQL
delta.py           rows for a table of Delta Lake
"""

from __future__ import annotations
