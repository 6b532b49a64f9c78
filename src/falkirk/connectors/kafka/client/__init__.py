"""Clients of librdkafka: their settings, how they are made, and what their errors mean.

config.py            every setting of a client, with its reason
clients.py           makes clients, and receives their log lines
producing.py         makes the only producer of a transactional id, and queues its records
places.py            partitions of several clusters: addresses of the app, names within one cluster
leaders.py           offsets and deletions, asked only of leaders that the client knows
pending_answer.py    a question to a cluster for whose answer nobody waits

errors.py            errors in words, and which of them pass by themselves
certificates.py      why a broker's certificate is not trusted
connections.py       counts broken connections of a producer: a request may still arrive late
contact.py           notices a client that has lost its cluster for good
"""

from __future__ import annotations
