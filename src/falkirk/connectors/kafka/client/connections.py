"""Which connections of a producer broke: its calls do not tell this.

When a connection breaks under EndTxn, AddOffsetsToTxn or TxnOffsetCommit, librdkafka sends the request again by itself, and
the call returns as if nothing had happened. The first request may still be on its way, held by a proxy or a load balancer.
If it arrives later, it acts on the next transaction of the same producer epoch: a late EndTxn commits it half-written.

    answered(r)  ⇐  no connection broke between begin and the return of commit or abort      for every request r of it

librdkafka logs every change of a connection's state, before it sends anything again. (Its other messages do not suffice:
the error callback is silent, and identical log lines are left out for 30 seconds.) These lines belong to its debug
context `broker`, which is quiet otherwise: about three short lines in a transaction.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import KafkaException

from falkirk.connectors.kafka.client.clients import client_logger
from falkirk.connectors.kafka.client.config import Settings
from falkirk.errors import ClusterError

CONTEXT = "broker"
"""librdkafka's debug context that reports how connections change."""

_CHANGE = re.compile(r"Broker changed state (\w+) -> (\w+)")
_USABLE = {"UP", "REAUTH"}
"""States in which requests are sent and answered. A connection still being made has nothing on its way."""


class Connections:
    """Counts broken connections of one producer; it is the producer's logger.

    >>> connections = Connections({})
    >>> for change in ("CONNECT -> DOWN", "APIVERSION_QUERY -> UP", "UP -> REAUTH", "REAUTH -> UP", "UP -> DOWN"):
    ...     connections.log(logging.DEBUG, "%s [%s] %s", "STATE", "producer-1", f"b:9092/1: Broker changed state {change}")
    >>> connections.broken
    1
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._verbose = bool(settings.get("debug"))
        """Whether the user asked for librdkafka's debug lines."""
        self._usable = False
        self.broken = 0
        """How many connections broke so far, as of the producer's last poll."""

    def log(self, level: int, form: str, *args: str) -> None:
        """Take a line of librdkafka's log: `args` are its name, the client's, and the text."""
        if args and args[0] == "STATE" and (change := _CHANGE.search(args[-1])):
            before, after = (state in _USABLE for state in change.groups())
            self._usable |= after
            self.broken += before and not after
        if level > logging.DEBUG or self._verbose:
            client_logger.log(level, form, *args)

    def check(self) -> None:
        """An initialised producer has a connection and must have reported it. Raises ClusterError."""
        if not self._usable:
            raise ClusterError(
                "librdkafka does not report the state of its connections, which exactly-once depends on",
                hint="install a version of confluent-kafka that Falkirk is tested with",
            )


@contextmanager
def fatal_errors() -> Iterator[None]:
    """Around calls that serve a client's events. A fatal error among them is raised as KafkaException: if a log line
    follows it, the client would raise a SystemError, with that as its cause.

    >>> with fatal_errors():
    ...     raise SystemError("returned a result with an exception set") from KafkaException("fenced")
    Traceback (most recent call last):
    cimpl.KafkaException: fenced
    """
    try:
        yield
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from None
        raise


def watched(settings: Settings) -> Settings:
    """Settings that let a client log how its connections change.

    >>> watched({"debug": "eos"})
    {'debug': 'eos,broker'}
    """
    return {**settings, "debug": ",".join(str(c) for c in (settings.get("debug"), CONTEXT) if c)}
