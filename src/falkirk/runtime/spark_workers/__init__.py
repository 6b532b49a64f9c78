"""Workers that live on Spark's executors: Spark places them, and starts them again elsewhere.

    this process                              an executor                                    one slot of it
    SparkWorkers ── a job a worker ─────────▶ Spark's Python worker (task.py: a supervisor) ──▶ worker process
         ▲   │                                     │  its reports          ▲ the order to leave
         │   └──────────── order ──▶ control topic ◀┘ ──────────────────────┘
         └──── reports of this run ◀─────┘

parcel.py     the flow's code, sent to hosts where it is not installed
task.py       what a task does: the supervision of one worker
workers.py    this end: jobs, their outcome, and the end of them all

No guarantee depends on Spark. A task that runs twice, here or on two hosts, is two workers: on one host the lock of their
identity lets one in, on two they are members of the group with different identities.
"""

from __future__ import annotations
