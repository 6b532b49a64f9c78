"""Ends of Spark's. Who asks for them need not import Spark."""

from __future__ import annotations

from falkirk.errors import ClusterError, UnreachableError


class ApplicationEnded(UnreachableError):
    """An application is of no use any more: it was ended, or lost all that it had. Another may do better."""


class SparkEnded(ClusterError):
    """The JVM in which a process has its Spark has ended, and the process gets no other: another process does."""
