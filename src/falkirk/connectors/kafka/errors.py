"""Kafka's errors that no retry will mend, in words."""

from __future__ import annotations

from typing import NamedTuple

from confluent_kafka import OFFSET_END, KafkaError, KafkaException
from confluent_kafka.admin import ListOffsetsResultInfo  # type: ignore[attr-defined]

from falkirk.checkpoint.ids import Offset
from falkirk.errors import ClusterError, ConfigError, FalkirkError


class Words(NamedTuple):
    """What an error means, and what to do about it."""

    what: str
    hint: str
    kind: type[FalkirkError] = ClusterError


LOADING = (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR)
"""What a broker says that has been started: it reads first what it is to coordinate, or makes the topic of groups."""

OLDEST = "2.8"
"""Of Kafka: the first that gives topics ids. Transactions that check the group's generation are older."""

_TOO_OLD = Words("the broker is too old", f"Falkirk needs Kafka {OLDEST} or later")
_CREDENTIALS = Words(
    "the broker refused the credentials", "check sasl.username, sasl.password and sasl.mechanism ({given})"
)
_RIGHTS = "falkirk check APP:FLOW says which right is missing; falkirk topics APP:FLOW --acls --user NAME prints all"
_GONE = "was it deleted while the app ran?"

_WORDS: dict[int, Words] = {
    KafkaError.MSG_SIZE_TOO_LARGE: Words(
        "a record is larger than the broker or its topic accepts",
        "raise the topic's max.message.bytes, or make the output smaller",
    ),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: Words("not authorised for a topic", _RIGHTS),
    KafkaError.GROUP_AUTHORIZATION_FAILED: Words("not authorised for the group", _RIGHTS),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: Words(
        "not authorised for the cluster", "grant IDEMPOTENT_WRITE on the cluster"
    ),
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Words(
        "not authorised for the transactional id",
        _RIGHTS,
    ),
    KafkaError.SASL_AUTHENTICATION_FAILED: _CREDENTIALS,
    KafkaError._AUTHENTICATION: _CREDENTIALS,
    KafkaError._SSL: Words(
        "no secure connection to the broker",
        "check security.protocol, ssl.ca.location ({given}) and the address's port",
    ),
    KafkaError.UNSUPPORTED_VERSION: _TOO_OLD,
    KafkaError._UNSUPPORTED_FEATURE: _TOO_OLD,
    KafkaError.INVALID_TRANSACTION_TIMEOUT: Words(
        "the broker refuses the transaction time-out", "lower it below the broker's transaction.max.timeout.ms"
    ),
    KafkaError.INVALID_SESSION_TIMEOUT: Words(
        "the broker refuses the session time-out",
        "choose --session-timeout between the broker's group.min.session.timeout.ms and group.max.session.timeout.ms",
        ConfigError,
    ),
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: Words(
        "other programs are members of the consumer group that is named as the app",
        "give the flow another name, or those programs another group",
    ),
    KafkaError.INVALID_REPLICATION_FACTOR: Words(
        "the cluster has too few brokers for the replication factor",
        "choose a lower one with --replication",
        ConfigError,
    ),
    KafkaError.TOPIC_EXCEPTION: Words(
        "the cluster refuses a topic's name", "use letters, digits, dots, dashes and underscores", ConfigError
    ),
    KafkaError.UNKNOWN_TOPIC_OR_PART: Words("a topic is missing", _GONE),
    KafkaError._UNKNOWN_TOPIC: Words("a topic is missing", _GONE),
    KafkaError._UNKNOWN_PARTITION: Words(
        "a partition is missing", "was the topic deleted or made anew while the app ran?"
    ),
}


def translate(error: KafkaError, where: str = "", cluster: str = "") -> FalkirkError | None:
    """An error in words for what cannot be mended by trying again, else None. `cluster`: the name of that which says so."""
    words = _WORDS.get(error.code())
    if words is None:
        return None
    return words.kind(f"{words.what}: {error.str()}", where=where, hint=words.hint.format(given=given(cluster)))


def given(cluster: str) -> str:
    """Where a client's settings are given, by the name of its cluster."""
    return f"[cluster.{cluster}.kafka]" if cluster else "--set, or [kafka]"


def told(answer: ListOffsetsResultInfo) -> Offset:
    """The offset that `list_offsets` found. Raises KafkaException where no broker told it: of one that falls silent when it
    has been asked, librdkafka (2.16) drops the error, and gives an offset that means nothing as the answer. Who took it for
    the end of a log would believe to have read it."""
    if answer.offset < OFFSET_END:  # the end itself is an answer: no record is that late
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the broker has not said where a partition is"))
    return Offset(answer.offset)
