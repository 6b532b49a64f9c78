"""A request that is to be answered, and the reply to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import msgspec


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, as far as HTTP is concerned."""

    source: str
    """The HTTP source that its path names."""
    key: str | None
    """The Idempotency-Key; None: it has none."""
    body: bytes


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


def refused(status: int, what: str, *, hint: str = "", again: int = 0) -> Reply:
    """An error."""
    said = {"error": what, "hint": hint} if hint else {"error": what}
    return Reply(status, msgspec.json.encode(said), again)


class Desk(Protocol):
    """Answers requests."""

    def knows(self, source: str) -> bool:
        """Whether the flow has an HTTP source of this name."""
        ...

    async def ask(self, asked: Asked) -> Reply:
        """The reply, when there is one."""
        ...

    def why_not(self) -> str:
        """Why requests are refused now; "": they are taken."""
        ...
