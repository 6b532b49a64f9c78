"""What comes over HTTP: tokens, errors, limits, and the request to another worker."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.ports import free_ports, needs_ipv6
from tests.runtime.query.asking import ask
from tests.runtime.query.stand import CARRIERS, Held, Workers, flights, flow
from tests.waiting import PATIENCE_S

from falkirk.errors import ConfigError
from falkirk.runtime.host.identity import host_name
from falkirk.runtime.host.listening import check_query, read_token
from falkirk.runtime.query import endpoint as serving
from falkirk.runtime.query.endpoint import Endpoint
from falkirk.runtime.query.forwarding import TASK, WORKER, forward
from falkirk.runtime.query.owners import Owner
from falkirk.runtime.query.questions import Refusal
from falkirk.runtime.query.router import Router

TOKEN = "0123456789abcdef-token"


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return str(path)


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    made = Workers(tmp_path, flow(), 2)
    flights(made.memory, [(carrier, "A", "X", 1) for carrier in CARRIERS])
    made.commit()
    yield made
    made.close()


def serve(endpoint: Endpoint, workers: Workers, number: int, url_of: dict[int, str], token: str = "") -> None:
    """As `Endpoint.serve` does, without a cluster to listen to."""

    def owner_of(task: str) -> Owner | None:
        owner = workers.owner_of(task)
        return None if owner is None else Owner(owner.worker, host_name(), url_of.get(int(owner.worker[1:]), ""))

    endpoint._router = Router(
        workers.app, Held(workers, number), owner_of, lambda *asked: forward(*asked, token.encode())
    )


@pytest.fixture
def pair(workers: Workers, token_file: str) -> Iterator[list[Endpoint]]:
    """Two workers with endpoints that know each other."""
    made = [Endpoint("0", token_file, n, f"w{n}") for n in range(2)]
    urls = {n: each.url for n, each in enumerate(made)}
    for n, each in enumerate(made):
        serve(each, workers, n, urls, TOKEN)
    yield made
    for each in made:
        each.close()


def test_each_key_is_answered_by_either_worker_for_who_has_the_token(pair: list[Endpoint]) -> None:
    for carrier in CARRIERS:
        found = [ask(each.url, f"/state/carriers/{carrier}", TOKEN) for each in pair]
        assert [reply.status for reply in found] == [200, 200]
        assert found[0].body == found[1].body
        assert found[0].body["row"] == {"n": 1, "usual": 1.0}
        assert found[0].headers["Content-Type"] == "application/json"
        assert [reply.headers["Falkirk-Worker"] for reply in found] == ["w0", "w1"]


@pytest.mark.parametrize("token", ["", "0123456789abcdef-tokem", TOKEN + "x", TOKEN[:-1], "é" * 22])
def test_without_the_token_nothing_is_said_about_anything(pair: list[Endpoint], token: str) -> None:
    paths = ["/state/carriers/UA", "/state/nothing/UA", "/state", "/", "/state/carriers/UA?min-step=9"]
    found = [ask(pair[0].url, path, token) for path in paths]
    assert {reply.status for reply in found} == {401}
    assert {json.dumps(reply.body) for reply in found} == {'{"error": "the request has no valid token"}'}
    assert found[0].headers["WWW-Authenticate"] == "Bearer"
    assert not any("Falkirk-Worker" in reply.headers for reply in found)
    assert ask(pair[0].url, "/state", Authorization=f"Basic {TOKEN}").status == 401
    assert ask(pair[0].url, "/state", Authorization=f"bearer {TOKEN}").status == 200


def test_a_worker_with_another_token_is_502(workers: Workers, pair: list[Endpoint], tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("another-token-than-that")
    odd = Endpoint("0", str(other), 0, "w0")
    serve(pair[1], workers, 1, {0: odd.url}, TOKEN)
    found = {ask(pair[1].url, f"/state/carriers/{carrier}", TOKEN).status for carrier in CARRIERS}
    assert found == {200, 502}
    odd.close()


def test_another_process_at_an_owner_s_address_is_not_believed(workers: Workers, pair: list[Endpoint]) -> None:
    stranger = Endpoint("0", "", 0, "someone")
    serve(stranger, workers, 0, {})
    serve(pair[1], workers, 1, {0: stranger.url}, TOKEN)
    replies = [ask(pair[1].url, f"/state/carriers/{carrier}", TOKEN) for carrier in CARRIERS]
    assert {reply.status for reply in replies} == {200, 503}
    assert all(reply.headers["Retry-After"] == "1" for reply in replies if reply.status == 503)
    stranger.close()


def test_an_owner_that_is_gone_or_has_no_endpoint_is_told(workers: Workers, pair: list[Endpoint]) -> None:
    pair[0].close()
    replies = [ask(pair[1].url, f"/state/carriers/{carrier}", TOKEN) for carrier in CARRIERS]
    assert {reply.status for reply in replies} == {200, 503}
    serve(pair[1], workers, 1, {}, TOKEN)
    found = {ask(pair[1].url, f"/state/carriers/{c}", TOKEN).status for c in CARRIERS}
    assert found == {200, 502}
    pair[0] = Endpoint("0", "", 0, "w0")


def test_an_owner_on_another_host_s_loopback_is_not_asked() -> None:
    with pytest.raises(Refusal, match="answers only on its own host"):
        forward(Owner("w9", "another-host", "http://127.0.0.1:1"), "carriers/0", "/state/carriers/UA", b"")


def test_a_forwarded_request_is_answered_for_its_task_alone(pair: list[Endpoint], workers: Workers) -> None:
    for number, (stage, n) in enumerate(workers.names):
        target = "/state/carriers" if stage.id == "carriers" else "/state/routes"
        reply = ask(pair[0].url, target, TOKEN, Falkirk_Task=f"{stage.id}/{n}")
        assert reply.status == (200 if number in workers.held[0] else 421)
    assert ask(pair[0].url, "/state/carriers", TOKEN, Falkirk_Worker="w1").status == 421
    odd = ask(pair[0].url, "/state/carriers", TOKEN, Falkirk_Task="routes/0")
    assert (odd.status, odd.body["error"]) == (421, "stage 'carriers' has no task 'routes/0'")
    assert workers.asked == []
    assert (TASK, WORKER) == ("Falkirk-Task", "Falkirk-Worker")


def test_without_a_token_only_requests_made_for_loopback_are_answered(workers: Workers) -> None:
    endpoint = Endpoint("0", "", 0, "w0")
    serve(endpoint, workers, 0, {})
    assert ask(endpoint.url, "/state").status == 200
    assert ask(endpoint.url, "/state", Host="localhost:9200").status == 200
    refused = ask(endpoint.url, "/state", Host="evil.example:80")
    assert (refused.status, refused.body) == (403, {"error": "this address answers only to requests for loopback"})
    endpoint.pause()
    paused = ask(endpoint.url, "/state")
    assert (paused.status, paused.headers["Retry-After"]) == (503, "1")
    endpoint.close()


@needs_ipv6
def test_an_address_may_be_one_of_ipv6(workers: Workers) -> None:
    urls: dict[int, str] = {}
    pair = [Endpoint("[::1]:0", "", 0, f"w{number}") for number in (0, 1)]
    for number, endpoint in enumerate(pair):
        urls[number] = endpoint.url
        serve(endpoint, workers, number, urls)
    assert urlsplit(pair[0].url).hostname == "::1"
    assert ask(pair[0].url, "/state/carriers").status == 200, "one of the two is asked by the other"
    assert ask(pair[0].url, "/state", Host="[::1]").status == 200
    assert ask(pair[0].url, "/state", Host="[2001:db8::1]:80").status == 403
    for endpoint in pair:
        endpoint.close()


def test_a_failure_inside_says_nothing_of_it(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = Endpoint("0", "", 0, "w0")
    serve(endpoint, workers, 0, {})
    monkeypatch.setattr(endpoint._router, "answer", lambda *_: 1 / 0)
    reply = ask(endpoint.url, "/state/carriers/UA")
    assert (reply.status, reply.body) == (500, {"error": "the question failed: see the worker's log"})
    endpoint.close()


def told(endpoint: Endpoint, request: str) -> tuple[bytes, bytes]:
    """Head and body of the reply to a request of these letters, as some clients send them."""
    parts = urlsplit(endpoint.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as connection:
        connection.sendall(f"{request}\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        head, _, body = connection.makefile("rb").read().partition(b"\r\n\r\n")
    return head, body


def test_letters_that_a_client_has_not_escaped_are_those_of_the_key(pair: list[Endpoint]) -> None:
    for endpoint in pair:
        head, body = told(endpoint, "GET /state/carriers/é HTTP/1.1")
        assert b" 404 " in head
        assert json.loads(body)["key"] == {"carrier": "é"}


@pytest.mark.parametrize("method", ["POST", "HEAD"])
def test_what_is_no_question_is_refused_in_json(pair: list[Endpoint], method: str) -> None:
    head, body = told(pair[0], f"{method} /state HTTP/1.1")
    assert b" 501 " in head
    assert b"Content-Type: application/json" in head
    assert body == (b"" if method == "HEAD" else b'{"error":"Unsupported method (\'POST\')"}')


def test_an_address_that_others_reach_needs_a_token(tmp_path: Path, token_file: str) -> None:
    with pytest.raises(ConfigError, match=r"anybody who reaches 0\.0\.0\.0 could read"):
        check_query("0.0.0.0:9200", "")
    with pytest.raises(ConfigError, match="needs a token"):
        Endpoint("0.0.0.0:0", "", 0, "w0")
    with pytest.raises(ConfigError, match="no address"):
        check_query("", token_file)
    with pytest.raises(ConfigError, match="'x:y' is not a valid address"):
        check_query("x:y", "")
    with pytest.raises(ConfigError, match="cannot be read"):
        check_query("0", str(tmp_path / "missing"))
    for text in ("", "short", "with some space in it", "0123456789\n0123456789", "é" * 20):
        (tmp_path / "bad").write_text(text)
        with pytest.raises(ConfigError, match="the token is not valid"):
            check_query("0.0.0.0:0", str(tmp_path / "bad"))
    check_query("0.0.0.0:9200", token_file)
    assert read_token(token_file, "--query-token-file") == TOKEN.encode()
    everywhere = Endpoint("0.0.0.0:0", token_file, 0, "w0")
    assert everywhere.url.startswith(f"http://{host_name()}:")
    everywhere.close()


def test_workers_of_one_host_have_ports_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    port, _ = free_ports(2)
    first, second = (Endpoint(str(port), "", slot, f"w{slot}") for slot in range(2))
    assert [urlsplit(each.url).port for each in (first, second)] == [port, port + 1]
    with pytest.raises(ConfigError, match=r"cannot listen at 127\.0\.0\.1"):
        Endpoint(str(port), "", 0, "w2")
    first.close()
    second.close()


def test_clients_that_send_nothing_leave_room_in_the_end(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("falkirk.runtime.host.serving.LIFE", 1.0)
    endpoint = Endpoint("0", "", 0, "w0")
    serve(endpoint, workers, 0, {})
    place = urlsplit(endpoint.url)
    silent = [socket.create_connection((place.hostname or "", place.port or 0)) for _ in range(serving.CONNECTIONS)]
    deadline = time.monotonic() + PATIENCE_S
    while (status := _status(endpoint)) != 200:
        assert status == 503
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for each in silent:
        assert each.recv(1) == b""  # it was cut
        each.close()
    endpoint.close()


def test_more_requests_than_there_is_room_for_are_refused_at_once(workers: Workers) -> None:
    endpoint = Endpoint("0", "", 0, "w0")
    serve(endpoint, workers, 0, {})
    place = urlsplit(endpoint.url)
    silent = [socket.create_connection((place.hostname or "", place.port or 0)) for _ in range(serving.CONNECTIONS)]
    while len(endpoint._server._begun) < serving.CONNECTIONS:
        time.sleep(0.01)
    assert _status(endpoint) == 503
    for each in silent:
        each.close()
    while endpoint._server._begun:
        time.sleep(0.01)
    assert _status(endpoint) == 200
    endpoint.close()


def _status(endpoint: Endpoint) -> int:
    try:
        return ask(endpoint.url, "/state").status
    except (OSError, HTTPException):
        return 503  # it was cut


def test_a_request_under_way_ends_before_the_worker(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = Endpoint("0", "", 0, "w0")
    serve(endpoint, workers, 0, {})
    begun, go = threading.Event(), threading.Event()

    def slow(*_: Any) -> tuple[int, bytes]:
        begun.set()
        go.wait(PATIENCE_S)
        return 200, b'{"slow": true}'

    monkeypatch.setattr(endpoint._router, "answer", slow)
    found: list[Any] = []
    client = threading.Thread(target=lambda: found.append(ask(endpoint.url, "/state")))
    client.start()
    begun.wait(PATIENCE_S)
    closing = threading.Thread(target=endpoint.close)
    closing.start()
    go.set()
    closing.join()
    client.join()
    assert found[0].body == {"slow": True}


OFF = """
import sys
from types import SimpleNamespace
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.worker.work import Queries
queries = Queries(Settings("b:1", "s"), 0, "w0")
with queries.of(SimpleNamespace()):
    assert queries.url == ""
queries.close()
import falkirk.cli.running, falkirk.runtime.processes.process
print([name for name in sys.modules if name.startswith("falkirk.runtime.query")])
"""


def test_off_by_default_nothing_of_it_is_imported() -> None:
    shown = subprocess.run([sys.executable, "-c", OFF], capture_output=True, text=True, check=True).stdout
    assert shown == "[]\n"
