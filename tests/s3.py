"""A small S3 on loopback, for tests of a checkpoint store that is away: it refuses, hangs, is slow or loses the answer."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

BUCKET = "bucket"


class S3:
    """Objects by name, and how the server behaves: `well`, `hangs`, `refuses` (503) or `loses` (does it, says nothing)."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, datetime]] = {}
        self.behaves = "well"
        self.seconds = 0.0
        """How long each request takes."""
        self.loses_put = ""
        """The answer to the next PUT of a name that contains this is lost."""
        self.requests: Counter[str] = Counter()
        self.resumed = threading.Event()
        self._parts: dict[str, dict[int, bytes]] = {}
        self._turn = threading.Lock()
        s3 = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                s3.serve(self, body)

            do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = handle_one  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def environment(self) -> dict[str, str]:
        """What obstore reads."""
        return {
            "AWS_ENDPOINT": f"http://127.0.0.1:{self._server.server_port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    @contextmanager
    def behaving(self, how: str) -> Iterator[None]:
        """While this lasts. Who hangs is answered afterwards."""
        self.behaves = how
        self.resumed.clear()
        try:
            yield
        finally:
            self.behaves = "well"
            self.resumed.set()

    def close(self) -> None:
        self.resumed.set()
        self._server.shutdown()
        self._server.server_close()

    def serve(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        url = urlsplit(request.path)
        name, query = unquote(url.path).removeprefix(f"/{BUCKET}").lstrip("/"), parse_qs(url.query, True)
        kind = "LIST" if "list-type" in query else request.command
        self.requests[kind] += 1
        behaves = self.behaves
        if behaves == "hangs":
            self.resumed.wait()
            request.close_connection = True
            return
        time.sleep(self.seconds)
        if behaves == "refuses":
            self._answer(request, 503, b"<Error><Code>SlowDown</Code></Error>")
            return
        with self._turn:
            if request.headers.get("If-None-Match") == "*" and name in self.objects:
                status, answer, headers = 412, b"<Error><Code>PreconditionFailed</Code></Error>", {}
            else:
                status, answer, headers = self._done(kind, name, query, body)
                if status == 200 and (part := request.headers.get("Range")) is not None:
                    first, last = (int(n) for n in part.removeprefix("bytes=").split("-"))
                    headers["Content-Range"] = f"bytes {first}-{last}/{len(answer)}"
                    answer = answer[first : last + 1]
                    status, headers["Content-Length"] = 206, str(len(answer))
        lost = request.command == "PUT" and self.loses_put and self.loses_put in name
        if behaves == "loses" or lost:
            self.loses_put = "" if lost else self.loses_put
            request.close_connection = True
            return
        self._answer(request, status, answer, headers)

    def _answer(
        self, request: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str] | None = None
    ) -> None:
        try:
            request.send_response(status)
            for key, value in (headers or {}).items():
                request.send_header(key, value)
            if "Content-Length" not in (headers or {}):
                request.send_header("Content-Length", str(len(body)))
            request.end_headers()
            if request.command != "HEAD":
                request.wfile.write(body)
        except OSError:
            request.close_connection = True

    def _done(
        self, kind: str, name: str, query: dict[str, list[str]], body: bytes
    ) -> tuple[int, bytes, dict[str, str]]:
        match kind:
            case "LIST":
                prefix, after = (query.get(each, [""])[0] for each in ("prefix", "start-after"))
                return 200, self._listed(prefix, after, "delimiter" in query), {}
            case "GET" | "HEAD":
                if name not in self.objects:
                    return 404, b"<Error><Code>NoSuchKey</Code></Error>", {}
                data, when = self.objects[name]
                told = {
                    "ETag": _etag(data),
                    "Last-Modified": f"{when:%a, %d %b %Y %H:%M:%S GMT}",
                    "Content-Length": str(len(data)),
                }
                return 200, data, told
            case "PUT" if "partNumber" in query:
                self._parts[query["uploadId"][0]][int(query["partNumber"][0])] = body
                return 200, b"", {"ETag": _etag(body)}
            case "PUT":
                self._keep(name, body)
                return 200, b"", {"ETag": _etag(body)}
            case "POST" if "uploads" in query:
                upload = f"upload-{len(self._parts)}"
                self._parts[upload] = {}
                return 200, _xml("InitiateMultipartUploadResult", f"<UploadId>{upload}</UploadId>"), {}
            case "POST" if "uploadId" in query:
                parts = self._parts.pop(query["uploadId"][0])
                data = b"".join(parts[n] for n in sorted(parts))
                self._keep(name, data)
                return 200, _xml("CompleteMultipartUploadResult", f"<ETag>{_etag(data)}</ETag>"), {}
            case "POST" if "delete" in query:
                keys = [e.text or "" for e in ET.fromstring(body).iter() if e.tag.endswith("Key")]
                for key in keys:
                    self.objects.pop(key, None)
                gone = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
                return 200, _xml("DeleteResult", gone), {}
            case _:
                self.objects.pop(name, None)
                return 204, b"", {}

    def _keep(self, name: str, data: bytes) -> None:
        self.objects[name] = (data, datetime.now(UTC))

    def _listed(self, prefix: str, after: str, folders: bool) -> bytes:
        found, common = [], set()
        for name in sorted(n for n in self.objects if n.startswith(prefix) and n > after):
            inner = name.removeprefix(prefix)
            if folders and "/" in inner:
                common.add(prefix + inner.partition("/")[0] + "/")
                continue
            data, when = self.objects[name]
            found.append(
                f"<Contents><Key>{escape(name)}</Key><LastModified>{when:%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
                f"<ETag>{_etag(data)}</ETag><Size>{len(data)}</Size></Contents>"
            )
        found += [f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in sorted(common)]
        return _xml("ListBucketResult", f"<IsTruncated>false</IsTruncated>{''.join(found)}")


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def _xml(root: str, inner: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?><{root}>{inner}</{root}>'.encode()
