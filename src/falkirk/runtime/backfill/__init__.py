"""A backfill on a cluster: what workers and runs ask of it, and the driver that makes it.

look.py       the app's backfill, as its log tells
binding.py    its topics, and what its tasks are to do
driver.py     opens it, claims the tasks, has Spark compute it, and ends it
"""

from __future__ import annotations
