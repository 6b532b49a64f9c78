"""Client settings, in one place, each with the reason against librdkafka's default."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from falkirk.checkpoint.ids import OwnerId
from falkirk.errors import ConfigError

Settings = dict[str, str | int | float | bool]

logger = logging.getLogger("falkirk.kafka")

AHEAD: Settings = {
    # A partition with a full queue is not fetched for so long; the default of a second is longer than the queue lasts.
    "fetch.queue.backoff.ms": 10,
    "queued.min.messages": 100_000,
    "queued.max.messages.kbytes": 131_072,
}
"""How far consumers read ahead of the demand."""

LARGEST = 64_000_000
"""Bytes of a record that the client refuses to send. Topics refuse smaller ones, by their max.message.bytes."""

READER, SOURCE = "falkirk-reader", "falkirk-source"
"""Groups that nobody joins, for consumers with assigned partitions: librdkafka requires a group."""

OWN = frozenset({
    "acks", "auto.offset.reset", "enable.auto.commit", "enable.auto.offset.store", "enable.idempotence",
    "enable.partition.eof", "group.id", "group.instance.id", "group.protocol", "isolation.level",
    "partition.assignment.strategy", "request.required.acks", "session.timeout.ms", "transaction.timeout.ms",
    "transactional.id",
})  # fmt: skip
"""Settings that the protocol depends on: Falkirk sets them, for each client its own."""


def cluster_env(name: str) -> str:
    """The prefix of environment variables for another cluster.

    >>> cluster_env("sales-eu")
    'FALKIRK_CLUSTER_SALES_EU_'
    """
    return f"FALKIRK_CLUSTER_{name.upper().replace('-', '_')}_"


@dataclass(frozen=True, slots=True)
class Cluster:
    """How to reach a Kafka cluster.

    >>> Cluster("127.0.0.1:9092").settings()["bootstrap.servers"]
    '127.0.0.1:9092'
    """

    brokers: str
    client: Mapping[str, str | int | float | bool] = field(default_factory=dict, repr=False)
    """The user's own librdkafka settings (security, addresses); they win over all except the protocol's. They hold secrets:
    no repr shows them."""
    name: str = ""
    """Its name in flows; the app's own has none."""
    others: Mapping[str, Cluster] = field(default_factory=dict)
    """Those that sources may be in, by name."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a setting that the user may not give."""
        if taken := sorted(OWN & self.client.keys()):
            place = f"[cluster.{self.name}.kafka]" if self.name else "--set and [kafka]"
            raise ConfigError(
                f"{taken[0]} cannot be set: exactly-once depends on it",
                hint=f"leave it out of {place}"
                + ("; say --session-timeout" if taken[0] == "session.timeout.ms" else ""),
            )

    def of(self, name: str) -> Cluster:
        """The cluster with a name; "" is this one. Raises ConfigError.

        >>> Cluster("here:9092", others={"sales": Cluster("there:9092", name="sales")}).of("sales").brokers
        'there:9092'
        """
        if name == self.name:
            return self
        if name in self.others:
            return self.others[name]
        near = difflib.get_close_matches(name, self.others, 1)
        known = f"; those that are given: {', '.join(sorted(self.others))}" if self.others else ""
        raise ConfigError(
            f"the flow reads from a cluster {name!r}, and nothing says where that is",
            where=f"cluster={name!r} of a source or table{known}",
            hint=f"{f'did you mean {near[0]!r}? ' if near else ''}give its addresses: --cluster {name}=HOST:PORT,… (or "
            f'{cluster_env(name)}BROKERS, or brokers = "HOST:PORT" below [cluster.{name}] in falkirk.toml)',
        )

    def also(self, settings: Mapping[str, str | int | float | bool]) -> Cluster:
        """The same with more settings; the user's own win."""
        return replace(self, client={**settings, **self.client})

    @property
    def shown(self) -> str:
        """For people.

        >>> Cluster("there:9092", name="sales").shown
        'there:9092 (cluster sales)'
        """
        return f"{self.brokers} (cluster {self.name})" if self.name else self.brokers

    def settings(self) -> Settings:
        """What every client needs."""
        return {
            "bootstrap.servers": self.brokers,
            # Finds a restarted broker in milliseconds; the default doubles up to ten seconds.
            "reconnect.backoff.ms": 5,
            "reconnect.backoff.max.ms": 250,
            # Until the markers of a commit are written, some milliseconds, the next transaction gets CONCURRENT_TRANSACTIONS.
            # One after the other, transactions of 12 partitions take 10 ms with this, 15 with 10, and 100 with the default.
            "retry.backoff.ms": 1,
            "retry.backoff.max.ms": 20,
            # A client asks for a new topic at once, not after the default of 100 ms.
            "topic.metadata.refresh.fast.interval.ms": 10,
            "socket.nagle.disable": True,
            "log.connection.close": False,
            # Another client takes the place of one whose brokers have all been away (`contact`), and asks for their addresses
            # itself. If each did so whenever it cannot connect, a worker without its cluster would begin and end threads
            # that connect to the bootstrap servers, for half a core and more.
            "metadata.recovery.strategy": "none",
            # Topics are only created where that is asked for. If brokers have auto.create.topics.enable, a question about a
            # missing topic would create it; and one that is deleted while an app runs would come back, made by a producer
            # with the brokers' settings, and with as many partitions as they like.
            "allow.auto.create.topics": False,
            **self.client,
        }

    def producer(self, owner: OwnerId, transaction_timeout_ms: int, batch_bytes: int) -> Settings:
        """A transactional producer. `batch_bytes`: the smallest limit of any topic for one batch or record."""
        return {
            "compression.type": "lz4",
            "linger.ms": 5,
            **self.settings(),
            "transactional.id": owner,
            "transaction.timeout.ms": transaction_timeout_ms,
            "batch.num.messages": 20_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
            # The step bounds its own size. Topics' limits bound its records' sizes, checked before sending.
            "message.max.bytes": LARGEST,
            "batch.size": min(900_000, batch_bytes * 9 // 10),
        }

    def reader(self, *, committed: bool) -> Settings:
        """A consumer without a group that reads bounded ranges."""
        return {
            **AHEAD,
            # Several readers run at a time while tasks recover.
            "queued.max.messages.kbytes": 32_768,
            **self.settings(),
            "group.id": READER,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            # The end of a partition is reported by an empty fetch, and an empty fetch waits this long at the broker.
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 5,
            "fetch.min.bytes": 1,
        }

    def source(self, *, ends: bool = False, gathers: bool = False) -> Settings:
        """The consumer without a group that reads the inputs; with `ends` it reports when it reaches an input's end. With
        `gathers`, what comes slowly is fetched ten times a second, and not whenever a record has come."""
        return {
            **AHEAD,
            "fetch.wait.max.ms": 100,
            "fetch.min.bytes": 1_000_000 if gathers else 1,
            "fetch.error.backoff.ms": 20,
            "fetch.message.max.bytes": 4_000_000,
            **self.settings(),
            "group.id": SOURCE,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": ends,
        }

    def member(self, group: str, instance: str, session_timeout_ms: int) -> Settings:
        """The member of the app's group: static, so that a restart gets its tasks back without a rebalance."""
        return {
            # A step that takes longer costs the worker its tasks, again and again: the client's warning names this setting.
            "max.poll.interval.ms": max(300_000, session_timeout_ms),
            **self.settings(),
            "group.id": group,
            "group.instance.id": instance,
            "group.protocol": "classic",
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": session_timeout_ms,
            "heartbeat.interval.ms": max(200, min(1000, session_timeout_ms // 6)),
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "latest",
        }
