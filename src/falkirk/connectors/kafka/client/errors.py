"""Kafka's errors in words, and which of them pass."""

from __future__ import annotations

import re
from typing import NamedTuple

from confluent_kafka import OFFSET_END, KafkaError, KafkaException
from confluent_kafka.admin import ListOffsetsResultInfo  # type: ignore[attr-defined]

from falkirk.checkpoint.ids import Offset
from falkirk.checkpoint.ports import Why
from falkirk.errors import ClusterError, ConfigError, FalkirkError, UnreachableError


class Words(NamedTuple):
    """What an error means, and what to do about it."""

    what: str
    hint: str
    kind: type[FalkirkError] = ClusterError


LOADING = (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR)
"""Errors of a broker that has just started: it first loads what it coordinates, or makes the topic of groups."""

MOVED = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError._NOENT,
)
"""A partition has another leader, or will have one soon. A client that knew the broker before its restart may get this
answer forever: a new client asks again."""

_SILENCE = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError.REQUEST_TIMED_OUT)

UNPLACED = KafkaError(KafkaError._BAD_MSG, "a record was acknowledged, and not where it is")
"""It was sent again, and the broker had it already. librdkafka takes that for a success. The record's offset is None then,
and must not be taken for 0."""

OLDEST = "2.8"
"""The first Kafka with topic ids. Transactions that check the group's generation are older."""

_TOO_OLD = Words("the broker is too old", f"Falkirk needs Kafka {OLDEST} or later")
_CREDENTIALS = Words(
    "the broker refused the credentials",
    "check sasl.username, sasl.password and sasl.mechanism ({settings}), and "
    "whether this port of the broker expects SASL (security.protocol)",
)
_RIGHTS = "falkirk check APP:FLOW says which right is missing; falkirk topics APP:FLOW --acls --user NAME prints all"
_STARTED_AGAIN = (
    "Started again, the app knows what its sinks' topics accept, and on_error= says what becomes of other rows"
)
_GONE = "was it deleted while the app ran?"

_WORDS: dict[int, Words] = {
    KafkaError.MSG_SIZE_TOO_LARGE: Words(
        "a record is larger than the broker or its topic accepts",
        "raise the topic's max.message.bytes, or make the output smaller",
    ),
    KafkaError.INVALID_RECORD: Words(
        "the broker refuses a record",
        "a compacted topic accepts no record without a key: give the records keys, or set its cleanup.policy to delete. "
        f"{_STARTED_AGAIN}",
    ),
    KafkaError.INVALID_TIMESTAMP: Words(
        "the broker refuses a record for its timestamp",
        "compare this host's clock with the broker's; raise the topic's message.timestamp.after.max.ms, or "
        f"message.timestamp.before.max.ms. {_STARTED_AGAIN}",
    ),
    KafkaError.RECORD_LIST_TOO_LARGE: Words(
        "a batch of records is larger than a segment of its topic", "raise the topic's segment.bytes"
    ),
    KafkaError.POLICY_VIOLATION: Words(
        "a policy of the cluster forbids what was asked", "the cluster's administrator knows the policy"
    ),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: Words("not authorised for a topic", _RIGHTS),
    KafkaError.GROUP_AUTHORIZATION_FAILED: Words("not authorised for the group", _RIGHTS),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: Words(
        "not authorised for the cluster", "grant IDEMPOTENT_WRITE on the cluster"
    ),
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Words("not authorised for the transactional id", _RIGHTS),
    KafkaError.SASL_AUTHENTICATION_FAILED: _CREDENTIALS,
    KafkaError._AUTHENTICATION: _CREDENTIALS,
    KafkaError._SSL: Words(
        "no secure connection to the broker",
        "check security.protocol, ssl.ca.location ({settings}) and the address's port",
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
        "a partition is missing", "was the topic deleted or recreated while the app ran?"
    ),
}


FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
"""A producer with the same transactional id was initialised since."""

