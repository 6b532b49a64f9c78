"""Requests of people to a running app, on the control topic, beside its layout.

asked/pause         open no steps, until it is withdrawn        stands: workers that start meanwhile are paused too
asked/checkpoint    make a version of each task now             stands while the command waits for it
asked/drain         leave when the sources' ends are reached    only for workers that run when it is asked

The parts that have stopped are in the same partition (`parts`).
A null withdraws a request. Each key's last record counts, and compaction keeps it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from falkirk.checkpoint.ids import TopicPartition
from falkirk.checkpoint.ports import LogRecord
from falkirk.connectors.kafka.app_topics.control import LAYOUT, Tail, append
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.runtime.layout.layout import layout_number
from falkirk.runtime.messages.parts import PART, PartRecord, StoppedPart, decode_part
from falkirk.runtime.messages.protocol import Request

LOOK = 1.0
"""Seconds between two looks."""

ENDED = b"ended"
"""The key of the error that the last run ended with (`ends`)."""

What = Literal["pause", "checkpoint", "drain"]


KEYS: Mapping[What, bytes] = {"pause": b"asked/pause", "checkpoint": b"asked/checkpoint", "drain": b"asked/drain"}


def ask(cluster: Cluster, control: str, what: What, asked: Request | None) -> None:
    """Ask it, or withdraw it. Raises ClusterError."""
    value = None if asked is None else msgspec.json.encode(asked)
    append(cluster, TopicPartition(control, LAYOUT), KEYS[what], value)


@dataclass(frozen=True, slots=True)
class CurrentRequests:
    """The present requests.

    >>> asked = CurrentRequests().after(LogRecord(0, b"asked/pause", b'{"by":"ann@h1","at":7}'))
    >>> asked.pause.by, asked.after(LogRecord(1, b"asked/pause", None))
    ('ann@h1', CurrentRequests(pause=None, checkpoint=None, drain=None, layout=0, parts={}, ended=None))
    """

    pause: Request | None = None
    checkpoint: Request | None = None
    drain: Request | None = None
    layout: int = 0
    """The number of the newest recorded layout."""
    parts: Mapping[str, PartRecord] = field(default_factory=dict)
    """What was said last of each part that has ever stopped."""
    ended: StoppedPart | None = None
    """The error that a run ended with; None if one has begun since."""

    def stopped(self) -> dict[str, StoppedPart]:
        """The parts that have stopped by themselves, and why."""
        return {stage: record.stopped for stage, record in self.parts.items() if record.stopped is not None}

    def after(self, record: LogRecord) -> CurrentRequests:
        """With another record of the control topic. Requests of other versions of Falkirk are ignored."""
        for what, key in KEYS.items():
            if record.key == key:
                with suppress(msgspec.DecodeError):
                    asked: dict[str, Any] = {what: None if record.value is None else _decode(record.value)}
                    return replace(self, **asked)
        if record.key == ENDED:
            with suppress(msgspec.DecodeError):
                return replace(self, ended=None if record.value is None else decode_part(record.value))
        if record.key is not None and record.key.startswith(PART):
            with suppress(msgspec.DecodeError):
                stopped = None if record.value is None else decode_part(record.value)
                stage = record.key.removeprefix(PART).decode()
                return replace(self, parts={**self.parts, stage: PartRecord(record.offset, stopped)})
        if (number := layout_number(record.key)) is not None:
            return replace(self, layout=max(self.layout, number))
        return self


def current_requests(cluster: Cluster, control: str) -> CurrentRequests:
    """The present requests."""
    tail, found = Tail(cluster, TopicPartition(control, LAYOUT)), CurrentRequests()
    try:
        for record in tail.look():
            found = found.after(record)
    finally:
        tail.close()
    return found


class RequestListener:
    """Listens for requests in its own thread: a cluster that does not answer blocks nothing else."""

    def __init__(self, cluster: Cluster, control: str) -> None:
        self._cluster, self._place = cluster, TopicPartition(control, LAYOUT)
        self._heard: CurrentRequests | None = None
        self._failed: Exception | None = None
        self._closed = threading.Event()
        threading.Thread(target=self._listen, name="falkirk-ear", daemon=True).start()

    def heard(self) -> CurrentRequests | None:
        """The present requests; None before they are known. Raises what ended the listening: without it no step is ever
        closed."""
        if self._failed is not None:
            raise self._failed
        return self._heard

    def close(self) -> None:
        """Stop listening."""
        self._closed.set()

    def _listen(self) -> None:
        try:
            with closing(Tail(self._cluster, self._place)) as tail:
                found = CurrentRequests()
                while not self._closed.is_set():
                    for record in tail.look():
                        found = found.after(record)
                    self._heard = found
                    self._closed.wait(LOOK)
        except Exception as error:  # noqa: BLE001  # whatever it is, the worker ends with it
            self._failed = error


# Made at import: the first decoding of a type builds its type information, and two threads that do so at once can crash.
_decode = msgspec.json.Decoder(Request).decode
