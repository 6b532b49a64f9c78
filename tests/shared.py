"""The broker that all processes of a run share.

    process ──asks, through a Unix socket──▶ the process that hands the tests out: starts the broker, once ──▶ its address

The process that hands the tests out runs none itself when there are several, so it outlives whatever a test does to its own.
"""

from __future__ import annotations

import os
import tempfile
import threading
from multiprocessing.connection import Client, Listener
from pathlib import Path

from rich.console import Console

from falkirk.connectors.embedded import EmbeddedKafka
from falkirk.errors import FalkirkError

VARIABLE = "FALKIRK_TEST_BROKER"
"""Names the socket for the processes that run tests."""

# Tests that let a session run out should not wait for the six seconds that a broker demands by default.
SETTINGS = {"group.min.session.timeout.ms": "500"}


class SharedBroker:
    """Starts when it is first asked for; `close` ends it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="falkirk-tests-")
        self._broker = EmbeddedKafka(Path(self._folder.name) / "kafka", settings=SETTINGS, console=Console(quiet=True))
        os.environ[VARIABLE] = str(Path(self._folder.name) / "ask")
        self._listener = Listener(os.environ[VARIABLE])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        answer: tuple[str, str] | None = None
        while True:
            with self._listener.accept() as asker:
                answer = answer or self._start()
                asker.send(answer)

    def _start(self) -> tuple[str, str]:
        """Its address, or why it does not start."""
        try:
            return self._broker.start(), ""
        except FalkirkError as error:
            return "", str(error)

    def close(self) -> None:
        """End the broker, if it was ever asked for."""
        self._listener.close()
        self._broker.stop()
        self._folder.cleanup()


def shared_broker() -> str:
    """Its address. Raises RuntimeError where it does not start."""
    with Client(os.environ[VARIABLE]) as answer:
        address, trouble = answer.recv()
    if trouble:
        raise RuntimeError(trouble)
    return str(address)
