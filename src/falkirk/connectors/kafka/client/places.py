"""Partitions of several clusters: an app knows topics by their addresses; a client knows one cluster, and topics by names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from confluent_kafka import OFFSET_INVALID, Message
from confluent_kafka import TopicPartition as KafkaPartition

from falkirk.checkpoint.ids import TopicPartition, address, cluster_of, name_of
from falkirk.connectors.kafka.client.config import Cluster

Value = TypeVar("Value")


def theirs(place: TopicPartition, offset: int = OFFSET_INVALID) -> KafkaPartition:
    """A partition as its cluster's client knows it."""
    return KafkaPartition(name_of(place.topic), place.partition, offset)


def ours(cluster: Cluster, message: Message) -> TopicPartition:
    """A message's partition, by that cluster's client."""
    return TopicPartition(address(cluster.name, message.topic() or ""), message.partition() or 0)


def by_cluster(places: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Partitions by the names of their clusters.

    >>> by_cluster([TopicPartition("bids", 0), TopicPartition("sales:bids", 0), TopicPartition("bids", 1)])["sales"]
    [TopicPartition(topic='sales:bids', partition=0)]
    """
    found: dict[str, list[TopicPartition]] = {}
    for place in places:
        found.setdefault(cluster_of(place.topic), []).append(place)
    return found


def names_by_cluster(topics: Iterable[str]) -> dict[str, list[str]]:
    """Topics' names by their clusters' names.

    >>> names_by_cluster(["steps", "sales:bids", "sales:asks"])
    {'sales': ['asks', 'bids'], '': ['steps']}
    """
    found: dict[str, list[str]] = {}
    for topic in sorted(set(topics)):
        found.setdefault(cluster_of(topic), []).append(name_of(topic))
    return found


def parted(values: Mapping[TopicPartition, Value]) -> dict[str, dict[TopicPartition, Value]]:
    """Values of partitions, by the names of their clusters."""
    return {name: {place: values[place] for place in some} for name, some in by_cluster(values).items()}
