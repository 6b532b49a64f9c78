"""Server-sent events: what a client is sent, when it is cut off, and that nothing is read for one that takes nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from falkirk.connectors.http import events as module
from falkirk.connectors.http.events import stream
from falkirk.connectors.http.messages import Ended, Event, Some, refused


class Written:
    """The events of a sink, as a list says."""

    def __init__(self, *given: Some | Ended | None) -> None:
        self.given, self.calls = list(given), 0
        self.was_cut = self.was_closed = False

    async def some(self) -> Some | None:
        self.calls += 1
        if not self.given:
            await asyncio.sleep(0.01)
            return Some((), "end")
        found = self.given.pop(0)
        if isinstance(found, Ended):
            raise found
        return found

    def cut(self) -> None:
        self.was_cut = True

    def close(self) -> None:
        self.was_closed = True


class Client:
    """What a client gets. It goes when `enough` says so, and takes no more than so many pieces."""

    def __init__(self, enough: Callable[[bytes], bool] = lambda _: False, *, takes: int = 1 << 30) -> None:
        self.enough, self.takes = enough, takes
        self.gone = asyncio.Event()
        self.status = 0
        self.text = b""
        self.complete = False

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        if not self.takes:
            await asyncio.Event().wait()
        self.takes -= 1
        self.text += message["body"]
        self.complete = not message.get("more_body", False)
        if self.enough(self.text):
            self.gone.set()

    @property
    def blocks(self) -> list[str]:
        return self.text.decode().split("\n\n")[:-1]


def test_a_client_gets_where_it_begins_each_event_with_its_id_and_the_end_of_a_gateway() -> None:
    async def run() -> None:
        events = Written(Some([Event("b", b"1"), Event("c", b"2")], "c"), Some([Event("d", b"3")], "d"), None)
        client = Client()
        await stream(events, "a", client.receive, client.send)
        assert client.status == 200
        assert client.blocks == ["retry: 1000\nid: a", "id: b\ndata: 1", "id: c\ndata: 2", "id: d\ndata: 3"]
        assert client.complete
        assert events.was_closed
        assert not events.was_cut

    asyncio.run(run())


def test_why_there_are_no_more_events_is_the_last_one() -> None:
    async def run() -> None:
        client = Client()
        events = Written(Some([Event("b", b"1")], "b"), Ended(refused(410, "records are deleted", again=5)))
        await stream(events, "a", client.receive, client.send)
        retry, name, data = client.blocks[-1].split("\n")
        assert (retry, name) == ("retry: 5000", "event: end")
        assert json.loads(data.removeprefix("data: ")) == {"status": 410, "error": "records are deleted"}
        assert client.complete
        assert events.was_closed

    asyncio.run(run())


def test_a_silent_sink_is_told_with_the_position_if_it_has_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEAT", 0.05)

    async def run() -> None:
        client = Client(lambda text: text.count(b"still here") == 3)
        events = Written(Some([Event("b", b"1")], "b"))
        await stream(events, "a", client.receive, client.send)
        assert client.blocks[1:] == ["id: b\ndata: 1", ": still here\nid: end", ": still here", ": still here"]
        assert events.was_closed

    asyncio.run(run())


def test_nothing_is_read_for_a_client_that_takes_nothing_and_it_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STALLED", 0.2)

    async def run() -> None:
        client = Client(takes=3)  # where it begins, and two events
        events = Written(*[Some([Event("b", b"x")], "b")] * 100)
        await stream(events, "a", client.receive, client.send)
        assert events.calls == 3
        assert events.was_cut
        assert events.was_closed
        assert not client.complete

    asyncio.run(run())


def test_a_client_that_has_gone_is_not_read_for() -> None:
    async def run() -> None:
        client = Client(lambda text: b"data" in text)
        events = Written(*[Some([Event("b", b"x")], "b")] * 100)
        await stream(events, "a", client.receive, client.send)
        assert events.calls < 10
        assert events.was_closed

    asyncio.run(run())


def test_a_server_that_ends_waits_for_no_client_that_takes_nothing() -> None:
    async def run() -> None:
        client, events = Client(takes=0), Written()
        streaming = asyncio.create_task(stream(events, "a", client.receive, client.send))
        while not client.status:
            await asyncio.sleep(0)
        streaming.cancel()
        await streaming
        assert events.was_closed
        assert not client.complete
        assert not events.was_cut

    asyncio.run(run())


def test_what_waits_is_sent_in_pieces_of_whole_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", 100)
    given = [Event(str(n), b"x" * 60) for n in range(5)]
    pieces = list(module.pieces(given))
    assert len(pieces) == 3
    assert all(piece.endswith(b"\n\n") for piece in pieces)
    assert b"".join(pieces).count(b"data: ") == 5
