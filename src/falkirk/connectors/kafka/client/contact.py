"""Notice a client that has lost its cluster for good.

librdkafka 2.10 to 2.16 forgets all brokers if one answers that there are none, and also those of bootstrap.servers. A broker
answers so between its start and its registration, when no other broker of the cluster is there: after any restart of
the only one. A client that asks for a topic in this moment may never connect again, and reports nothing. Clients whose
calls fail then are replaced for that; those that only wait ask here.

    lost  ⇔  it was not connected to any broker at each look of the last `patience` seconds, and at two at least

A client whose cluster is away looks the same. Another that takes its place finds the cluster no later.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

EVERY = 4.0
"""Seconds between two looks."""


def connected(who: Consumer | Producer | AdminClient, topic: str) -> bool:
    """Whether a client is connected to a broker. It asks that broker for the topic, but does not wait for the answer."""
    try:
        who.list_topics(topic, timeout=0)
    except KafkaException as error:
        return bool(error.args[0].code() != KafkaError._TRANSPORT)
    return True


class Contact:
    """The contact of one client at a time with its cluster.

    >>> class Cut:
    ...     def list_topics(self, topic: str, timeout: float) -> None:
    ...         raise KafkaException(KafkaError(KafkaError._TRANSPORT))
    >>> times = iter([100.0, 101.0, 104.0, 107.0, 108.0, 109.0])
    >>> contact = Contact(clock=lambda: next(times))
    >>> [contact.lost(Cut(), "bids") for _ in range(5)]
    [False, False, False, True, False]
    """

    def __init__(self, patience: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience, self._clock = patience, clock
        self._looked = self._heard = clock()
        self._cut: float | None = None
        """When it was first seen without a connection."""

    def heard(self) -> None:
        """Something came from the cluster."""
        self._looked = self._heard = self._clock()
        self._cut = None

    @property
    def silence(self) -> float:
        """Seconds since this was last known to be connected."""
        return self._clock() - self._heard

    def lost(self, who: Consumer | Producer | AdminClient, topic: str) -> bool:
        """Whether to replace the client. Looks now and then, at the topic, and does not wait. After True the look at its
        successor begins."""
        now = self._clock()
        if now - self._looked < EVERY:
            return False
        if connected(who, topic):
            self.heard()
            return False
        self._looked = now
        if self._cut is None:
            self._cut = now
            return False
        if now - self._cut < self._patience:
            return False
        self._cut = None
        return True
