"""Topics: what there is, what is made, and what is trimmed."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from falkirk.checkpoint.ids import Offset, TopicPartition, address, cluster_of, name_of
from falkirk.connectors.kafka.certificates import distrust
from falkirk.connectors.kafka.clients import client, is_unheard, meet
from falkirk.connectors.kafka.config import Cluster, logger
from falkirk.connectors.kafka.errors import LOADING, OLDEST, given, told, translate
from falkirk.connectors.kafka.members import Group, group_of
from falkirk.connectors.kafka.places import parted, theirs
from falkirk.errors import ClusterError, ConfigError, FalkirkError, UnreachableError

T = TypeVar("T")

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

TABLE = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(24 * 3600 * 1000)}
"""The result of a batch part that is a table too: the rows before an epoch stay, for a day, until it is complete."""

NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id of a topic that has none: 16 zeros, in base64."""

_MOVED = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError._NOENT,
)
"""A partition has another leader, or will have one soon. A client that knew the broker before it was restarted may be
answered so for ever: a new one asks again."""

PATIENCE = 10.0
"""Seconds within which a partition ought to have a leader again."""

_MISSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)

_SILENCE = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError.REQUEST_TIMED_OUT)


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as the cluster describes it."""

    name: str
    id: str
    partitions: int


class Asked(Generic[T]):
    """A question to the cluster that is under way."""

    def __init__(self, futures: Collection[Future[Any]], answer: Callable[[], T]) -> None:
        self._futures, self._answer = futures, answer

    def done(self) -> bool:
        """Whether `result` need not wait."""
        return all(future.done() for future in self._futures)

    def result(self) -> T:
        """The answer. Raises ClusterError."""
        return self._answer()


class Topics:
    """The cluster's topics, and where it is only asked, those of the clusters beside it too: by their addresses. Every call
    blocks; ClusterError says what is wrong in words."""

    def __init__(self, cluster: Cluster) -> None:
        self.brokers = cluster.shown
        self._cluster = cluster
        self._by_cluster: dict[str, Topics] = {cluster.name: self}
        self._trouble: KafkaError | None = None
        self._aside = ThreadPoolExecutor(1, "falkirk-topics")
        self._settings = {**cluster.settings(), "log_level": 3, "error_cb": self._troubled}
        self._admin = client(AdminClient, self._settings)

    def _troubled(self, error: KafkaError) -> None:
        """librdkafka says why it cannot connect: the call that waits for it is only told that it waited in vain."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN and not is_unheard(error.str()):
            self._trouble = error

    def of(self, cluster: str) -> Topics:
        """Those of another cluster, to which no others are known. Raises ConfigError where its brokers are not given."""
        if cluster not in self._by_cluster:
            self._by_cluster[cluster] = Topics(self._cluster.of(cluster))
        return self._by_cluster[cluster]

    def check_reachable(self, timeout: float = 8.0) -> None:
        """Raises UnreachableError if no broker answers, ClusterError if it will have nothing to do with us."""
        try:
            self._admin.list_topics(timeout=timeout)
        except KafkaException as error:
            self._admin.poll(0)
            cause = self._trouble or error.args[0]
            where = f"brokers {self.brokers}"
            if "SSL" in cause.str() and (why := distrust(self._cluster.brokers, self._settings)):
                raise ClusterError(
                    f"the broker's certificate is not to be trusted: {why}",
                    where=where,
                    hint=f"is it certified by whom ssl.ca.location names ({given(self._cluster.name)}), for this address, "
                    "and in date?",
                ) from error
            hint = "is Kafka running, and is the address right?"
            raise translate(cause, where, self._cluster.name) or UnreachableError(
                f"no broker answers at {self.brokers}: {cause.str()}",
                hint=hint if self._cluster.name else f"{hint} For a broker of your own: falkirk kafka start",
            ) from error

    def describe(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """The topics among `names` that exist."""
        return self.ask(names, 10).result()

    def ask(self, names: Iterable[str], timeout: float) -> Asked[dict[str, TopicInfo]]:
        """The same, without waiting for the answer."""
        futures: dict[str, Future[Any]] = {}
        for cluster, wanted in _by_cluster(names).items():
            asked = self.of(cluster)._admin.describe_topics(TopicCollection(wanted), request_timeout=timeout)
            futures |= {address(cluster, name): future for name, future in asked.items()}
        return Asked(futures.values(), lambda: described(futures))

    def there(self, topic: str, hint: str) -> TopicInfo:
        """A topic that must be there. Raises ClusterError with this hint where it is not."""
        cluster = self.of(cluster_of(topic))
        cluster.check_reachable(timeout=5.0)
        found = self.describe([topic]).get(topic)
        if found is None:
            raise ClusterError(f"topic {topic!r} does not exist", where=f"brokers {cluster.brokers}", hint=hint)
        return found

    def names(self) -> list[str]:
        """All topics that this user may see."""
        try:
            return sorted(self._admin.list_topics(timeout=10).topics)
        except KafkaException as error:
            raise _in_words(error, f"brokers {self.brokers}") from error

    def ask_names(self) -> Asked[list[str]]:
        """The same, without waiting for the answer."""
        future = self._aside.submit(self.names)
        return Asked([future], future.result)

    def group(self, name: str, timeout: float = 30) -> Group:
        """A consumer group. Its coordinator may be any broker: all are asked, and again while one has only begun to be it."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)  # what is to be called instead: see `members`
                    found = self._admin.list_groups(name, min(timeout, 10))
            except KafkaException as error:
                if error.args[0].code() not in LOADING or time.monotonic() > deadline:
                    raise _in_words(error, f"consumer group {name}") from error
                time.sleep(0.1)
            else:
                return group_of(found[0]) if found else Group(False, {})

    def ask_group(self, name: str, timeout: float) -> Asked[Group]:
        """The same, without waiting for the answer."""
        future = self._aside.submit(self.group, name, timeout)
        return Asked([future], future.result)

    def nodes(self) -> list[str]:
        """The brokers, as they tell clients to reach them."""
        found = self._admin.list_topics(timeout=10).brokers.values()
        return sorted(f"{broker.host}:{broker.port}" for broker in found)

    def try_to_create(self, name: str, partitions: int, replication: int, config: Mapping[str, str]) -> None:
        """Ask whether a topic could be made. Raises ClusterError where it could not."""
        wanted = NewTopic(name, partitions, replication, config=dict(config))
        try:
            self._admin.create_topics([wanted], request_timeout=30, validate_only=True)[name].result()
        except KafkaException as error:
            raise _in_words(error, f"topic {name}") from error

    def create(self, name: str, partitions: int, replication: int, config: Mapping[str, str]) -> None:
        """Make a topic, unless somebody just did, and wait until the cluster shows it."""
        wanted = NewTopic(name, partitions, replication, config=dict(config))
        try:
            self._admin.create_topics([wanted], request_timeout=30)[name].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise _in_words(error, f"topic {name}") from error
        known = address(self._cluster.name, name)
        _wait(lambda: [] if self.describe([known]) else [name], "topic {!r} was made, but the cluster does not show it")

    def delete(self, names: Collection[str]) -> None:
        """Delete topics, and wait until the cluster does not show them. One that is not there is fine."""
        for name in names:
            try:
                self._admin.delete_topics([name], request_timeout=30, operation_timeout=30)[name].result()
            except KafkaException as error:
                if error.args[0].code() not in _MISSING:
                    raise _in_words(error, f"topic {name}") from error
        _wait(lambda: self.describe(names), "topic {!r} was deleted, but the cluster shows it still")

    def delete_groups(self, names: Collection[str]) -> None:
        """Delete consumer groups. Raises ConfigError where one has members; one that is not there is fine."""
        for name in names:
            try:
                self._admin.delete_consumer_groups([name], request_timeout=30)[name].result()
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError.NON_EMPTY_GROUP:
                    raise ConfigError(f"consumer group {name!r} has members", hint="stop them first") from error
                if code != KafkaError.GROUP_ID_NOT_FOUND:
                    raise _in_words(error, f"consumer group {name}") from error

    def grow(self, name: str, partitions: int) -> None:
        """Give a topic so many partitions, unless it has them, and wait until the cluster shows it."""
        wanted = NewPartitions(name, partitions)
        try:
            self._admin.create_partitions([wanted], request_timeout=30)[name].result()
        except KafkaException as error:
            # Somebody else was first: that there are as many now is seen below.
            if error.args[0].code() != KafkaError.INVALID_PARTITIONS:
                raise _in_words(error, f"topic {name}") from error
        _wait(
            lambda: [] if self.describe([name])[name].partitions >= partitions else [name],
            "partitions were added to {!r}, but the cluster does not show them",
        )

    def configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """The settings of topics."""
        found = {}
        for cluster, wanted in _by_cluster(names).items():
            asked = [ConfigResource(ResourceType.TOPIC, name) for name in wanted]
            for resource, future in self.of(cluster)._admin.describe_configs(asked, request_timeout=10).items():
                topic = address(cluster, resource.name)
                try:
                    found[topic] = {key: entry.value for key, entry in future.result().items()}
                except KafkaException as error:
                    raise _in_words(error, f"topic {topic}") from error
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
        found: dict[TopicPartition, Offset] = {}
        for cluster, some in parted(dict.fromkeys(partitions, spec)).items():
            found |= self.of(cluster)._offsets(some)
        late = [p for p, offset in found.items() if offset < 0]  # no record is that late: begin at the end
        return {**found, **(self.offsets(late, "latest") if late else {})}

    def _offsets(self, specs: Mapping[TopicPartition, OffsetSpec], timeout: float = 10) -> dict[TopicPartition, Offset]:
        """Of partitions of this cluster."""
        asked = {theirs(p): spec for p, spec in specs.items()}
        found: dict[TopicPartition, Offset] = {}
        deadline = time.monotonic() + PATIENCE
        while asked:
            level = IsolationLevel.READ_UNCOMMITTED
            for p, future in self._admin.list_offsets(asked, isolation_level=level, request_timeout=timeout).items():
                topic = address(self._cluster.name, p.topic)
                try:
                    found[TopicPartition(topic, p.partition)] = told(future.result())
                except KafkaException as error:
                    if error.args[0].code() not in _MOVED or time.monotonic() > deadline:
                        raise _in_words(error, f"topic {topic}") from error
            asked = {theirs(p): spec for p, spec in specs.items() if p not in found}
            if asked:
                time.sleep(0.1)
                self._admin = client(AdminClient, self._settings)
                for topic in {p.topic for p in asked}:
                    meet(self._admin, topic)
        return found

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


def _by_cluster(topics: Iterable[str]) -> dict[str, list[str]]:
    """The names of topics by those of their clusters.

    >>> _by_cluster(["steps", "sales:bids", "sales:asks"])
    {'sales': ['asks', 'bids'], '': ['steps']}
    """
    found: dict[str, list[str]] = {}
    for topic in sorted(set(topics)):
        found.setdefault(cluster_of(topic), []).append(name_of(topic))
    return found


def _wait(left: Callable[[], Collection[str]], words: str) -> None:
    """Until the cluster shows what was done: no topic is left of which it does not. Raises ClusterError, with the first."""
    deadline = time.monotonic() + 15
    while names := left():
        if time.monotonic() > deadline:
            raise ClusterError(f"{words.format(min(names))} after 15 s")
        time.sleep(0.02)


def described(futures: Mapping[str, Future[Any]]) -> dict[str, TopicInfo]:
    """The topics that exist."""
    found = {}
    for name, future in futures.items():
        try:
            topic = future.result()
        except KafkaException as error:
            if error.args[0].code() in _MISSING:
                continue
            raise _in_words(error, f"topic {name}") from error
        if str(topic.topic_id) == NO_ID:
            raise ClusterError(
                "the broker is too old: its topics have no ids, so one that is made anew could not be told from the old",
                where=f"topic {name}",
                hint=f"Falkirk needs Kafka {OLDEST} or later",
            )
        found[name] = TopicInfo(name, str(topic.topic_id), len(topic.partitions))
    return found


def _in_words(error: KafkaException, where: str) -> FalkirkError:
    cause: KafkaError = error.args[0]
    if cause.retriable() or cause.code() in (*_SILENCE, *_MOVED, *LOADING):
        return UnreachableError(f"no broker answers: {cause.str()}", where=where)
    return translate(cause, where) or ClusterError(f"the cluster refused a request: {cause.str()}", where=where)
