"""Topics: what exists, what is made, and what is trimmed."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from falkirk.checkpoint.ids import Offset, TopicPartition, address, cluster_of
from falkirk.connectors.kafka.admin.described import MISSING, TopicInfo, described
from falkirk.connectors.kafka.admin.members import Group, group_of
from falkirk.connectors.kafka.client.certificates import distrust
from falkirk.connectors.kafka.client.clients import client, is_unheard
from falkirk.connectors.kafka.client.config import Cluster, logger
from falkirk.connectors.kafka.client.errors import LOADING, MOVED, found_offset, in_words, settings_place, translate
from falkirk.connectors.kafka.client.leaders import delete_records, list_offsets
from falkirk.connectors.kafka.client.pending_answer import PendingAnswer
from falkirk.connectors.kafka.client.places import names_by_cluster, parted, theirs
from falkirk.errors import ClusterError, ConfigError, UnreachableError

AGAIN = 10.0
"""Seconds until another client may take the place of one that got no answer. The last few remain for those who wait."""

PATIENCE = 10.0
"""Seconds within which a partition should have a leader again."""


class Topics:
    """The cluster's topics. Calls that only ask also take topics of other clusters, by their addresses. Every call blocks;
    ClusterError says in words what is wrong."""

    def __init__(self, cluster: Cluster) -> None:
        self.brokers = cluster.shown
        self._cluster = cluster
        self._by_cluster: dict[str, Topics] = {cluster.name: self}
        self._trouble: KafkaError | None = None
        self._aside = ThreadPoolExecutor(1, "falkirk-topics")
        self._settings = {**cluster.settings(), "log_level": 3, "error_cb": self._troubled}
        self._admin = client(AdminClient, self._settings)
        self._replaced = deque[AdminClient](maxlen=4)
        """The last clients before it: threads may still wait for their answers, which never come once a client is gone."""
        self._made = time.monotonic()

    def _troubled(self, error: KafkaError) -> None:
        """librdkafka says why it cannot connect: the waiting call only gets a time-out."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN and not is_unheard(error.str()):
            self._trouble = error

    def of(self, cluster: str) -> Topics:
        """Those of another cluster; it knows no further ones. Raises ConfigError if its brokers are not given."""
        if cluster not in self._by_cluster:
            self._by_cluster[cluster] = Topics(self._cluster.of(cluster))
        return self._by_cluster[cluster]

    def check_reachable(self, timeout: float = 8.0) -> None:
        """Raises UnreachableError if no broker answers, ClusterError if the broker refuses us."""
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
                    hint="is it certified by whom ssl.ca.location names "
                    f"({settings_place(self._cluster.name)}), for this address, and in date?",
                ) from error
            hint = "is Kafka running, and is the address right?"
            raise translate(cause, where, self._cluster.name) or UnreachableError(
                f"no broker answers at {self.brokers}: {cause.str()}",
                hint=hint if self._cluster.name else f"{hint} For a broker of your own: falkirk kafka start",
            ) from error

    def describe(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """The topics among `names` that exist."""
        return self.ask(names, 10).result()

    def sought(self, names: Iterable[str], patience: float = PATIENCE) -> dict[str, TopicInfo]:
        """The topics among `names` that exist, where all should exist. A broker may not know yet of a topic that was just
        made, so the missing ones are asked for again."""
        wanted, found, deadline = set(names), dict[str, TopicInfo](), time.monotonic() + patience
        while left := wanted - found.keys():
            found |= self.describe(left)
            if time.monotonic() > deadline:
                break
            time.sleep(0.02 if wanted - found.keys() else 0)
        return found

    def shown(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Topics that were seen, so they exist. Raises ClusterError if the cluster does not show one."""
        wanted = set(names)
        found = self.sought(wanted)
        if missing := wanted - found.keys():
            raise ClusterError(f"topic {min(missing)!r} was there, and the cluster does not show it")
        return found

    def ask(self, names: Iterable[str], timeout: float) -> PendingAnswer[dict[str, TopicInfo]]:
        """As `describe`, but does not wait."""
        futures: dict[str, Future[Any]] = {}
        for cluster, wanted in names_by_cluster(names).items():
            asked = self.of(cluster)._admin.describe_topics(TopicCollection(wanted), request_timeout=timeout)
            futures |= {address(cluster, name): future for name, future in asked.items()}
        return PendingAnswer(futures.values(), lambda: self._described(futures))

    def _described(self, futures: Mapping[str, Future[Any]]) -> dict[str, TopicInfo]:
        try:
            return described(futures)
        except UnreachableError:
            for cluster in {cluster_of(topic) for topic in futures}:
                self.of(cluster)._replace()
            raise

    def _replace(self) -> None:
        """Ask with another client from now on: this one may have lost its cluster for good (see `Contact`)."""
        if time.monotonic() - self._made > AGAIN:
            self._replaced.append(self._admin)
            self._admin, self._made = client(AdminClient, self._settings), time.monotonic()

    def there(self, topic: str, hint: str) -> TopicInfo:
        """A topic that must exist. Raises ClusterError with this hint if it does not."""
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
            raise in_words(error, f"brokers {self.brokers}") from error

    def ask_names(self) -> PendingAnswer[list[str]]:
        """The same, without waiting for the answer."""
        future = self._aside.submit(self.names)
        return PendingAnswer([future], future.result)

    def group(self, name: str, timeout: float = 30) -> Group:
        """A consumer group. Any broker may be its coordinator: all are asked, and again while one is still loading."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)  # why not the newer call: see `members`
                    found = self._admin.list_groups(name, min(timeout, 10))
            except KafkaException as error:
                if error.args[0].code() not in LOADING or time.monotonic() > deadline:
                    raise in_words(error, f"consumer group {name}") from error
                time.sleep(0.1)
            else:
                return group_of(found[0]) if found else Group(False, {})

    def ask_group(self, name: str, timeout: float) -> PendingAnswer[Group]:
        """The same, without waiting for the answer."""
        future = self._aside.submit(self.group, name, timeout)
        return PendingAnswer([future], future.result)

    def nodes(self) -> list[str]:
        """The addresses that brokers give to clients."""
        found = self._admin.list_topics(timeout=10).brokers.values()
        return sorted(f"{broker.host}:{broker.port}" for broker in found)

    def try_to_create(self, name: str, partitions: int, replication: int, config: Mapping[str, str]) -> None:
        """Ask whether a topic could be made. Raises ClusterError if it could not."""
        wanted = NewTopic(name, partitions, replication, config=dict(config))
        try:
            self._admin.create_topics([wanted], request_timeout=30, validate_only=True)[name].result()
        except KafkaException as error:
            raise in_words(error, f"topic {name}") from error

    def create(self, name: str, partitions: int, replication: int, config: Mapping[str, str]) -> None:
        """Make a topic, unless it exists by now, and wait until the cluster shows it."""
        wanted = NewTopic(name, partitions, replication, config=dict(config))
        try:
            self._admin.create_topics([wanted], request_timeout=30)[name].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise in_words(error, f"topic {name}") from error
        known = address(self._cluster.name, name)
        _wait(lambda: [] if self.describe([known]) else [name], "topic {!r} was made, but the cluster does not show it")

    def delete(self, names: Collection[str]) -> None:
        """Delete topics, and wait until the cluster does not show them. A missing one is fine."""
        for name in names:
            try:
                self._admin.delete_topics([name], request_timeout=30, operation_timeout=30)[name].result()
            except KafkaException as error:
                if error.args[0].code() not in MISSING:
                    raise in_words(error, f"topic {name}") from error
        _wait(lambda: self.describe(names), "topic {!r} was deleted, but the cluster shows it still")

    def delete_groups(self, names: Collection[str]) -> None:
        """Delete consumer groups. Raises ConfigError if one has members; a missing one is fine."""
        for name in names:
            try:
                self._admin.delete_consumer_groups([name], request_timeout=30)[name].result()
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError.NON_EMPTY_GROUP:
                    raise ConfigError(f"consumer group {name!r} has members", hint="stop them first") from error
                if code != KafkaError.GROUP_ID_NOT_FOUND:
                    raise in_words(error, f"consumer group {name}") from error

    def grow(self, name: str, partitions: int) -> None:
        """Give a topic so many partitions, if it has fewer, and wait until the cluster shows it."""
        wanted = NewPartitions(name, partitions)
        try:
            self._admin.create_partitions([wanted], request_timeout=30)[name].result()
        except KafkaException as error:
            # Somebody else was first: whether it has enough now is seen below.
            if error.args[0].code() != KafkaError.INVALID_PARTITIONS:
                raise in_words(error, f"topic {name}") from error
        self.with_partitions({name: partitions})

    def with_partitions(self, least: Mapping[str, int]) -> dict[str, TopicInfo]:
        """Topics that have at least so many partitions, though a broker may not show the last ones yet. Raises ClusterError
        if none shows them."""
        found = dict[str, TopicInfo]()

        def behind() -> list[str]:
            found.update(self.shown(least))
            return [name for name, count in least.items() if found[name].partitions < count]

        if least:
            _wait(behind, "partitions were added to {!r}, but the cluster does not show them")
        return found

    def configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """The settings of topics that exist, even if the broker that is asked does not know a new one yet."""
        found: dict[str, dict[str, str]] = {}
        wanted, deadline = set(names), time.monotonic() + PATIENCE
        while left := wanted - found.keys():
            for cluster, some in names_by_cluster(left).items():
                asked = [ConfigResource(ResourceType.TOPIC, name) for name in some]
                for resource, future in self.of(cluster)._admin.describe_configs(asked, request_timeout=10).items():
                    topic = address(cluster, resource.name)
                    try:
                        found[topic] = {key: entry.value for key, entry in future.result().items()}
                    except KafkaException as error:
                        if error.args[0].code() not in MISSING or time.monotonic() > deadline:
                            raise in_words(error, f"topic {topic}") from error
                        time.sleep(0.05)
        return found

    def alter(self, names: Collection[str], config: Mapping[str, str]) -> None:
        """Add these settings to topics of this cluster. Raises ClusterError, with the first topic that is refused."""
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()
        ]
        asked = [ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries) for name in sorted(names)]
        if not asked:
            return
        for resource, future in self._admin.incremental_alter_configs(asked, request_timeout=10).items():
            try:
                future.result()
            except KafkaException as error:
                raise in_words(error, f"topic {resource.name}") from error

    def offsets(self, partitions: Iterable[TopicPartition], at: str | int) -> dict[TopicPartition, Offset]:
        """Offsets at "earliest", at "latest" (the high watermark), at "stable" (the first open transaction, or else the high
        watermark), or of the first record at or after some milliseconds."""
        spec = (
            OffsetSpec.earliest()  # type: ignore[no-untyped-call]
            if at == "earliest"
            else OffsetSpec.latest()  # type: ignore[no-untyped-call]
            if at in ("latest", "stable")
            else OffsetSpec.for_timestamp(int(at))
        )
        level = IsolationLevel.READ_COMMITTED if at == "stable" else IsolationLevel.READ_UNCOMMITTED
        found: dict[TopicPartition, Offset] = {}
        for cluster, some in parted(dict.fromkeys(partitions, spec)).items():
            found |= self.of(cluster)._offsets(some, level)
        late = [p for p, offset in found.items() if offset < 0]  # no record is so late: begin at the end
        return {**found, **(self.offsets(late, "latest") if late else {})}

    def _offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec],
        level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        timeout: float = 10,
    ) -> dict[TopicPartition, Offset]:
        """Of this cluster's partitions."""
        asked = {theirs(p): spec for p, spec in specs.items()}
        found: dict[TopicPartition, Offset] = {}
        deadline = time.monotonic() + PATIENCE
        admin = former = self._admin
        while asked:
            for p, future in list_offsets(admin, asked, level, timeout).items():
                topic = address(self._cluster.name, p.topic)
                try:
                    found[TopicPartition(topic, p.partition)] = found_offset(future.result())
                except KafkaException as error:
                    if error.args[0].code() not in MOVED or time.monotonic() > deadline:
                        raise in_words(error, f"topic {topic}") from error
            asked = {theirs(p): spec for p, spec in specs.items() if p not in found}
            if asked:
                time.sleep(0.1)
                admin = client(AdminClient, self._settings)
        if admin is not former is self._admin:  # else another thread has replaced it
            self._replaced.append(former)
            self._admin = admin
        return found

    def trim(self, below: Mapping[TopicPartition, Offset]) -> bool:
        """Delete records below the offsets. Returns whether all have gone; what fails now is deleted next time."""
        asked = [KafkaPartition(p.topic, p.partition, o) for p, o in below.items() if o > 0]
        if not asked:
            return True
        done = True
        for p, future in delete_records(self._admin, asked, timeout=10).items():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.OFFSET_OUT_OF_RANGE:
                    done = False
                    logger.warning("cannot trim %s[%s] below %s yet: %s", p.topic, p.partition, p.offset, error.args[0])
        return done


def _wait(left: Callable[[], Collection[str]], words: str) -> None:
    """Wait until the cluster shows what was done: no topic is `left`. Raises ClusterError, with the first that is."""
    deadline = time.monotonic() + 15
    while names := left():
        if time.monotonic() > deadline:
            raise ClusterError(f"{words.format(min(names))} after 15 s")
        time.sleep(0.02)
