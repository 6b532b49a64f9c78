"""An application that has lost all its executors, and gets no others.

A standalone master that was restarted does not know the applications from before, and ends their executors. Then Spark
waits for others forever; only another application gets some.
"""

from __future__ import annotations

import logging
import time

from pyspark.sql import SparkSession

from falkirk.connectors.spark.errors import ApplicationEnded
from falkirk.connectors.spark.master import is_local

PATIENCE = 30.0
"""Seconds without an executor. If they would only come later, another application costs some seconds, and waits too."""

logger = logging.getLogger("falkirk.spark")


class Executors:
    """One application's. If it never had any, it is not given up: its turn has not come."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._master = spark, str(spark.sparkContext.master)
        self._had = self._said = False
        self._last = time.monotonic()

    def begin(self) -> None:
        """Work begins now: an application at rest may give its executors back."""
        self._last = time.monotonic()

    def check(self) -> None:
        """Call this often while work is under way. Raises ApplicationEnded."""
        now = time.monotonic()
        if is_local(self._master) or self._count():
            self._had, self._last = True, now
        elif now - self._last < PATIENCE:
            return
        elif self._had:
            raise ApplicationEnded(
                f"Spark's application has had no executor for {PATIENCE:.0f} s",
                where=f"Spark's master {self._master}",
                hint="was the master started again, or are all workers gone? It goes on in another application",
            )
        elif not self._said:
            self._said = True
            logger.warning("Spark at %s has given no executor yet: are its workers busy, or too small?", self._master)

    def _count(self) -> int:
        return int(self._spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1  # the driver is one of them
