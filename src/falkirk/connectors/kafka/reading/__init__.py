"""Reads: of inputs, of bounded ranges, of a sink's log, for people.

source.py       reads inputs of one cluster, from positions on
sources.py      reads inputs of several clusters
lag.py          how many records are left to read
stalls.py       partitions that a client has stopped reading, though there is more in them

reader.py       reads bounded ranges of one cluster, at either isolation level
committed.py    reads committed records of bounded ranges in several clusters
division.py     reads recorded divisions: exactly the records of each
held.py         partitions that an open transaction holds up, and log lines about the wait

outbox.py       reads the log of a sink outside Kafka, in chunks, for its publisher
peek.py         the first, last and coming records of a topic, for people
"""

from __future__ import annotations
