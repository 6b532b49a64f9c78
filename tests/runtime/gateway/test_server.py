"""The server of a gateway: what it logs."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from falkirk.connectors.http.server import bound_socket, serve

UPGRADE = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n"


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
    await send({"type": "http.response.body", "body": b"hello"})


def test_a_client_that_asks_for_a_websocket_is_answered_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    at = bound_socket("127.0.0.1", 0)
    server = serve(hello, at, 10, None)

    def ask() -> bytes:
        with socket.create_connection(at.getsockname(), timeout=10) as connection:
            connection.sendall(UPGRADE)
            return connection.makefile("rb").read()

    async def both() -> bytes:
        running = asyncio.create_task(server.run())
        said = await asyncio.to_thread(ask)
        server.stop()
        await running
        return said

    assert b"hello" in asyncio.run(both())
    assert not [record for record in caplog.records if record.name.startswith("uvicorn") and record.levelname != "INFO"]
