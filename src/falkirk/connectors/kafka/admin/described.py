"""Topics as a cluster describes them."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from falkirk.connectors.kafka.client.errors import OLDEST, in_words
from falkirk.errors import ClusterError

NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id of a topic without one: 16 zeros, in base64."""

MISSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
"""What a broker says of a topic that does not exist."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as the cluster describes it."""

    name: str
    id: str
    partitions: int
    leaderless: tuple[int, ...] = field(default=(), compare=False)
    """The partitions that no broker leads at the moment: nobody reads or writes them."""


def described(futures: Mapping[str, Future[Any]]) -> dict[str, TopicInfo]:
    """The topics that exist."""
    found = {}
    for name, future in futures.items():
        try:
            topic = future.result()
        except KafkaException as error:
            if error.args[0].code() in MISSING:
                continue
            raise in_words(error, f"topic {name}") from error
        if str(topic.topic_id) == NO_ID:
            raise ClusterError(
                "the broker is too old: its topics have no ids, so one that is recreated could not be told from the old",
                where=f"topic {name}",
                hint=f"Falkirk needs Kafka {OLDEST} or later",
            )
        leaderless = tuple(p.id for p in topic.partitions if p.leader is None or p.leader.id < 0)
        found[name] = TopicInfo(name, str(topic.topic_id), len(topic.partitions), leaderless)
    return found
