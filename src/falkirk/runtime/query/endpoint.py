"""The HTTP server of a worker's state. Read-only, and not started unless it is asked for.

A request has a thread of its own and one connection. There are at most CONNECTIONS of them, and each has an end, however
slowly its client sends or reads (`falkirk.runtime.host.serving`). The worker's own loop takes no part in an answer.
"""

from __future__ import annotations

import hmac
import threading
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import quote

import msgspec

from falkirk.connectors.kafka.client.config import Cluster, logger
from falkirk.errors import ConfigError
from falkirk.runtime.app.app import App
from falkirk.runtime.host.identity import host_name
from falkirk.runtime.host.listening import EVERYWHERE, is_loopback, parse_address, read_token, shown_address
from falkirk.runtime.host.serving import HostServer
from falkirk.runtime.query.forwarding import TASK, WORKER, forward
from falkirk.runtime.query.owners import Owners
from falkirk.runtime.query.questions import Refusal
from falkirk.runtime.query.router import Router, Tasks

CONNECTIONS = 32
"""Requests at a time. More are refused at once (503)."""

PATIENCE = 5.0
"""Seconds that a client may send or take nothing."""

LOOK = 0.2
"""Seconds between two looks for connections that are too old, or whether to end."""

LEAVING = 2.0
"""Seconds that requests under way have when the worker ends."""

PLAIN = "".join(map(chr, range(ord("!"), ord("~") + 1)))
"""Letters of a path that has been escaped."""


class Endpoint:
    """Of one worker. Answers 503 until it is given tasks."""

    def __init__(self, address: str, token_file: str, slot: int, worker: str) -> None:
        """`address`: HOST:PORT. Worker `slot` takes PORT + slot; port 0 is a free one. Raises ConfigError."""
        host, port = parse_address(address, "--query")
        self.worker = worker
        self._token = read_token(token_file, "--query-token-file") if token_file else b""
        if not self._token and not is_loopback(host):
            raise ConfigError("an address that others reach needs a token", where="--query", hint="--query-token-file")
        self._router: Router | None = None
        self._owners: Owners | None = None
        port += slot if port else 0
        try:
            self._server = HostServer((host, port), partial(Handler, self), CONNECTIONS)
        except (OSError, OverflowError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(
                f"cannot listen at {shown_address(host, port)}: {why}", where="--query",
                hint="choose another address or port: worker n takes the n-th port from the one that is given",
            ) from error  # fmt: skip
        shown = shown_address(host_name() if host in EVERYWHERE else host, int(self._server.server_address[1]))
        self.url = f"http://{shown}"
        threading.Thread(target=self._server.serve_forever, args=(LOOK,), name="falkirk-query", daemon=True).start()

    def serve(self, app: App, tasks: Tasks, cluster: Cluster) -> None:
        """From now on, these tasks are asked."""
        self.pause()
        self._owners = owners = Owners()
        owners.listen(cluster, app.control)
        self._router = Router(app, tasks, owners.of, partial(forward, token=self._token))

    def pause(self) -> None:
        """There are no tasks for a while."""
        self._router = None
        if self._owners is not None:
            self._owners.close()

    def close(self) -> None:
        """Take no more requests, and let those under way end, for a moment."""
        self.pause()
        self._server.shutdown()
        self._server.drain(LEAVING)
        self._server.server_close()

    # -- a request -----------------------------------------------------------------------------------------------------

    def answer(self, path: str, headers: Any) -> tuple[int, bytes, int]:
        """Status, JSON, and seconds until it is useful to ask again (0: unknown). Nothing is said without the token."""
        try:
            self._check(headers)
            if (router := self._router) is None:
                raise Refusal(503, "the worker has no tasks now", again=1)
            if (meant := headers.get(WORKER)) is not None and meant != self.worker:
                raise Refusal(421, f"this is not worker {meant}")
            return *router.answer(path, headers.get(TASK, "")), 0
        except Refusal as refusal:
            if refusal.again and self._owners is not None:
                self._owners.hurry()
            return refusal.status, refusal.body(), refusal.again
        except Exception:  # noqa: BLE001  # whatever it is, the worker goes on
            logger.exception("a question about state failed: %s", path.partition("?")[0])
            return 500, msgspec.json.encode({"error": "the question failed: see the worker's log"}), 0

    def _check(self, headers: Any) -> None:
        """Raises Refusal unless the request has the token; without one, unless it is made for this host. (A page in a browser
        can make a name of its own lead to loopback.)"""
        if self._token:
            scheme, _, given = headers.get("Authorization", "").partition(" ")
            fits = hmac.compare_digest(given.strip().encode("latin-1", "replace"), self._token)
            if scheme.lower() != "bearer" or not fits:
                raise Refusal(401, "the request has no valid token")
        elif not is_loopback(_name_in(headers.get("Host", ""))):
            raise Refusal(403, "this address answers only to requests for loopback")


def _name_in(host: str) -> str:
    """What a Host header says, without the port."""
    return host if host.endswith("]") else host.rpartition(":")[0] or host


class Handler(BaseHTTPRequestHandler):
    """One request."""

    timeout = PATIENCE
    server_version = "falkirk"
    sys_version = ""

    def __init__(self, endpoint: Endpoint, *args: Any) -> None:
        self._endpoint = endpoint
        super().__init__(*args)

    def do_GET(self) -> None:
        """Answer it."""
        # Letters that the client has not escaped come as the bytes of UTF-8, each read as a letter.
        path = quote(self.path.encode("latin-1"), safe=PLAIN)
        status, body, again = self._endpoint.answer(path, self.headers)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        if status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        else:
            self.send_header(WORKER, self._endpoint.worker)
        if again:
            self.send_header("Retry-After", str(again))
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What is no question at all, as another method, is refused in JSON, too."""
        body = msgspec.json.encode({"error": message or HTTPStatus(code).phrase})
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nobody wants each request in the log."""
