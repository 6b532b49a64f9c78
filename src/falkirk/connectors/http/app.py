"""The ASGI application of a gateway.

POST /NAME          a request for the HTTP source NAME, as JSON
GET /sinks/NAME     the records of the sink NAME, as server-sent events
GET /metrics        what is measured, for Prometheus
GET /live           200 as long as the process works
GET /ready          200 if requests are taken now, else 503 and why

What is refused here has had no effect.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from falkirk.connectors.http.events import stream, subscribe_of
from falkirk.connectors.http.messages import Asked, Desk, Events, Reply, refused
from falkirk.connectors.http.ports import Receive, Refused, Scope, Send

SINKS = "sinks/"
"""What the path of a sink begins with."""

LINES = b"application/x-ndjson"
"""The type of a body whose lines are rows."""

BODY_WITHIN = 10.0
"""Seconds that a client has to send its body."""

LONGEST_KEY = 255
"""Characters of an Idempotency-Key."""

MADE_UP = "~"
"""What names begin with that gateways make up for requests without a key."""

UPGRADE = refused(
    400, "the request asks for another protocol, so its body is not read",
    hint="leave out the header Upgrade; in Java: HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1)",
)  # fmt: skip

ENDS = refused(
    504, "the gateway ends, and there is no answer yet: the request may have been taken",
    hint="ask again with the same Idempotency-Key", again=1,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Limits:
    """What is let in."""

    body: int
    """Bytes of a body."""
    token: bytes = b""
    """What a client must have; b"": nothing."""
    loopback: bool = True
    """Whether only this host reaches the address. A page in a browser can make a name of its own lead there, so that the Host
    header must be loopback's, too."""


def application(
    desk: Desk, limits: Limits, is_loopback: Callable[[str], bool]
) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """The application, for any ASGI server."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            reply = await _reply(desk, limits, is_loopback, scope, receive)
        except Refused as error:
            reply = error.reply
        except asyncio.CancelledError:
            # The server ends, and requests under way have had their time.
            reply = ENDS
        if isinstance(reply, Reply):
            await _send(reply, send, whole=scope["method"] != "HEAD")
        else:
            await stream(*reply, receive, send)

    return app


async def _reply(
    desk: Desk, limits: Limits, is_loopback: Callable[[str], bool], scope: Scope, receive: Receive
) -> Reply | tuple[Events, str]:
    headers: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in (b"idempotency-key", b"authorization", b"last-event-id") and name in headers:
            raise Refused(refused(400, f"the request has two {name.decode().title()} headers"))
        headers[name] = value
    if _is_cut(scope["headers"]):
        raise Refused(UPGRADE)
    name, method = unquote(scope["path"].removeprefix("/")), scope["method"]
    if method in ("GET", "HEAD") and name in ("live", "ready"):
        why = desk.why_not() if name == "ready" else ""
        return refused(503, why, again=1) if why else Reply(200, b'{"ok":true}')
    check_sender(limits, headers, is_loopback)
    if method == "GET" and name == "metrics":
        return desk.metrics()
    if method == "GET" and name.startswith(SINKS):
        return await desk.subscribe(subscribe_of(name.removeprefix(SINKS), scope, headers))
    if not desk.knows(name):
        raise Refused(refused(404, f"the flow has no HTTP source {name!r}"))
    if method != "POST":
        raise Refused(refused(405, f"{method} is not answered here", hint=f"POST /{name}"))
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    lines = kind == LINES and desk.takes_rows(name)
    # A page in a browser may send other types to any host without asking it.
    if kind != b"application/json" and not lines:
        raise Refused(refused(415, "the body must be JSON", hint="send it with Content-Type: application/json"))
    if (encoding := headers.get(b"content-encoding", b"identity").strip().lower()) != b"identity":
        raise Refused(refused(415, f"the body is encoded: {encoding.decode('latin-1')}", hint="send it as it is"))
    key = checked_key(headers.get(b"idempotency-key"))
    try:
        async with asyncio.timeout(BODY_WITHIN):
            body = await _body(limits.body, headers, receive)
    except TimeoutError:
        raise Refused(refused(408, f"the body did not come within {BODY_WITHIN:.0f} s")) from None
    return await desk.ask(Asked(name, key, body, lines))


def _is_cut(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether the server takes what is behind the headers for another protocol, and not for the body that they announce."""
    names = {name for name, _ in headers}
    asked = b"upgrade" in names and any(n == b"connection" and b"upgrade" in v.lower() for n, v in headers)
    return asked and (b"transfer-encoding" in names or any(n == b"content-length" and v != b"0" for n, v in headers))


def check_sender(limits: Limits, headers: Mapping[bytes, bytes], is_loopback: Callable[[str], bool]) -> None:
    """Raises Refused unless the request has the token; without one, at loopback, unless it is made for this host.

    >>> check_sender(Limits(10, b"secret"), {b"authorization": b"Bearer secret"}, lambda host: False)
    >>> check_sender(Limits(10), {b"host": b"evil.example:80"}, lambda host: host == "localhost")
    Traceback (most recent call last):
    falkirk.connectors.http.ports.Refused: 403
    """
    if limits.token:
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if not hmac.compare_digest(given.strip(), limits.token) or scheme.lower() != b"bearer":
            raise Refused(refused(401, "the request has no valid token"))
    elif limits.loopback:
        host = headers.get(b"host", b"").decode("latin-1")
        name = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.rpartition(":")[0] or host
        if not is_loopback(name):
            raise Refused(refused(403, "this address answers only to requests for loopback"))


def checked_key(given: bytes | None) -> str | None:
    """The Idempotency-Key; quotes around it do not count. Raises Refused.

    >>> checked_key(b'"8e03978e"'), checked_key(b"8e03978e"), checked_key(None)
    ('8e03978e', '8e03978e', None)
    >>> checked_key(b"a b")
    Traceback (most recent call last):
    falkirk.connectors.http.ports.Refused: 400
    """
    if given is None:
        return None
    key = given.strip().decode("latin-1")
    key = key[1:-1] if len(key) > 1 and key[0] == key[-1] == '"' else key
    fits = 0 < len(key) <= LONGEST_KEY and all("!" <= letter <= "~" for letter in key)
    if not fits or key.startswith(MADE_UP):
        raise Refused(
            refused(
                400, "the Idempotency-Key is not valid",
                hint=f"use up to {LONGEST_KEY} visible ASCII characters, not beginning with {MADE_UP}",
            )
        )  # fmt: skip
    return key


async def _body(most: int, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
    """The whole body. Raises Refused as soon as it is too large."""
    large = Refused(refused(413, f"the body is larger than {most:,} bytes"))
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or int(length) > most:
        raise large
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(refused(400, "the client has gone"))
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise large
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


async def _send(reply: Reply, send: Send, *, whole: bool) -> None:
    headers: list[Iterable[bytes]] = [(b"cache-control", b"no-store")]
    if reply.status != 204:
        headers += [(b"content-type", reply.kind.encode()), (b"content-length", b"%d" % len(reply.body))]
    if reply.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if reply is UPGRADE:
        # What follows is the body, and would be read as the next request.
        headers.append((b"connection", b"close"))
    if reply.again:
        headers.append((b"retry-after", b"%d" % reply.again))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body if whole else b""})