TRANSIENT = frozenset({
    KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._WAIT_COORD, KafkaError._NODE_UPDATE,
    KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._DESTROY, KafkaError._DESTROY_BROKER, KafkaError._STATE,
    KafkaError._CONFLICT, KafkaError._PREV_IN_PROGRESS, KafkaError._RETRY,
    KafkaError.REQUEST_TIMED_OUT, KafkaError.NETWORK_EXCEPTION, KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE, KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.KAFKA_STORAGE_ERROR, KafkaError.INVALID_MSG,
    *LOADING, KafkaError.TRANSACTION_COORDINATOR_FENCED, KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.THROTTLING_QUOTA_EXCEEDED, KafkaError.UNSTABLE_OFFSET_COMMIT,
    # The group or a successor has taken the tasks, or the broker has forgotten or ended the transaction: the cause is who
    # writes, and when, not what is written.
    KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.FENCED_INSTANCE_ID, *FENCED, KafkaError.INVALID_PRODUCER_ID_MAPPING,
    KafkaError.UNKNOWN_PRODUCER_ID, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    KafkaError.DUPLICATE_SEQUENCE_NUMBER, KafkaError.INVALID_TXN_STATE,
})  # fmt: skip
"""Errors that do not concern the records: the same transaction may commit at another time. (_DESTROY_BROKER: librdkafka
gave up its handle of a coordinator while a request waited there.)"""


def why(error: KafkaError) -> Why:
    """Why a transaction failed. An error that is unknown here is not assumed to pass.

    >>> codes = KafkaError._TRANSPORT, KafkaError._DESTROY_BROKER, KafkaError._MSG_TIMED_OUT, KafkaError.UNKNOWN
    >>> [why(KafkaError(code)).value for code in codes]
    ['transient', 'transient', 'slow', 'refused']
    """
    if error.code() == KafkaError._MSG_TIMED_OUT:
        return Why.SLOW
    return Why.TRANSIENT if error.retriable() or error.code() in TRANSIENT else Why.REFUSED


def refused_in(error: KafkaError) -> str:
    """The partition whose records were refused, by the error that ended a transaction; "" if it does not say.

    >>> words = "ProduceRequest for shop.orders [3] with 20 message(s) failed: Broker: Invalid timestamp (broker 1 PID …)"
    >>> refused_in(KafkaError(KafkaError.INVALID_TIMESTAMP, words))
    'topic shop.orders, partition 3'
    """
    found = re.match(r"ProduceRequest for (\S+) \[(\d+)\]", error.str())
    return f"topic {found[1]}, partition {found[2]}" if found else ""


def translate(error: KafkaError, where: str = "", cluster: str = "") -> FalkirkError | None:
    """An error in words if a retry cannot fix it, else None. `cluster`: the name of the cluster that it comes from."""
    words = _WORDS.get(error.code())
    if words is None:
        return None
    return words.kind(
        f"{words.what}: {error.str()}", where=where, hint=words.hint.format(settings=settings_place(cluster))
    )


def in_words(error: KafkaException, where: str) -> FalkirkError:
    """Why a request failed: no broker answers it yet, or the cluster refuses it."""
    cause: KafkaError = error.args[0]
    if cause.retriable() or cause.code() in (*_SILENCE, *MOVED, *LOADING):
        return UnreachableError(f"no broker answers: {cause.str()}", where=where)
    return translate(cause, where) or ClusterError(f"the cluster refused a request: {cause.str()}", where=where)


def settings_place(cluster: str) -> str:
    """Where a user gives a client's settings, by its cluster's name."""
    return f"[cluster.{cluster}.kafka]" if cluster else "--set, or [kafka]"


def found_offset(answer: ListOffsetsResultInfo) -> Offset:
    """The offset that `list_offsets` found. Raises KafkaException if no broker gave it: if a broker falls silent after the
    request, librdkafka (2.16) drops the error and answers with a meaningless offset. A reader that took this for the end
    of a log would believe it has read it all."""
    if answer.offset < OFFSET_END:  # the end itself is an answer: no record is so late
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the broker has not said where a partition is"))
    return Offset(answer.offset)
