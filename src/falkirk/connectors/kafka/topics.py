"""Topics: what there is, what is made, and what is trimmed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.connectors.kafka.config import Cluster, client_logger, logger
from falkirk.connectors.kafka.errors import translate
from falkirk.errors import ClusterError, FalkirkError, UnreachableError

FOREVER = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
"""A topic of which only Falkirk deletes, and only below what every reader has taken."""

COMPACTED = {
    "cleanup.policy": "compact",
    "delete.retention.ms": str(7 * 24 * 3600 * 1000),
    "min.cleanable.dirty.ratio": "0.3",
    "segment.bytes": str(128 << 20),
    "max.compaction.lag.ms": str(24 * 3600 * 1000),
}
"""A changelog: the last value of each key, and tombstones for a week."""


_SILENCE = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError.REQUEST_TIMED_OUT)


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as the cluster describes it."""

    name: str
    id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group: where it connects from, and what it is assigned."""

    host: str
    partitions: tuple[int, ...]


class Topics:
    """The cluster's topics. Every call blocks; ClusterError says what is wrong in words."""

    def __init__(self, cluster: Cluster) -> None:
        self._brokers = cluster.brokers
        self._admin = AdminClient({**cluster.settings(), "log_level": 3}, logger=client_logger)

    def check_reachable(self, timeout: float = 10.0) -> None:
        """Raises ClusterError if no broker answers, or the cluster is too old."""
        try:
            self._admin.list_topics(timeout=timeout)
        except KafkaException as error:
            raise translate(error.args[0]) or UnreachableError(
                f"no broker answers at {self._brokers}: {error.args[0].str()}",
                hint="is Kafka running, and is the address right? For a broker of your own: falkirk kafka start",
            ) from error

    def describe(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """The topics among `names` that exist."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        found = {}
        for name, future in self._admin.describe_topics(TopicCollection(wanted), request_timeout=10).items():
            try:
                topic = future.result()
            except KafkaException as error:
                if error.args[0].code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
                    continue
                raise self._in_words(error, name) from error
            found[name] = TopicInfo(name, str(topic.topic_id), len(topic.partitions))
        return found

    def names(self) -> list[str]:
        """All topics that this user may see."""
        return sorted(self._admin.list_topics(timeout=10).topics)

    def members(self, group: str) -> dict[str, Member]:
        """The members of a group, by their instance ids. A group that nobody has joined has none."""
        future = self._admin.describe_consumer_groups([group], request_timeout=10)[group]
        try:
            found = future.result().members
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return {}
            raise self._in_words(error, f"of group {group}") from error
        return {
            m.group_instance_id or m.member_id: Member(
                m.host.lstrip("/"), tuple(p.partition for p in m.assignment.topic_partitions)
            )
            for m in found
        }

    def create(self, name: str, partitions: int, replication: int, config: Mapping[str, str]) -> None:
        """Make a topic, unless somebody just did, and wait until the cluster shows it."""
        wanted = NewTopic(name, partitions, replication, config=dict(config))
        try:
            self._admin.create_topics([wanted], request_timeout=30)[name].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._in_words(error, name) from error
        deadline = time.monotonic() + 15
        while name not in self.describe([name]):
            if time.monotonic() > deadline:
                raise ClusterError(f"topic {name!r} was made, but the cluster does not show it after 15 s")
            time.sleep(0.02)

    def configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """The settings of topics."""
        asked = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(set(names))]
        if not asked:
            return {}
        found = {}
        for resource, future in self._admin.describe_configs(asked, request_timeout=10).items():
            try:
                found[resource.name] = {key: entry.value for key, entry in future.result().items()}
            except KafkaException as error:
                raise self._in_words(error, resource.name) from error
        return found

    def offsets(self, partitions: Iterable[TopicPartition], at: str | int) -> dict[TopicPartition, Offset]:
        """Offsets at "earliest", at "latest" (the high watermark), or of the first record at or after some milliseconds."""
        spec = (
            OffsetSpec.earliest()  # type: ignore[no-untyped-call]
            if at == "earliest"
            else OffsetSpec.latest()  # type: ignore[no-untyped-call]
            if at == "latest"
            else OffsetSpec.for_timestamp(int(at))
        )
        asked = {KafkaPartition(p.topic, p.partition): spec for p in partitions}
        if not asked:
            return {}
        found = {}
        futures = self._admin.list_offsets(asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=10)
        for p, future in futures.items():
            try:
                found[TopicPartition(p.topic, p.partition)] = Offset(future.result().offset)
            except KafkaException as error:
                raise self._in_words(error, p.topic) from error
        late = [p for p, offset in found.items() if offset < 0]  # no record is that late: begin at the end
        return {**found, **(self.offsets(late, "latest") if late else {})}

    def trim(self, below: Mapping[TopicPartition, Offset]) -> None:
        """Delete records below the offsets. What fails now is deleted the next time."""
        asked = [KafkaPartition(p.topic, p.partition, o) for p, o in below.items() if o > 0]
        if not asked:
            return
        for p, future in self._admin.delete_records(asked, request_timeout=10).items():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.OFFSET_OUT_OF_RANGE:
                    logger.warning("cannot trim %s[%s] below %s yet: %s", p.topic, p.partition, p.offset, error.args[0])

    @staticmethod
    def _in_words(error: KafkaException, topic: str) -> FalkirkError:
        cause: KafkaError = error.args[0]
        if cause.retriable() or cause.code() in _SILENCE:
            return UnreachableError(f"no broker answers: {cause.str()}", where=f"topic {topic}")
        return translate(cause) or ClusterError(f"the cluster refused a request: {cause.str()}", where=f"topic {topic}")
