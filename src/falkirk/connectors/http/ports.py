"""What an ASGI server gives to an application, and how the application refuses a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from falkirk.connectors.http.messages import Reply

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Refused(Exception):
    """The reply to a request that is not let in."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.status)
        self.reply = reply
