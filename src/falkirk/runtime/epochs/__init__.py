"""Batch on a cluster: drivers open epochs, have Spark compute them, and end them.

driver.py              the driver of one batch part
election.py            elects one driver among the processes of an app
process.py             the process of a driver
parts.py               batch parts that stop while the rest of the app goes on
spark.py               epochs computed by Spark
backfill.py            the driver of a backfill
backfill_binding.py    a backfill on a cluster: its topics, and the work of its tasks
"""

from __future__ import annotations
