"""The server of a gateway: what it logs, and what it reads."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from tests.runtime.gateway.test_app import Taking
from tests.waiting import PATIENCE_S

from falkirk.connectors.http import server as serving
from falkirk.connectors.http.app import Limits, application
from falkirk.connectors.http.messages import Asked, Reply
from falkirk.connectors.http.protocol import HEAD
from falkirk.connectors.http.server import bound_socket, serve
from falkirk.runtime.host.listening import is_loopback

UPGRADE = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n"


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
    await send({"type": "http.response.body", "body": b"hello"})


def answer(ask: Callable[[socket.socket], bytes], app: Any = hello, stop: threading.Event | None = None) -> bytes:
    """What a client hears of a server that runs meanwhile, or until `stop`."""
    at = bound_socket("127.0.0.1", 0)
    server = serve(app, at, 10, None)

    def connected() -> bytes:
        with socket.create_connection(at.getsockname(), timeout=PATIENCE_S) as connection:
            return ask(connection)

    async def both() -> bytes:
        running = asyncio.create_task(server.run())
        asking = asyncio.create_task(asyncio.to_thread(connected))
        await (asking if stop is None else asyncio.to_thread(stop.wait, PATIENCE_S))
        server.stop()
        await running
        return await asking

    return asyncio.run(both())


def read(connection: socket.socket) -> bytes:
    return connection.makefile("rb").read()


def test_a_client_that_asks_for_a_websocket_is_answered_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    def ask(connection: socket.socket) -> bytes:
        connection.sendall(UPGRADE)
        return read(connection)

    assert b"hello" in answer(ask)
    assert not [record for record in caplog.records if record.name.startswith("uvicorn") and record.levelname != "INFO"]


@pytest.mark.parametrize(
    "begin",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n",
    ],
    ids=["before the body", "behind it"],
)
def test_headers_without_end_are_not_read(begin: bytes) -> None:
    async def waits(scope: Any, receive: Any, send: Any) -> None:
        while (message := await receive())["type"] != "http.disconnect" and message["more_body"]:
            pass
        await hello(scope, receive, send)

    def ask(connection: socket.socket) -> bytes:
        connection.sendall(begin)
        sent = 0
        with suppress(ConnectionError):
            while sent < 100 * HEAD:
                connection.sendall(b"X: y\r\n" * 1000)
                sent += 6000
        return b"%d" % sent

    assert int(answer(ask, waits)) < 100 * HEAD


def test_a_body_is_longer_than_headers_may_be() -> None:
    async def counts(scope: Any, receive: Any, send: Any) -> None:
        size, more = 0, True
        while more:
            message = await receive()
            size, more = size + len(message["body"]), message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
        await send({"type": "http.response.body", "body": b"%d bytes" % size})

    def ask(connection: socket.socket) -> bytes:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (10 * HEAD))
        connection.sendall(b"x" * 10 * HEAD)
        return read(connection)

    assert b"%d bytes" % (10 * HEAD) in answer(ask, counts)


def test_a_request_that_waits_when_the_server_ends_may_be_sent_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(serving, "LEAVE", 1)
    came = threading.Event()

    class Silent(Taking):
        async def ask(self, asked: Asked) -> Reply:
            came.set()
            await asyncio.sleep(PATIENCE_S)
            return Reply(204)

    def ask(connection: socket.socket) -> bytes:
        connection.sendall(
            b"POST /orders HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
        )
        return read(connection)

    said = answer(ask, application(Silent(), Limits(100), is_loopback), stop=came)
    assert b" 504 " in said
    assert b"may have been taken" in said
    assert "Traceback" not in caplog.text


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = trustme.CA().issue_cert("localhost")
    made.cert_chain_pems[0].write_to_path(certificate)
    private = load_pem_private_key(made.private_key_pem.bytes(), None)
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"hush")))
    check = f"""
import fcntl, termios
from falkirk.connectors.http.server import Tls, check_server
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
check_server(Tls({str(certificate)!r}, {str(key)!r}))
"""
    terminal, its_end = os.openpty()
    with os.fdopen(terminal), os.fdopen(its_end) as end:
        process = subprocess.Popen(
            [sys.executable, "-c", check], stdin=end, stderr=subprocess.PIPE, start_new_session=True
        )
        try:
            _, said = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert b"the certificate cannot be used" in said
    assert f"--listen-key {key}".encode() in said
