"""The server of a process that answers over HTTP itself: a thread for each request, at an address of IPv4 or IPv6.

Separate from `listening`, which a run needs before it needs a server: the import takes time.
"""

from __future__ import annotations

import logging
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from falkirk.connectors.kafka.client.config import logger


class HostServer(ThreadingHTTPServer):
    """Its threads end with the process."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler] | Any) -> None:
        """Raises OSError and OverflowError."""
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A request has failed. A client that has gone is no error of ours."""
        if isinstance(sys.exception(), OSError):
            logger.debug("a client has gone", exc_info=logger.isEnabledFor(logging.DEBUG))
        else:
            logger.exception("a request over HTTP failed")
