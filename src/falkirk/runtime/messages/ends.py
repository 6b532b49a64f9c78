"""The error that a run of an app has ended with, on its control topic, until a run begins again.

ended    StoppedPart    why, and on which host
         null           it runs again
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from falkirk.checkpoint.ids import TopicPartition
from falkirk.connectors.kafka.app_topics.control import LAYOUT, deliver
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.errors import FalkirkError, UnreachableError
from falkirk.runtime.host.identity import person
from falkirk.runtime.messages.parts import StoppedPart
from falkirk.runtime.messages.requests import ENDED, current_requests

PATIENCE = 2.0
"""Seconds that an error waits for its record: the cluster may be away."""


@contextmanager
def recorded_end(cluster: Cluster, control: str) -> Iterator[None]:
    """Record the error of a run, for `falkirk status`. Whether that succeeds or not, the error counts."""
    try:
        yield
    except UnreachableError:
        raise
    except FalkirkError as error:
        with suppress(FalkirkError):
            _write(cluster, control, msgspec.json.encode(StoppedPart.of(error, person())))
        raise


def forget_end(cluster: Cluster, control: str, before: int) -> None:
    """A run has begun, at this time. Raises ClusterError."""
    ended = current_requests(cluster, control).ended
    if ended is not None and ended.at < before:
        _write(cluster, control, None)


def _write(cluster: Cluster, control: str, value: bytes | None) -> None:
    deliver(cluster, TopicPartition(control, LAYOUT), ENDED, value, idempotent=False, patience=PATIENCE)
