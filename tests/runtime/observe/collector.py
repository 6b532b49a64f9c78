"""An OpenTelemetry collector, of the size that tests need."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue


class Collector:
    """Takes OTLP over HTTP at a free port of loopback, or refuses it."""

    def __init__(self, code: int = 200) -> None:
        self.code, self.taken = code, list[ExportTraceServiceRequest]()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if collector.code == 200 and self.path == "/v1/traces":
                    collector.taken.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(collector.code)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def spans(self) -> list[tuple[str, dict[str, str | int]]]:
        """All that were taken: name and attributes of each."""
        resources = [of_resource for request in self.taken for of_resource in request.resource_spans]
        scopes = [scope for of_resource in resources for scope in of_resource.scope_spans]
        return [(span.name, plain(span.attributes)) for scope in scopes for span in scope.spans]


def plain(attributes: Iterable[KeyValue]) -> dict[str, str | int]:
    """Attributes of text and whole numbers, as a dict."""
    return {a.key: a.value.string_value or a.value.int_value for a in attributes}
