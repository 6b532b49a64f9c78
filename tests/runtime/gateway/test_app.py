"""What is refused at the door: the ASGI application, with a desk that takes everything."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from falkirk.connectors.http.app import Limits, application
from falkirk.connectors.http.messages import Asked, Events, Reply, Subscribe
from falkirk.runtime.host.listening import is_loopback

JSON = {"content-type": "application/json", "host": "localhost:8080"}

SMALL = Limits(100)


@dataclass
class Taking:
    """A desk that answers each request with its key."""

    asked: list[Asked] = field(default_factory=list)
    subscribed: list[Subscribe] = field(default_factory=list)
    why: str = ""

    def knows(self, source: str) -> bool:
        return source in ("orders", "delays")

    def takes_rows(self, source: str) -> bool:
        return source == "delays"

    async def ask(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        return Reply(200, json.dumps([asked.key]).encode())

    def why_not(self) -> str:
        return self.why

    async def subscribe(self, asked: Subscribe) -> tuple[Events, str] | Reply:
        self.subscribed.append(asked)
        return Reply(503)

    def metrics(self) -> Reply:
        return Reply(200, b"falkirk_subscribers 1", kind="text/plain")


@dataclass
class Response:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


def call(
    desk: Taking,
    body: bytes | list[bytes] = b"{}",
    *,
    path: str = "/orders",
    query: str = "",
    method: str = "POST",
    headers: Mapping[str, str] | list[tuple[str, str]] = JSON,
    limits: Limits = SMALL,
) -> Response:
    parts = body if isinstance(body, list) else [body]
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": part, "more_body": i + 1 < len(parts)} for i, part in enumerate(parts)
    ]
    pairs = list(headers.items()) if isinstance(headers, Mapping) else headers
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in pairs],
    }
    response = Response()

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            response.status = message["status"]
            response.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            response.body += message["body"]

    asyncio.run(application(desk, limits, is_loopback)(scope, receive, send))
    return response


def test_a_request_reaches_the_desk_whole() -> None:
    desk = Taking()
    response = call(desk, [b'{"a":', b"1}"], headers={**JSON, "idempotency-key": "k1"})
    assert (response.status, json.loads(response.body)) == (200, ["k1"])
    assert desk.asked == [Asked("orders", "k1", b'{"a":1}')]
    assert response.headers["content-type"] == "application/json"


def test_lines_are_a_body_where_a_request_may_have_many_rows() -> None:
    desk = Taking()
    call(desk, path="/delays", headers={**JSON, "content-type": "application/x-ndjson; charset=utf-8"})
    call(desk, path="/delays")
    assert [asked.lines for asked in desk.asked] == [True, False]


@pytest.mark.parametrize(
    ("status", "given"),
    [
        (404, {"path": "/nope"}),
        (404, {"path": "/"}),
        (405, {"method": "GET"}),
        (405, {"method": "OPTIONS"}),
        (415, {"headers": {"host": "localhost"}}),
        (415, {"headers": {**JSON, "content-type": "text/plain"}}),
        (415, {"headers": {**JSON, "content-type": "application/x-ndjson"}}),
        (415, {"path": "/delays", "headers": {**JSON, "content-type": "text/plain"}}),
        (400, {"headers": {**JSON, "idempotency-key": ""}}),
        (400, {"headers": {**JSON, "idempotency-key": "a b"}}),
        (400, {"headers": {**JSON, "idempotency-key": "~made-up"}}),
        (400, {"headers": {**JSON, "idempotency-key": "k" * 256}}),
        (400, {"headers": [*JSON.items(), ("idempotency-key", "a"), ("idempotency-key", "b")]}),
        (413, {"body": b"x" * 101}),
        (413, {"body": [b"x" * 60, b"x" * 60]}),
        (413, {"headers": {**JSON, "content-length": "101"}}),
        (413, {"headers": {**JSON, "content-length": "-1"}}),
        (403, {"headers": {**JSON, "host": "rebound.example"}}),
        (401, {"limits": Limits(100, b"0123456789abcdef")}),
        (401, {"limits": Limits(100, b"0123456789abcdef"), "headers": {**JSON, "authorization": "Bearer no"}}),
        (
            401,
            {
                "limits": Limits(100, b"0123456789abcdef"),
                "headers": {**JSON, "authorization": "Basic 0123456789abcdef"},
            },
        ),
    ],
)
def test_what_is_refused_does_not_reach_the_desk(status: int, given: dict[str, Any]) -> None:
    desk = Taking()
    response = call(desk, **given)
    assert response.status == status
    assert json.loads(response.body)["error"]
    assert not desk.asked


def test_a_body_may_have_just_so_many_bytes() -> None:
    desk = Taking()
    assert call(desk, b"x" * 100).status == 200


def test_a_body_that_the_server_takes_for_another_protocol_is_refused_and_the_connection_ends() -> None:
    offered = [*JSON.items(), ("upgrade", "h2c"), ("connection", "Upgrade, HTTP2-Settings"), ("connection", "x")]
    for length in (("content-length", "2"), ("transfer-encoding", "chunked")):
        for method, path in (("POST", "/orders"), ("GET", "/live")):
            desk = Taking()
            response = call(desk, b"", method=method, path=path, headers=[*offered, length])
            assert (response.status, response.headers["connection"]) == (400, "close")
            assert not desk.asked
    for offer in ([*offered, ("content-length", "0")], [*JSON.items(), ("upgrade", "h2c"), ("content-length", "2")]):
        assert call(Taking(), headers=offer).status == 200


def test_a_body_that_is_encoded_is_refused_in_words() -> None:
    response = call(Taking(), b"\x1f\x8b", headers={**JSON, "content-encoding": "gzip"})
    assert response.status == 415
    assert b"the body is encoded: gzip" in response.body
    assert call(Taking(), headers={**JSON, "content-encoding": "identity"}).status == 200


def test_with_the_token_the_host_does_not_matter() -> None:
    desk, token = Taking(), "0123456789abcdef"
    headers = {**JSON, "host": "shop.example", "authorization": f"Bearer {token}"}
    assert call(desk, headers=headers, limits=Limits(100, token.encode())).status == 200


def test_probes_need_no_token_and_say_why() -> None:
    limits = Limits(100, b"0123456789abcdef")
    assert call(Taking(), path="/ready", method="GET", headers={}, limits=limits).status == 200
    away = call(Taking(why="the app is paused"), path="/ready", method="GET", headers={}, limits=limits)
    assert (away.status, away.headers["retry-after"]) == (503, "1")
    assert b"paused" in away.body
    assert call(Taking(why="x"), path="/live", method="GET", headers={}, limits=limits).status == 200


def test_a_subscriber_begins_where_it_asks_to_and_a_lost_connection_goes_on() -> None:
    def subscribed(query: str = "", **headers: str) -> Subscribe:
        desk = Taking()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        call(desk, path="/sinks/totals", query=query, method="GET", headers={**JSON, **named})
        [found] = desk.subscribed
        return found

    assert subscribed() == Subscribe("totals", "latest")
    assert subscribed("from=earliest&key=a%2Bb") == Subscribe("totals", "earliest", "a+b")
    assert subscribed("from=AUrf").start == "AUrf"
    # A browser repeats the URL that it began with.
    assert subscribed("from=earliest", last_event_id="AUrf").start == "AUrf"


@pytest.mark.parametrize(
    ("status", "given"),
    [
        (400, {"query": "form=earliest"}),
        (400, {"query": "from=earliest&from=latest"}),
        (400, {"headers": [*JSON.items(), ("last-event-id", "a"), ("last-event-id", "b")]}),
        (403, {"headers": {"host": "rebound.example"}}),
        (401, {"limits": Limits(100, b"0123456789abcdef")}),
        (404, {"method": "POST"}),
        (404, {"method": "HEAD"}),
    ],
)
def test_who_may_not_ask_does_not_subscribe(status: int, given: dict[str, Any]) -> None:
    desk = Taking()
    response = call(desk, **{"path": "/sinks/totals", "method": "GET", **given})
    assert response.status == status
    assert not desk.subscribed


def test_metrics_are_text_and_need_the_token() -> None:
    response = call(Taking(), path="/metrics", method="GET")
    assert (response.status, response.headers["content-type"]) == (200, "text/plain")
    limits = Limits(100, b"0123456789abcdef")
    assert call(Taking(), path="/metrics", method="GET", limits=limits).status == 401
