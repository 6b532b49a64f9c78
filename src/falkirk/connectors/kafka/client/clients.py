"""Clients of librdkafka: how they are made, and what their errors mean before they do anything.

Separate from their settings, which `falkirk run` needs before it needs a client: the import of librdkafka takes time.
"""

from __future__ import annotations

import difflib
import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from confluent_kafka import Consumer, KafkaException

from falkirk.errors import ConfigError

client_logger = logging.getLogger("librdkafka")
"""librdkafka's own log: it calls a fence fatal, but only the producer ends, not the worker."""
client_logger.addFilter(lambda record: not is_unheard(record.getMessage()))


def is_unheard(words: str) -> bool:
    """Whether librdkafka reports a connection that ended before its broker had judged the credentials, as any closed or cut
    connection may. librdkafka calls this an authentication error, like wrong credentials.

    >>> is_unheard("SASL PLAIN mechanism handshake failed: Local: Broker transport failure: broker's supported …")
    True
    """
    return "mechanism handshake failed: Local: " in words


SECRET = re.compile(r"password|secret|token|\.pem$|oauthbearer\.config|assertion")
"""Names of settings that hold secrets."""

OFTEN = (
    "security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password", "sasl.oauthbearer.method",
    "sasl.oauthbearer.config", "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.extensions", "enable.sasl.oauthbearer.unsecure.jwt",
    "sasl.kerberos.service.name", "sasl.kerberos.principal", "sasl.kerberos.keytab", "ssl.ca.location", "ssl.ca.pem",
    "ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location", "ssl.key.password", "ssl.key.pem",
    "ssl.keystore.location", "ssl.keystore.password", "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification", "broker.address.family", "client.id", "client.rack", "client.dns.lookup",
    "compression.type", "connections.max.idle.ms", "debug", "fetch.message.max.bytes", "fetch.wait.max.ms", "linger.ms",
    "max.poll.interval.ms", "message.max.bytes", "metadata.max.age.ms", "queued.max.messages.kbytes",
    "queued.min.messages", "receive.message.max.bytes", "request.timeout.ms",
    "socket.connection.setup.timeout.ms", "socket.keepalive.enable", "socket.timeout.ms", "statistics.interval.ms",
)  # fmt: skip
"""Settings that people set: librdkafka does not list its settings."""

_Client = TypeVar("_Client")


class Logger(Protocol):
    """What receives librdkafka's log lines."""

    def log(self, level: int, form: str, *args: str) -> None:
        """Take one line: its name, the client's, and the text."""
        ...


def client(
    kind: Callable[..., _Client], settings: Mapping[str, Any], logger: Logger | logging.Logger = client_logger
) -> _Client:
    """A client of librdkafka. Raises ConfigError if it refuses its settings: only the user's can be wrong."""
    try:
        return kind(dict(settings), logger=logger)
    except KafkaException as error:
        said = hidden(error.args[0].str().strip(), settings)
        unknown = re.search(r'No such configuration property: "([^"]*)"', said)
        near = difflib.get_close_matches(unknown[1], OFTEN, 1) if unknown else []
        guess = f"did you mean {near[0]}? " if near else ""
        if "mechanism GSSAPI" in said:
            guess = "which sasl.mechanism is it, SCRAM-SHA-512 perhaps? GSSAPI is what it is otherwise. "
        raise ConfigError(
            f"Kafka's client refuses its settings: {said}",
            hint=f"{guess}check --set KEY=VALUE and [kafka], for another cluster [cluster.NAME.kafka], and --session-timeout",
        ) from None


def give_up(lost: Consumer) -> None:
    """Close a consumer that has lost its brokers, or a partition. It may never have done with that: nobody waits for it."""
    threading.Thread(target=lost.close, name="falkirk-lost-client", daemon=True).start()


def hidden(text: str, settings: Mapping[str, Any]) -> str:
    """A text without the secrets among the settings.

    >>> hidden('"hush" is no password', {"sasl.password": "hush", "sasl.username": "password"})
    '"***" is no password'
    """
    for name, value in settings.items():
        if SECRET.search(name) and str(value):
            text = text.replace(str(value), "***")
    return text


def fetch_metadata(consumer: Consumer, topics: Iterable[str]) -> None:
    """Let a consumer find the leaders of topics that are new to it. By itself, an idle one looks for them once a second.

    In the end it finds them by itself; if no broker answers here, that is left to it, for the other topics too.

    >>> class Away:
    ...     def list_topics(self, topic: str, timeout: float) -> None:
    ...         print("waited for", topic)
    ...         raise KafkaException
    >>> fetch_metadata(Away(), ["bids", "asks"])
    waited for bids
    """
    with suppress(KafkaException):
        for topic in topics:
            consumer.list_topics(topic, timeout=5)
