"""How far this host's clock is ahead of the broker's.

A broker dates the records of an app's own topics, and tells the writer the date. It dates a record after the record was
sent, and before its acknowledgement comes:

    sent ≤ dated + ahead ≤ acknowledged           ahead = this host's clock − the broker's
    sent − dated ≤ ahead ≤ acknowledged − dated

So a slow broker makes a reading less precise, but never wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

from falkirk.checkpoint.ids import TopicPartition
from falkirk.connectors.kafka.app_topics.control import REPORTS, deliver
from falkirk.connectors.kafka.client.config import Cluster


@dataclass(frozen=True, slots=True)
class Reading:
    """Bounds of `ahead`, in milliseconds.

    >>> Reading(-3, 20).ahead, Reading(7_200_000, 7_200_015).ahead, Reading(-90_000, -89_990).ahead
    (0, 7200000, -89990)
    """

    least: int
    most: int

    @property
    def ahead(self) -> int:
        """The least that the clock is off, in either direction: 0 if it may be right."""
        return max(self.least, 0) or min(self.most, 0)


def read_clock(cluster: Cluster, control: str, who: str) -> Reading | None:
    """Compare the clocks by one record of the control topic: a tombstone, which compaction removes. None if the topic takes
    the writers' dates. Raises ClusterError."""
    sent = deliver(cluster, TopicPartition(control, REPORTS), f"clock/{who}".encode(), None, idempotent=False)
    return None if sent.dated is None else Reading(sent.sent - sent.dated, sent.acknowledged - sent.dated)
