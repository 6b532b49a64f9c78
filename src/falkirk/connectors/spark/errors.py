"""Errors for Spark's ends. Users need not import Spark."""

from __future__ import annotations

from falkirk.errors import ClusterError, UnreachableError


class ApplicationEnded(UnreachableError):
    """An application is useless now: it was ended, or lost all its executors. Another may do better."""


class SparkEnded(ClusterError):
    """The JVM of a process's Spark has ended, and this process gets no other: another process does."""
