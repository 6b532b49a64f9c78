"""Kafka's errors that no retry will mend, in words."""

from __future__ import annotations

from confluent_kafka import KafkaError

from falkirk.errors import ClusterError

_WORDS: dict[int, tuple[str, str]] = {
    KafkaError.MSG_SIZE_TOO_LARGE: (
        "a record is larger than the broker or its topic accepts",
        "raise the topic's max.message.bytes, or make the output smaller",
    ),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: ("not authorised for a topic", "grant the app's user the topic's ACLs"),
    KafkaError.GROUP_AUTHORIZATION_FAILED: ("not authorised for the group", "grant READ on the app's group"),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: (
        "not authorised for the cluster",
        "grant IDEMPOTENT_WRITE on the cluster",
    ),
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "not authorised for the transactional id",
        "grant WRITE and DESCRIBE on the app's transactional ids (prefixed with the app's name)",
    ),
    KafkaError.SASL_AUTHENTICATION_FAILED: ("the broker refused the credentials", "check user name and password"),
    KafkaError._AUTHENTICATION: ("the broker refused the credentials", "check user name and password"),
    KafkaError.UNSUPPORTED_VERSION: ("the broker is too old for transactions", "Falkirk needs Kafka 2.5 or later"),
    KafkaError._UNSUPPORTED_FEATURE: ("the broker is too old for transactions", "Falkirk needs Kafka 2.5 or later"),
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        "the broker refuses the transaction time-out",
        "lower it below the broker's transaction.max.timeout.ms",
    ),
    KafkaError.UNKNOWN_TOPIC_OR_PART: ("a topic is missing", "was it deleted while the app ran?"),
    KafkaError._UNKNOWN_PARTITION: ("a partition is missing", "was the topic deleted or made anew while the app ran?"),
    KafkaError._UNKNOWN_TOPIC: ("a topic is missing", "was it deleted while the app ran?"),
}


def translate(error: KafkaError) -> ClusterError | None:
    """A ClusterError for what cannot be mended by trying again, else None."""
    words = _WORDS.get(error.code())
    return ClusterError(f"{words[0]}: {error.str()}", hint=words[1]) if words else None
