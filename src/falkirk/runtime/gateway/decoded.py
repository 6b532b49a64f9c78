"""Records of a sink as JSON, decoded once for all subscribers that read them at about the same time.

A call of a format costs as much as some dozens of records. Subscribers at the end of a topic get few at a time, and all the
same ones.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol, TypeAlias

import msgspec

from falkirk.stream.access.endpoints import Row
from falkirk.stream.access.objects import as_object
from falkirk.stream.dataflow.records import Message

KEPT = 4 << 20
"""Bytes of JSON that are kept of each sink."""

Place: TypeAlias = tuple[str, int, int]
"""Topic id, partition and offset: what is there does not change."""


class Reads(Protocol):
    """Reads records: `View`."""

    def rows(self, messages: Sequence[Message]) -> list[Row]:
        """One of each record."""
        ...


class Decoded:
    """Of one sink. Any thread may call it.

    >>> from falkirk.testing.memory import Record
    >>> from falkirk.stream.access.endpoints import View
    >>> decoded = Decoded(View("bids", "topic", "bids"))
    >>> [data] = decoded.data("an-id", [Record(0, 7, b"k", b"v")])
    >>> msgspec.json.decode(data)["value"]
    {'value': 'v'}
    """

    def __init__(self, view: Reads, kept: int = KEPT) -> None:
        self._view, self._most = view, kept
        self._changing = threading.Lock()
        self._known: OrderedDict[Place, bytes] = OrderedDict()
        self._size = 0

    def data(self, topic_id: str, messages: Sequence[Message]) -> list[bytes]:
        """The JSON of each record."""
        places = [(topic_id, m.partition(), m.offset()) for m in messages]
        with self._changing:
            missing = [i for i, place in enumerate(places) if place not in self._known]
            rows = self._view.rows([messages[i] for i in missing]) if missing else []
            for i, row in zip(missing, rows, strict=True):
                self._known[places[i]] = data = msgspec.json.encode(as_object(row))
                self._size += len(data)
            found = [self._known[place] for place in places]
            while self._size > self._most:
                self._size -= len(self._known.popitem(last=False)[1])
        return found
