"""An epoch of a batch part on Spark: from its division to its results in Kafka.

division ──▶ head ──▶ level 1 ──▶ … ──▶ level n ──▶ result rows ──▶ publish
a piece a task     buckets, in order         result partitions, in order

work.py         the work, in plain values: it is sent to every task
tasks.py        what tasks do, in Spark's Python workers
results.py      result rows in their final order, on disk, cut into slices
histories.py    tables instead of records, for a backfill
bases.py        where the tasks of a backfill keep states, and the checkpoint store that these go to
epoch.py        the chain of Spark's stages, and its run
watching.py     watches a job: its progress, and its end if nobody needs it any more
failures.py     what a task said, in one line
"""

from __future__ import annotations
