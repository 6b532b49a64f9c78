"""The server behind metrics and questions: what it logs."""

from __future__ import annotations

import logging
import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from tests.waiting import PATIENCE_S

from falkirk.runtime.host.serving import HostServer

RESET = struct.pack("ii", 1, 0)


class Answering(BaseHTTPRequestHandler):
    """Fails at each request."""

    def do_GET(self) -> None:
        raise RuntimeError("there is a bug")


@pytest.mark.parametrize("request_", [b"GET /liv", b"GET /live HTTP/1.1\r\n\r\n"], ids=["client goes", "bug"])
def test_an_error_is_logged_and_a_client_that_has_gone_is_none(
    request_: bytes, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    failed = threading.Event()

    class Server(HostServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            super().handle_error(request, client_address)
            failed.set()

    server = Server(("127.0.0.1", 0), Answering, 2)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with caplog.at_level(logging.INFO), socket.create_connection(server.server_address[:2]) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        client.sendall(request_)
        if not request_.endswith(b"\n"):
            client.close()
        assert failed.wait(PATIENCE_S)
    server.shutdown()
    server.server_close()
    assert ("there is a bug" in caplog.text) is request_.endswith(b"\n")
    assert "Traceback" not in capfd.readouterr().err
