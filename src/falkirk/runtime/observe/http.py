"""`/metrics`, `/live` and `/ready` over HTTP, for Prometheus and for process managers."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest

from falkirk.errors import ConfigError
from falkirk.runtime.host.listening import parse_address, shown_address
from falkirk.runtime.host.serving import HostServer
from falkirk.runtime.observe.metrics import Metrics

CONNECTIONS = 256
"""At a time. Few are needed, and probes must not be refused soon."""


class Http:
    """Answers in its own threads, from construction on."""

    def __init__(self, address: str, metrics: Metrics) -> None:
        """`address`: HOST:PORT; a PORT alone means loopback, port 0 is a free one. Raises ConfigError."""
        registry = CollectorRegistry()
        registry.register(metrics)
        ProcessCollector(registry=registry)

        class Handler(BaseHTTPRequestHandler):
            timeout = 10

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path == "/metrics":
                    self._answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
                elif path in ("/live", "/ready"):
                    trouble = metrics.live() if path == "/live" else metrics.ready()
                    self._answer(503 if trouble else 200, f"{trouble or 'ok'}\n".encode())
                else:
                    self._answer(404, b"there are: /metrics /live /ready\n")

            def _answer(self, code: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Probes come every few seconds: nobody wants them in the log."""

        host, port = parse_address(address, "--http")
        try:
            self._server = HostServer((host, port), Handler, CONNECTIONS)
        except (OSError, OverflowError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(
                f"cannot listen at {shown_address(host, port)}: {why}", where="--http",
                hint="choose another address or port",
            ) from error  # fmt: skip
        self.url = f"http://{shown_address(host, int(self._server.server_address[1]))}"
        threading.Thread(target=self._server.serve_forever, name="falkirk-http", daemon=True).start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
