"""Orders to the tasks of a run, on the control topic.

    run/ID    b"leave"      leave cleanly; null once all have

Tasks look every second, each from the topic's beginning: a task that starts late must not miss it.
"""

from __future__ import annotations

import threading

from falkirk.checkpoint.ids import TopicPartition
from falkirk.connectors.kafka.app_topics.control import REPORTS, Tail, append
from falkirk.connectors.kafka.client.config import Cluster

RUN, LEAVE = "run/", b"leave"
LOOK = 1.0
"""Seconds between two looks."""


def order_to_leave(cluster: Cluster, control: str, run: str) -> None:
    """Tell all tasks of a run to leave. Raises ClusterError."""
    append(cluster, TopicPartition(control, REPORTS), (RUN + run).encode(), LEAVE)


def forget(cluster: Cluster, control: str, run: str) -> None:
    """All have left. Raises ClusterError."""
    append(cluster, TopicPartition(control, REPORTS), (RUN + run).encode(), None)


class LeaveListener:
    """A task's ear, in its own thread: a cluster that does not answer blocks nothing else."""

    def __init__(self, cluster: Cluster, control: str, run: str) -> None:
        self._tail, self._key = Tail(cluster, TopicPartition(control, REPORTS)), (RUN + run).encode()
        self.leave = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="falkirk-orders", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._closed.set()

    def _listen(self) -> None:
        while not self._closed.is_set():
            if any(r.key == self._key and r.value == LEAVE for r in self._tail.look()):
                self.leave.set()
            self._closed.wait(LOOK)
        self._tail.close()
