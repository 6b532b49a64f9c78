"""Reads that wait for an open transaction or for lost records: logged while they last, and at last given up."""

from __future__ import annotations

import time
from dataclasses import dataclass

from falkirk.cadence import Cadence
from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.connectors.kafka.client.config import logger
from falkirk.errors import ClusterError

SAY_AFTER, SAY_EVERY = 5.0, 30.0
"""Seconds until a standstill is logged, and then logged again."""

LIMIT = 300.0
"""Seconds that a read waits at least before it is given up."""

GAP = 60.0
"""After so many seconds without a try, a standstill counts as a new one: the cluster was away."""


@dataclass(slots=True)
class _Standstill:
    position: Offset
    since: float
    tried: float
    log: Cadence


class Standstills:
    """One worker's, by partition."""

    def __init__(self, limit: float) -> None:
        """`limit` is in seconds: longer than any transaction of this app can be open."""
        self._limit = max(LIMIT, limit)
        self._of: dict[TopicPartition, _Standstill] = {}

    def note(self, partition: TopicPartition, position: Offset, mark: Offset, obstacle: str) -> None:
        """A read still waits there. Raises ClusterError if it did for too long."""
        now, known = time.monotonic(), self._of.get(partition)
        if known is None or known.position != position or now - known.tried > GAP:
            self._of[partition] = _Standstill(position, now, now, Cadence(SAY_AFTER, SAY_EVERY))
            return
        known.tried = now
        waited = now - known.since
        where = f"{partition.topic}[{partition.partition}]"
        if waited > self._limit:
            del self._of[partition]
            raise ClusterError(
                f"what is committed cannot be read: for {waited:.0f} s there has been no way past offset {position}, and the "
                f"partition goes on to {mark}. In the way: {obstacle}",
                where=where,
                hint="an open transaction that outlasts its time-out is a hanging one: `kafka-transactions.sh find-hanging` "
                "shows it, `abort` ends it. If the topic was truncated, restore it",
            )
        if known.log.due(now, known.since):
            since = time.strftime("%H:%M:%S", time.localtime(time.time() - waited))
            logger.warning("reading %s has waited since %s (%.0f s) at offset %s of %s. In the way: %s",
                           where, since, waited, position, mark, obstacle)  # fmt: skip
