"""What people ask of a running app, on the control topic, beside its layout.

asked/pause         open no steps, until it is taken back       stands: who starts while it does is paused too
asked/checkpoint    make a version of each task now             stands while the command waits for it
asked/drain         leave when the sources' ends are reached    heard by those alone who run when it is asked

A null takes a thing back. Each key's last record counts, and compaction keeps it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from falkirk.checkpoint.ids import TopicPartition
from falkirk.checkpoint.ports import LogRecord
from falkirk.connectors.kafka.config import Cluster
from falkirk.connectors.kafka.control import LAYOUT, Tail, append
from falkirk.errors import FalkirkError
from falkirk.runtime.protocol import Asked

LOOK = 1.0
"""Seconds between two looks."""

What = Literal["pause", "checkpoint", "drain"]


KEYS: Mapping[What, bytes] = {"pause": b"asked/pause", "checkpoint": b"asked/checkpoint", "drain": b"asked/drain"}


def ask(cluster: Cluster, control: str, what: What, asked: Asked | None) -> None:
    """Ask it, or take it back. Raises ClusterError."""
    value = None if asked is None else msgspec.json.encode(asked)
    append(cluster, TopicPartition(control, LAYOUT), KEYS[what], value)


@dataclass(frozen=True, slots=True)
class Standing:
    """What is asked just now.

    >>> asked = Standing().after(LogRecord(0, b"asked/pause", b'{"by":"ann@h1","at":7}'))
    >>> asked.pause.by, asked.after(LogRecord(1, b"asked/pause", None))
    ('ann@h1', Standing(pause=None, checkpoint=None, drain=None))
    """

    pause: Asked | None = None
    checkpoint: Asked | None = None
    drain: Asked | None = None

    def after(self, record: LogRecord) -> Standing:
        """With another record of the control topic. What another version of Falkirk asks is passed over."""
        for what, key in KEYS.items():
            if record.key == key:
                with suppress(msgspec.DecodeError):
                    return replace(self, **{what: None if record.value is None else _decode(record.value)})
        return self


def standing(cluster: Cluster, control: str) -> Standing:
    """What is asked now."""
    tail, found = Tail(cluster, TopicPartition(control, LAYOUT)), Standing()
    try:
        for record in tail.look():
            found = found.after(record)
    finally:
        tail.close()
    return found


class Ear:
    """Listens to what is asked, in a thread of its own: a cluster that does not answer holds up nothing else."""

    def __init__(self, cluster: Cluster, control: str) -> None:
        self._cluster, self._place = cluster, TopicPartition(control, LAYOUT)
        self._heard: Standing | None = None
        self._failed: FalkirkError | None = None
        self._closed = threading.Event()
        threading.Thread(target=self._listen, name="falkirk-ear", daemon=True).start()

    def heard(self) -> Standing | None:
        """What is asked; None before it is known. Raises FalkirkError where it cannot be."""
        if self._failed is not None:
            raise self._failed
        return self._heard

    def close(self) -> None:
        """Listen no longer."""
        self._closed.set()

    def _listen(self) -> None:
        tail, found = Tail(self._cluster, self._place), Standing()
        try:
            while not self._closed.is_set():
                for record in tail.look():
                    found = found.after(record)
                self._heard = found
                self._closed.wait(LOOK)
        except FalkirkError as error:
            self._failed = error
        finally:
            tail.close()


# Made at import: a type's first decoding builds what is known of it, and two threads that do so at once can crash.
_decode = msgspec.json.Decoder(Asked).decode
