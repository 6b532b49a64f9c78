"""What a worker's tasks read.

edges.py            the port of an edge
intake.py           which of its inputs a task reads, and when
inputs.py           the inputs of all tasks (pending.py: what was read and is not stepped yet)
unreadable.py       inputs that cannot be read: an error of the app, or a sign that another worker has the task
broadcast.py        broadcast tables, shared by all tasks of the worker
upstream.py         tables that come through an exchange: what they are waited for
replay.py           recorded steps, run again
read_back.py        what recorded steps have published, read back to correct it
second_reading.py   inputs read again for operators that are rebuilt (rereading.py: from Kafka)
"""

from __future__ import annotations
