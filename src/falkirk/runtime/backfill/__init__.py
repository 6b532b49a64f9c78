"""A backfill on a cluster: what workers and runs ask about it, and its driver.

look.py       the app's backfill, as its log tells
binding.py    its topics, and the work of its tasks
driver.py     opens it, claims the tasks, has Spark compute it, and ends it
"""

from __future__ import annotations
