"""The server of a gateway: uvicorn, of the extra `http`."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from falkirk.errors import ConfigError

LEAVE = 10
"""Seconds that requests under way have when the server ends."""

KEEP_ALIVE = 75
"""Seconds that a connection stays open without a request."""


UNSAID = ("without completing response", "Unsupported upgrade request", "No supported WebSocket library")
"""What the server logs and is no news. So the connection of a subscriber is closed that takes nothing any more, which the
gateway's own words say. And a client that asks for a WebSocket gets the reply that it would get without."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Files in PEM."""

    certificate: str
    key: str
    """"": in the file of the certificate."""


def check_server(tls: Tls | None) -> None:
    """Raises ConfigError if uvicorn is not installed, or if the certificate cannot be used."""
    try:
        import httptools  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"a gateway needs a library that is not installed: {error.name}", hint="pip install 'falkirk[http]'"
        ) from None
    if tls is not None:
        try:
            # Without a password to try, OpenSSL would ask for one at the terminal, and wait.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls.certificate, tls.key or None, password="")
        except (OSError, ssl.SSLError) as error:
            key = f", --listen-key {tls.key}" if tls.key else ""
            raise ConfigError(
                f"the certificate cannot be used: {error.strerror or error}",
                where=f"--listen-cert {tls.certificate}{key}",
                hint="give files in PEM: the certificate with its chain, and its key without a password",
            ) from error  # fmt: skip


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises ConfigError."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(
            f"cannot listen at {host}:{port}: {why}", where="--listen", hint="choose another address"
        ) from error


def serve(app: Callable[..., Awaitable[None]], at: socket.socket, connections: int, tls: Tls | None) -> Server:
    """A server for the application at a socket, which does not run yet. It refuses what exceeds so many `connections`."""
    import uvicorn

    from falkirk.connectors.http.protocol import Bounded

    given: dict[str, Any] = {}
    if tls is not None:
        given = {"ssl_certfile": tls.certificate, "ssl_keyfile": tls.key or None}
    logging.getLogger("uvicorn.error").addFilter(
        lambda record: not any(words in record.getMessage() for words in UNSAID)
    )
    config = uvicorn.Config(
        app, http=Bounded, lifespan="off", ws="none", log_config=None, access_log=False, server_header=False,
        proxy_headers=False, limit_concurrency=connections, timeout_keep_alive=KEEP_ALIVE, timeout_graceful_shutdown=LEAVE,
        **given,
    )  # fmt: skip
    return Server(uvicorn.Server(config), at)


class Server:
    """One server."""

    def __init__(self, made: Any, at: socket.socket) -> None:
        self._made, self._at = made, at

    async def run(self) -> None:
        """Serve until `stop`, or until a signal if this is the main thread; then let requests under way end."""
        await self._made.serve(sockets=[self._at])

    def stop(self) -> None:
        """Take no more requests."""
        self._made.should_exit = True

    @property
    def stops(self) -> bool:
        """Whether it takes no more requests."""
        return bool(self._made.should_exit)


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a gateway in a loop of asyncio: uvloop's, where that is installed."""
    try:
        import uvloop

        factory: Callable[[], asyncio.AbstractEventLoop] | None = uvloop.new_event_loop
    except ModuleNotFoundError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)
