"""The records of a sink as server-sent events.

    retry: 1000               a client whose connection ends asks again after so many milliseconds
    id: POSITION              where it begins

    id: POSITION              behind this event
    data: {"partition": …}

    : still here              every BEAT seconds without an event; with an id if the position has moved

    event: end                there are no more events, and why: {"status": 410, "error": …}
    data: {"status": …}

A block with an id and no data is no event to a client. It only moves the position from which the client goes on.

Nothing is read for a client before it has taken what was read before. So a slow client is late, and costs no memory.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from falkirk.connectors.http.messages import Ended, Event, Events, Reply, Some, Subscribe, refused
from falkirk.connectors.http.ports import Receive, Refused, Scope, Send

BEAT = 15.0
"""Seconds without an event after which a client is told that the connection works. Proxies give up a silent one after about a
minute."""

STALLED = 30.0
"""Seconds that a client may take nothing of what waits for it."""

PIECE = 1 << 16
"""About how many bytes are given to the server at a time."""

RETRY = 1000
"""Milliseconds."""

HEAD = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    # Some proxies would wait for more.
    (b"x-accel-buffering", b"no"),
)


def subscribe_of(sink: str, scope: Scope, headers: Mapping[bytes, bytes]) -> Subscribe:
    """What a request asks for. A browser that reconnects sends the id of its last event to the URL that it began with, so the
    id counts more than `from`. Raises Refused.

    >>> subscribe_of("totals", {"query_string": b"from=earliest&key=a%20b"}, {})
    Subscribe(sink='totals', start='earliest', key='a b')
    >>> subscribe_of("totals", {"query_string": b"from=earliest"}, {b"last-event-id": b"AUrf"}).start
    'AUrf'
    >>> subscribe_of("totals", {"query_string": b"form=earliest"}, {})
    Traceback (most recent call last):
    falkirk.connectors.http.ports.Refused: 400
    """
    given: dict[str, str] = {}
    for name, value in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True):
        if name not in ("from", "key") or name in given:
            what = "is there twice" if name in given else "is not known"
            raise Refused(
                refused(400, f"parameter {name!r} {what}", hint="from=earliest, from=latest or from=ID; and key=KEY")
            )
        given[name] = value
    last = headers.get(b"last-event-id", b"").decode("latin-1").strip()
    return Subscribe(sink, last or given.get("from", "latest"), given.get("key"))


async def stream(events: Events, position: str, receive: Receive, send: Send) -> None:
    """Send the events until the client has gone, or until there are no more."""
    left = asyncio.ensure_future(_left(receive))
    sender = _Sender(send, position)
    try:
        await send({"type": "http.response.start", "status": 200, "headers": HEAD})
        await sender.begin()
        await _events(events, sender, left)
        await sender.end()
    except Stalled:
        # The server closes the connection, as the reply has no end.
        events.cut()
    except asyncio.CancelledError:
        # So it does when it ends, and the client has not taken what waits for it.
        pass
    finally:
        left.cancel()
        events.close()


async def _events(events: Events, sender: _Sender, left: asyncio.Future[None]) -> None:
    coming: asyncio.Future[Some | None] | None = None
    try:
        while not left.done():
            reading = asyncio.ensure_future(events.some()) if coming is None else coming
            coming = reading
            either: set[asyncio.Future[Any]] = {reading, left}
            await asyncio.wait(either, timeout=sender.silent_for(), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                coming = None
                if (some := reading.result()) is None:
                    return
                await sender.give(some.events, some.position)
            if not sender.silent_for():
                await sender.beat()
    except Ended as error:
        await sender.last(error.reply)
    finally:
        if coming is not None:
            coming.cancel()


class Stalled(Exception):
    """A client has taken nothing for too long."""


class _Sender:
    """Sends blocks to one client. Raises Stalled."""

    def __init__(self, send: Send, position: str) -> None:
        self._send = send
        self._position = self._told = position
        """Where the client is, and what it has been told of that."""
        self._spoke = time.monotonic()

    def silent_for(self) -> float:
        """Seconds until the next beat is due; 0: it is."""
        return max(0.0, self._spoke + BEAT - time.monotonic())

    async def begin(self) -> None:
        """Before any event: a client whose connection breaks before the first one goes on from here."""
        await self._say(b"retry: %d\nid: %b\n\n" % (RETRY, self._position.encode()))

    async def give(self, events: Sequence[Event], position: str) -> None:
        """Some events, and where the client is behind them."""
        for piece in pieces(events):
            await self._say(piece)
        if events:
            self._told = events[-1].id
        self._position = position

    async def beat(self) -> None:
        """The connection works."""
        moved = self._position != self._told
        await self._say(b": still here\nid: %b\n\n" % self._position.encode() if moved else b": still here\n\n")
        self._told = self._position

    async def last(self, why: Reply) -> None:
        """There are no more events."""
        said = {"status": why.status, **msgspec.json.decode(why.body)}
        retry = b"retry: %d\n" % (1000 * why.again) if why.again else b""
        await self._say(b"%bevent: end\ndata: %b\n\n" % (retry, msgspec.json.encode(said)))

    async def end(self) -> None:
        """The reply is complete."""
        await self._say(b"", more=False)

    async def _say(self, text: bytes, *, more: bool = True) -> None:
        try:
            async with asyncio.timeout(STALLED):
                await self._send({"type": "http.response.body", "body": text, "more_body": more})
        except TimeoutError:
            raise Stalled from None
        self._spoke = time.monotonic()


def pieces(events: Sequence[Event]) -> Iterator[bytes]:
    """The text of events, in pieces of whole events.

    >>> list(pieces([Event("AUrf", b'{"n":1}'), Event("AUrg", b'{"n":2}')]))
    [b'id: AUrf\\ndata: {"n":1}\\n\\nid: AUrg\\ndata: {"n":2}\\n\\n']
    """
    piece, size = [], 0
    for event in events:
        piece.append(b"id: %b\ndata: %b\n\n" % (event.id.encode(), event.data))
        size += len(piece[-1])
        if size >= PIECE:
            yield b"".join(piece)
            piece, size = [], 0
    if piece:
        yield b"".join(piece)


async def _left(receive: Receive) -> None:
    """Until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
