"""A client of server-sent events, as a browser is one: it goes on after its last event, at any gateway."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from random import Random
from typing import Any


class Subscriber:
    """Of one sink."""

    def __init__(
        self, sink: str, choose: Callable[[], int], seed: int = 0, headers: dict[str, str] | None = None
    ) -> None:
        """`choose`: the port of a gateway."""
        self.sink, self._choose, self._choice = sink, choose, Random(seed)
        self._headers = headers or {}
        self.last = ""
        """The id that it goes on after."""
        self.events: list[dict[str, Any]] = []
        self.ended: list[dict[str, Any]] = []
        """What it was told at the end of a connection."""
        self.sessions = 0
        """Connections that gave an event."""
        self.refused: list[tuple[int, Any]] = []

    def until(self, enough: Callable[[], bool], patience: float, most: int = 60) -> None:
        """Connect again and again, each time for at most so many events. Raises AssertionError."""
        deadline = time.monotonic() + patience
        while not enough():
            assert time.monotonic() < deadline, f"{self.sink}: {len(self.events)} events, {self.refused[-1:]}"
            with suppress(OSError, HTTPException):
                self.connect(enough, self._choice.randrange(1, most))

    def connect(self, enough: Callable[[], bool], most: int) -> None:
        """One connection. It is broken off after so many events, wherever the gateway is then."""
        connection = HTTPConnection("127.0.0.1", self._choose(), timeout=20)
        headers = {**self._headers, "Accept": "text/event-stream"}
        if self.last:
            headers["Last-Event-ID"] = self.last
        before = len(self.events)
        try:
            connection.request("GET", f"/sinks/{self.sink}?from=earliest", headers=headers)
            response = connection.getresponse()
            if response.status != 200:
                self.refused.append((response.status, json.loads(response.read())))
                time.sleep(0.1)
                return
            assert response.headers["content-type"] == "text/event-stream"
            text = b""
            while more := response.read1(4096):
                text += more
                *blocks, text = text.split(b"\n\n")
                for block in blocks:
                    self._take(block.decode())
                    if len(self.events) - before >= most or enough():
                        return
        finally:
            self.sessions += len(self.events) > before
            connection.close()

    def _take(self, block: str) -> None:
        fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        self.last = fields.get("id", self.last)
        if "data" in fields:
            said = json.loads(fields["data"])
            (self.ended if fields.get("event") == "end" else self.events).append(said)
