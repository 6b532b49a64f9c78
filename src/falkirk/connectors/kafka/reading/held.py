"""Partitions that readers cannot read to the end, as a transaction is open in them.

    records that are read_committed = those below the last stable offset
    last stable offset              = where the oldest open transaction begins; else the high watermark

The client cannot find the transaction's owner (it lacks DescribeProducers): Kafka's own tool can.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, IsolationLevel, KafkaException
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from falkirk.cadence import Cadence
from falkirk.checkpoint.ids import Millis, Offset, TopicPartition, cluster_of
from falkirk.connectors.kafka.client.clients import client
from falkirk.connectors.kafka.client.config import Cluster, logger
from falkirk.connectors.kafka.client.errors import found_offset
from falkirk.connectors.kafka.client.leaders import list_offsets
from falkirk.connectors.kafka.client.places import by_cluster, ours, theirs

PATIENCE = 5.0
"""Seconds that a broker has to answer. Nothing else waits for it: what is not known is not shown."""

SAY_AFTER, SAY_EVERY = 5.0, 30.0
"""Seconds until a wait for a transaction is logged, and until it is logged again."""


class Held(NamedTuple):
    """A partition that an open transaction holds."""

    place: TopicPartition
    stable: Offset
    """Its last stable offset."""
    end: Offset
    """Its high watermark."""
    since: Millis | None
    """The date of the transaction's first record; None if it cannot be read."""

    def words(self, brokers: str) -> str:
        """For people, and what to do."""
        topic, partition = self.place
        since = ""
        if self.since is not None:
            at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since / 1000))
            since = f" since {at} ({max(0, time.time() - self.since / 1000):.0f} s)"
        name = theirs(self.place).topic
        return (
            f"a transaction is open in {topic}[{partition}]{since}: it can be read up to offset {self.stable} of {self.end}. "
            f"Whose it is: kafka-transactions.sh --bootstrap-server {brokers} describe-producers --topic {name} "
            f"--partition {partition}"
        )


def held(cluster: Cluster, places: Collection[TopicPartition]) -> list[Held]:
    """Those of the partitions, in any clusters, that are held now. Without a broker's answer they are left out."""
    found = []
    for name, some in by_cluster(places).items():
        try:
            found += _held(cluster.of(name), some)
        except KafkaException as error:
            logger.debug("open transactions in cluster %r: %s", name, error.args[0])
    return found


def _held(cluster: Cluster, places: Collection[TopicPartition]) -> list[Held]:
    admin = client(AdminClient, cluster.settings())
    # In this order: if a transaction ends in between, the end is below the stable offset, and nothing is held.
    ends = _ends(admin, places, IsolationLevel.READ_UNCOMMITTED)
    stable = _ends(admin, places, IsolationLevel.READ_COMMITTED)
    behind = {place: at for place, at in stable.items() if at < ends[place]}
    since = _dated(cluster, behind) if behind else {}
    return [Held(place, at, ends[place], since.get(place)) for place, at in sorted(behind.items())]


def _ends(
    admin: AdminClient, places: Collection[TopicPartition], level: IsolationLevel
) -> dict[TopicPartition, Offset]:
    asked = {theirs(place): place for place in places}
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    answers = list_offsets(admin, dict.fromkeys(asked, latest), level, PATIENCE)
    return {asked[p]: found_offset(future.result()) for p, future in answers.items()}


def _dated(cluster: Cluster, behind: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, Millis]:
    """The dates of the records at these offsets, in open transactions too."""
    found: dict[TopicPartition, Millis] = {}
    consumer = client(Consumer, cluster.reader(committed=False))
    try:
        missing, deadline = set(behind), time.monotonic() + PATIENCE
        consumer.assign([theirs(place, at) for place, at in behind.items()])
        while missing and (left := deadline - time.monotonic()) > 0:
            message = consumer.poll(left)
            if message is None or message.topic() is None or (place := ours(cluster, message)) not in missing:
                continue
            missing.discard(place)
            kind, at = message.timestamp()
            if message.error() is None and message.offset() == behind[place] and kind != TIMESTAMP_NOT_AVAILABLE:
                found[place] = Millis(at)
    finally:
        consumer.close()
    return found


class _Wait(NamedTuple):
    position: Offset
    since: float
    log: Cadence


class Waits:
    """Logs open transactions that somebody waits for: after a while, and from time to time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._waits: dict[TopicPartition, _Wait] = {}

    def note(self, waiting: Mapping[TopicPartition, Offset]) -> None:
        """Only these partitions are waited for: they are read up to these offsets, and more must come."""
        now, before = time.monotonic(), self._waits
        self._waits = {
            place: wait
            if (wait := before.get(place)) and wait.position == at
            else _Wait(at, now, Cadence(SAY_AFTER, SAY_EVERY))
            for place, at in waiting.items()
        }
        due = [place for place, wait in self._waits.items() if wait.log.due(now, wait.since)]
        for one in held(self._cluster, due):
            brokers = self._cluster.of(cluster_of(one.place.topic)).brokers
            logger.warning("the end of the input is waited for: %s", one.words(brokers))
