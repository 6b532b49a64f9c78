"""Where partitions begin and end, and what is deleted of them, asked only of leaders that the client knows.

If librdkafka 2.16 is asked about a partition whose leader it does not know, it looks for the leader in the caller's thread.
If new metadata arrives in that moment, librdkafka's own thread ends the same question and frees it. The caller's thread then
writes to freed memory, and the process dies, at once or later. On a busy host, it took about 3,000 questions about a missing
topic, each with a new client.

    list_offsets or delete_records of p  ⇒  the metadata that has just come names a living leader of p
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ClusterMetadata,
    DeletedRecords,
    ListOffsetsResultInfo,
    OffsetSpec,
)

MISSING = KafkaError._NOENT
"""The error of a partition that does not exist, by what the cluster says now."""


def list_offsets(
    admin: AdminClient, specs: Mapping[TopicPartition, OffsetSpec], level: IsolationLevel, timeout: float
) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
    """Ask the leaders of partitions for offsets. Where no leader is known, the answer is a failed one. Each request takes up
    to `timeout` seconds."""
    failed = _without_leader(admin, specs, timeout)
    asked = {p: spec for p, spec in specs.items() if p not in failed}
    answers = admin.list_offsets(asked, isolation_level=level, request_timeout=timeout) if asked else {}
    return {**answers, **failed}


def delete_records(
    admin: AdminClient, below: Collection[TopicPartition], timeout: float
) -> dict[TopicPartition, Future[DeletedRecords]]:
    """Ask the leaders of partitions to delete what is below their offsets, in the same way."""
    failed = _without_leader(admin, below, timeout)
    asked = [p for p in below if p not in failed]
    answers = admin.delete_records(asked, request_timeout=timeout) if asked else {}
    return {**answers, **failed}


def _without_leader(
    admin: AdminClient, partitions: Iterable[TopicPartition], timeout: float
) -> dict[TopicPartition, Future[Any]]:
    """The partitions without a known leader, each with the reason as a failed answer."""
    told: dict[str, ClusterMetadata] = {}
    failed, silent = {}, None
    for p in partitions:
        if p.topic not in told and silent is None:
            try:
                told[p.topic] = admin.list_topics(p.topic, timeout=timeout)  # what it returns, librdkafka knows already
            except KafkaException as error:
                silent = error.args[0]
        if (why := _why(told[p.topic], p) if p.topic in told else silent) is not None:
            failed[p] = Future[Any]()
            failed[p].set_exception(KafkaException(why))
    return failed


def _why(told: ClusterMetadata, p: TopicPartition) -> KafkaError | None:
    """Why the partition has no known leader; None if it has one. One that is missing may be new: not all brokers know of it
    at once."""
    topic = told.topics.get(p.topic)
    if topic is not None and topic.error is not None and topic.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
        return topic.error
    if topic is None or p.partition not in topic.partitions:
        return KafkaError(MISSING, f"no broker knows {p.topic}[{p.partition}]")
    if topic.partitions[p.partition].leader not in told.brokers:
        return KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
    return None
