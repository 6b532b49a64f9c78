"""A request that is to be answered, and the reply to it; a subscriber, and the events that it gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, as far as HTTP is concerned."""

    source: str
    """The HTTP source that its path names."""
    key: str | None
    """The Idempotency-Key; None: it has none."""
    body: bytes
    lines: bool = False
    """Whether each line of the body is JSON, and not the body as a whole."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A request for the records of a sink."""

    sink: str
    """The sink that its path names."""
    start: str
    """"earliest", "latest", or the id of an event: the subscriber goes on after it."""
    key: str | None = None
    """Only records whose key has this text; None: all."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a client is told.

    >>> refused(503, "the app is paused", again=5)
    Reply(status=503, body=b'{"error":"the app is paused"}', again=5)
    """

    status: int
    body: bytes = b""
    """JSON, or nothing."""
    again: int = 0
    """Seconds after which the client may ask again: Retry-After. 0: it would be told the same."""
    kind: str = field(default="application/json", repr=False)
    """The type of the body."""


def refused(status: int, what: str, *, hint: str = "", again: int = 0) -> Reply:
    """An error."""
    said = {"error": what, "hint": hint} if hint else {"error": what}
    return Reply(status, msgspec.json.encode(said), again)


class Event(NamedTuple):
    """A record, as a subscriber gets it."""

    id: str
    """Where the subscriber goes on after it."""
    data: bytes
    """JSON."""


class Some(NamedTuple):
    """Some events, in their order."""

    events: Sequence[Event]
    """None has come if there are none."""
    position: str
    """Where a subscriber goes on that has had all of them, and those before."""


class Ended(Exception):
    """There are no more events, and why."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.status)
        self.reply = reply


class Events(Protocol):
    """The events of one subscriber."""

    async def some(self) -> Some | None:
        """What has come, or comes within a moment. None: the gateway stops, and the subscriber may go on at another one.
        Raises Ended."""
        ...

    def cut(self) -> None:
        """The subscriber has taken nothing for too long."""
        ...

    def close(self) -> None:
        """The subscriber has gone."""
        ...


class Desk(Protocol):
    """Answers requests."""

    def knows(self, source: str) -> bool:
        """Whether the flow has an HTTP source of this name."""
        ...

    def takes_rows(self, source: str) -> bool:
        """Whether a request of this source may have many rows."""
        ...

    async def ask(self, asked: Asked) -> Reply:
        """The reply, when there is one."""
        ...

    def why_not(self) -> str:
        """Why requests are refused now; "": they are taken."""
        ...

    async def subscribe(self, asked: Subscribe) -> tuple[Events, str] | Reply:
        """The events of a new subscriber, and where it begins; or why it gets none."""
        ...

    def metrics(self) -> Reply:
        """What is measured."""
        ...
