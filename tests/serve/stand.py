"""An app, its gateways, and clients that ask again until they are answered."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NamedTuple

from tests.ports import free_ports

FLOW = f"{Path(__file__).parent / 'flow.py'}:flow"

PATIENCE = 240.0
"""Seconds until a test gives up: the machine may be busy."""


class Told(NamedTuple):
    """What a client was told."""

    status: int
    body: Any
    headers: Mapping[str, str]


class Stand:
    """Of one test."""

    def __init__(
        self, brokers: str, prefix: str, folder: Path, finally_: Callable[[Callable[[], None]], None], flow: str = FLOW
    ) -> None:
        self.brokers, self.prefix, self.folder, self._finally = brokers, prefix, folder, finally_
        self.flow = flow
        self.ports = free_ports(2)
        self.gateways: list[subprocess.Popen[str] | None] = [None, None]

    def command(self, *arguments: str) -> subprocess.Popen[str]:
        """A process of falkirk's, which ends with the test at the latest."""
        process = subprocess.Popen(
            [sys.executable, "-m", "falkirk", *arguments, "--brokers", self.brokers],
            env={**os.environ, "PREFIX": self.prefix}, cwd=self.folder, text=True, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._finally(lambda: process.kill() if process.poll() is None else None)
        return process

    def run(self, *options: str) -> subprocess.Popen[str]:
        """The workers."""
        return self.command("run", self.flow, "--session-timeout", "1s", *options)

    def serve(self, number: int, *options: str) -> None:
        """A gateway: number 0 or 1."""
        listen = ("--listen", str(self.ports[number]), "--answer-within", "50s")
        self.gateways[number] = self.command("serve", self.flow, *listen, *options)

    def kill_gateway(self, number: int) -> None:
        """kill -9."""
        process = self.gateways[number]
        assert process is not None
        process.kill()
        process.wait()

    def ask(
        self, number: int, source: str, body: object, key: str | None = None, *, method: str = "POST"
    ) -> Told | None:
        """One request to one gateway; None: it is gone."""
        headers = {"Content-Type": "application/json"} | ({} if key is None else {"Idempotency-Key": key})
        connection = HTTPConnection("127.0.0.1", self.ports[number], timeout=60)
        try:
            connection.request(method, f"/{source}", body if isinstance(body, bytes) else json.dumps(body), headers)
            response = connection.getresponse()
            data = response.read()
            return Told(response.status, json.loads(data) if data else None, dict(response.headers))
        except (OSError, HTTPException):
            return None
        finally:
            connection.close()

    def answered(self, choose: Callable[[], int], source: str, body: object, key: str) -> Told:
        """Ask again, at any gateway, until there is an answer."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            told = self.ask(choose(), source, body, key)
            if told is not None and told.status not in (503, 504):
                return told
            time.sleep(0.05)
        raise AssertionError(f"no answer for {key}")

    def taken(self, number: int, source: str, body: object) -> Told:
        """A request without a key: asked again only if it was not taken."""
        found: list[Told] = []

        def taken() -> bool:
            told = self.ask(number, source, body)
            found.extend([told] if told is not None and told.status != 503 else [])
            return bool(found)

        self.until(taken)
        return found[0]

    def until(self, holds: Callable[[], object]) -> None:
        """Wait."""
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def ready(self, number: int) -> bool:
        """Whether a gateway takes requests."""
        told = self.ask(number, "ready", b"", method="GET")
        return told is not None and told.status == 200
