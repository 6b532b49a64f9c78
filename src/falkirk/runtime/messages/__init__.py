"""What processes and people tell each other: over pipes, and over the control topic of an app.

protocol.py            supervisor and workers, over pipes
events.py              news of worker processes, for those who show them
reports.py             what processes report on the control topic
parts.py               parts that have stopped by themselves
ends.py                the error with which a run has ended, for those who ask later
requests.py            pause, checkpoint and drain: requests that stand on the control topic
request_progress.py    a request, followed until all workers have answered
epochs.py              requests to the driver of a batch part
deleted.py             records that are deleted and that no epoch of it has read
orders.py              orders to tasks on Spark, through the control topic
stats.py               counts of a worker between two reports
"""

from __future__ import annotations
