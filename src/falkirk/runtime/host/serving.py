"""The server of a process that answers over HTTP itself: a thread for each request, at an address of IPv4 or IPv6.

There are at most so many connections, and each ends after LIFE seconds, however slowly its client sends or reads: none can
hold the process.

Separate from `listening`, which a run needs before it needs a server: the import takes time.
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from falkirk.connectors.kafka.client.config import logger

LIFE = 20.0
"""Seconds until a connection is cut. A question about state may wait for a step, here and then at another worker."""


class HostServer(ThreadingHTTPServer):
    """Its threads end with the process."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler] | Any, connections: int) -> None:
        """`connections`: at a time. More are refused at once (503). Raises OSError and OverflowError."""
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._slots = threading.BoundedSemaphore(connections)
        self._begun: dict[Any, float] = {}
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin its thread, if there are not too many."""
        if not self._slots.acquire(blocking=False):
            request.settimeout(0)
            with suppress(OSError):  # it may have gone
                request.send(b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n")
            super().shutdown_request(request)
            return
        self._begun[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """It has ended."""
        if self._begun.pop(request, None) is not None:
            self._slots.release()
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Cut the connections that are too old."""
        now = time.monotonic()
        for request, begun in list(self._begun.items()):
            if now - begun > LIFE:
                with suppress(OSError):  # it may be ending by itself
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A request has failed. A client that has gone is no error of ours."""
        if isinstance(sys.exception(), OSError):
            logger.debug("a client has gone", exc_info=logger.isEnabledFor(logging.DEBUG))
        else:
            logger.exception("a request over HTTP failed")

    def drain(self, seconds: float) -> None:
        """Wait until the requests under way have ended."""
        deadline = time.monotonic() + seconds
        while self._begun and time.monotonic() < deadline:
            time.sleep(0.02)
