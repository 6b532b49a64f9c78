"""Asking the cluster for topics and offsets, across its restarts."""

from __future__ import annotations

from collections.abc import Callable

from falkirk.checkpoint.ids import TopicPartition
from falkirk.connectors.embedded import EmbeddedKafka
from falkirk.connectors.kafka.config import Cluster
from falkirk.connectors.kafka.topics import Topics


def test_offsets_are_told_again_by_a_broker_that_was_restarted(embedded: Callable[..., EmbeddedKafka]) -> None:
    broker = embedded()
    broker.start()
    topics = Topics(Cluster(broker.bootstrap))
    topics.create("bids", 2, 1, {})
    places = [TopicPartition("bids", p) for p in range(2)]
    assert topics.offsets(places, "latest") == dict.fromkeys(places, 0)
    broker.stop()
    broker.start()
    assert topics.offsets(places, "earliest") == dict.fromkeys(places, 0)
