"""A schema registry in this process, for tests: the part of Confluent's REST protocol that clients of Avro and Protobuf use.

    >>> with RegistryServer() as server:
    ...     number = server.put("bids-value", '{"type": "record", "name": "Bid", "fields": []}')
    >>> number
    1

    GET  /schemas/types, /schemas/ids/ID, /subjects, /subjects/S/versions, /subjects/S/versions/N or latest
    POST /subjects/S/versions (register), /subjects/S (look up)

A new schema of a subject must read what the newest one wrote (BACKWARD). It stores nothing: use a real one in production.
"""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self
from urllib.parse import unquote, urlsplit

from falkirk.errors import DefinitionError
from falkirk.stream.formats.avro.resolve import Unresolvable, resolve
from falkirk.stream.formats.avro.schemas import AvroSchema, checked
from falkirk.stream.formats.protobuf.columns import columns_of
from falkirk.stream.formats.protobuf.read import Reader
from falkirk.stream.formats.protobuf.read import Unresolvable as Unreadable
from falkirk.stream.formats.protobuf.schemas import registered
from falkirk.stream.formats.registry import Registered


class Answered(Exception):
    """An error answer."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class RegistryServer:
    """The server, on its own port of the loopback interface."""

    def __init__(self, *, user: str = "", password: str = "") -> None:
        self.answers: list[str] = []
        """All requests, in order: "GET /schemas/ids/1"."""
        self.away = False
        """It answers 503."""
        self.nowhere = False
        """It answers 404, in a web server's words."""
        self.slow = 0.0
        """Seconds before each answer."""
        self._login = f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}" if user else ""
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"registry": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def put(self, subject: str, text: str, **more: Any) -> int:
        """Register a schema without a check; returns its id. `more` may be schemaType and references."""
        with self._lock:
            return self._id(subject, {"schema": text, **more})

    def subjects(self) -> dict[str, list[str]]:
        """The schemas of each subject, oldest first."""
        return {s: [self._schemas[n - 1]["schema"] for n in ids] for s, ids in self._subjects.items()}

    def answer(self, method: str, path: str, body: Any, login: str) -> Any:
        """The answer to a request. Raises Answered."""
        self.answers.append(f"{method} {path}")
        time.sleep(self.slow)
        if self.away:
            raise Answered(503, 50301, "away")
        if self._login and login != self._login:
            raise Answered(401, 401, "Unauthorized")
        with self._lock:
            for kind, pattern, do in self._ROUTES:
                if kind == method and (found := re.fullmatch(pattern, path)):
                    return do(self, *map(unquote, found.groups()), *([body] if method == "POST" else []))
        raise Answered(404, 404, "HTTP 404 Not Found")

    def _types(self) -> list[str]:
        return ["AVRO", "PROTOBUF"]

    def _by_id(self, number: str) -> dict[str, Any]:
        if not 0 < int(number) <= len(self._schemas):
            raise Answered(404, 40403, f"Schema {number} not found")
        return self._schemas[int(number) - 1]

    def _all(self) -> list[str]:
        return list(self._subjects)

    def _versions(self, subject: str) -> list[int]:
        return list(range(1, len(self._ids(subject)) + 1))

    def _version(self, subject: str, version: str) -> dict[str, Any]:
        ids = self._ids(subject)
        number = len(ids) if version == "latest" else int(version)
        if not 0 < number <= len(ids):
            raise Answered(404, 40402, f"Version {version} not found.")
        return {"subject": subject, "version": number, "id": ids[number - 1], **self._schemas[ids[number - 1] - 1]}

    def _register(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        kind = body.get("schemaType", "AVRO")
        readable = _READABLE[kind]
        try:
            readable(body["schema"], body["schema"])
        except (DefinitionError, Unresolvable, Unreadable) as error:
            raise Answered(422, 42201, f"Invalid schema: {error}") from None
        ids = self._subjects.get(subject, [])
        if ids and body["schema"] not in [self._schemas[n - 1]["schema"] for n in ids]:
            old = self._schemas[ids[-1] - 1]
            try:
                if old.get("schemaType", "AVRO") != kind:
                    raise Unresolvable("another language")
                readable(body["schema"], old["schema"])
            except (Unresolvable, Unreadable) as error:
                said = (
                    f'Schema being registered is incompatible with an earlier schema for subject "{subject}": {error}'
                )
                raise Answered(409, 409, said) from None
        return {"id": self._id(subject, body)}

    def _look_up(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        for number, known in enumerate(self._ids(subject), 1):
            if self._schemas[known - 1]["schema"] == body["schema"]:
                return self._version(subject, str(number))
        raise Answered(404, 40403, "Schema not found")

    def _ids(self, subject: str) -> list[int]:
        if subject not in self._subjects:
            raise Answered(404, 40401, f"Subject '{subject}' not found.")
        return self._subjects[subject]

    def _id(self, subject: str, schema: dict[str, Any]) -> int:
        if schema not in self._schemas:
            self._schemas.append(schema)
        number = self._schemas.index(schema) + 1
        ids = self._subjects.setdefault(subject, [])
        if number not in ids:
            ids.append(number)
        return number

    _ROUTES: ClassVar[list[tuple[str, str, Any]]] = [
        ("GET", "/schemas/types", _types),
        ("GET", r"/schemas/ids/(\d+)", _by_id),
        ("GET", "/subjects", _all),
        ("GET", "/subjects/([^/]+)/versions", _versions),
        ("GET", r"/subjects/([^/]+)/versions/(\d+|latest)", _version),
        ("POST", "/subjects/([^/]+)/versions", _register),
        ("POST", "/subjects/([^/]+)", _look_up),
    ]


def _avro(reader: str, writer: str) -> None:
    resolve(AvroSchema(writer), checked(AvroSchema(reader)).columns)


def _protobuf(reader: str, writer: str) -> None:
    """The first messages of both: a registry compares all."""
    of_reader, of_writer = (registered(Registered(text, "PROTOBUF"), [0]) for text in (reader, writer))
    Reader(of_writer, columns_of(of_reader.descriptor))


_READABLE = {"AVRO": _avro, "PROTOBUF": _protobuf}
"""By language: raises an error if a reader's schema cannot read what a writer's wrote, or is not a schema."""


class _Handler(BaseHTTPRequestHandler):
    registry: RegistryServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._do("GET", None)

    def do_POST(self) -> None:
        self._do("POST", json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _do(self, method: str, body: Any) -> None:
        if self.registry.nowhere:
            return self._send(404, "text/html", b"<h1>404 Not Found</h1>")
        try:
            path = urlsplit(self.path).path
            status, said = 200, self.registry.answer(method, path, body, self.headers.get("Authorization", ""))
        except Answered as error:
            status, said = error.status, {"error_code": error.code, "message": str(error)}
        return self._send(status, "application/vnd.schemaregistry.v1+json", json.dumps(said).encode())

    def _send(self, status: int, kind: str, data: bytes) -> None:
        with suppress(ConnectionError):  # the client need not have waited
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """No log."""
