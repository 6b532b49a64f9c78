"""The Spark application of a process: begun when it is first needed, and again when it has ended.

what ends                        what follows
an executor, a Python worker     Spark runs its tasks again
the master                       the application continues, as long as its executors do
the application                  ApplicationEnded; the next work gets another
the JVM on this host             SparkEnded: this process gets no other
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from falkirk.connectors.spark.errors import ApplicationEnded
from falkirk.connectors.spark.executors import Executors
from falkirk.connectors.spark.master import is_local, is_on_loopback
from falkirk.connectors.spark.session import end, lives, plain_session

Check = Callable[[], None]

PAGE = {"spark.ui.enabled": "true", "spark.ui.port": "0"}
"""Spark's own page, on a free port. It has no password, so it is shown only where nobody else can reach it: on loopback."""


class Application:
    """Shared by all threads of a process."""

    def __init__(self, name: str, master: str, settings: Mapping[str, str]) -> None:
        self._name, self._master, self._settings = name, master, settings
        self._spark: SparkSession | None = None
        self._executors: Executors | None = None
        self._changing = threading.Lock()
        self.ui = ""
        """The URL of Spark's own page; "" if there is none."""

    @contextmanager
    def at_work(self) -> Iterator[tuple[SparkSession, Check]]:
        """A session for some work, and a check to call often during it, which raises ApplicationEnded.

        Any error of the work becomes ApplicationEnded or SparkEnded if Spark has ended. Raises what `session` raises.
        """
        spark, executors = self._session()
        executors.begin()
        try:
            yield spark, executors.check
        except ApplicationEnded:
            self._end(spark)
            raise
        except Exception as error:
            if not lives(spark):
                raise ApplicationEnded(
                    "Spark's application has ended in the middle of its work",
                    where=f"Spark's master {self._master}",
                    hint="the logs of its master and its executors say why; the work goes on in another application",
                ) from error
            raise

    def tasks(self) -> int:
        """How many tasks its executors run now; 0 if it does not exist."""
        try:
            tracker = None if self._spark is None else self._spark.sparkContext._jsc.sc().statusTracker()
            return sum(e.numRunningTasks() for e in tracker.getExecutorInfos()) if tracker is not None else 0
        except (AttributeError, Py4JError, OSError):  # it has ended, or its JVM
            return 0

    def close(self) -> None:
        """End it, if it was begun."""
        if (spark := self._spark) is not None:
            self._end(spark)

    def _session(self) -> tuple[SparkSession, Executors]:
        with self._changing:
            if self._spark is not None and not lives(self._spark):
                end(self._spark)
                self._spark = None
            if self._spark is None or self._executors is None:
                page = PAGE if is_local(self._master) or is_on_loopback(self._master) else {}
                self._spark = plain_session(self._name, master=self._master, settings={**page, **self._settings})
                self._executors = Executors(self._spark)
                self.ui = self._spark.sparkContext.uiWebUrl or ""
            return self._spark, self._executors

    def _end(self, spark: SparkSession) -> None:
        with self._changing:
            if self._spark is spark:  # to end an earlier one would end PySpark's present one
                self._spark = None
                end(spark)
