"""The travel app with its gateways, the clients that ask it, and what is compared in the end."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import polars as pl
from tests.cli.live import kill_all
from tests.ports import free_ports
from tests.postgres import Server
from tests.travel.oracle import FLOW, Pair, Told, Usual, answer, client, compare, data

from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.messages.epochs import BatchPart, batch_part

PATIENCE = 400.0
"""Seconds until a wait is given up: Spark yields to all that keeps the machine busy."""
CLIENTS = 4


class Travel:
    """The app as `falkirk run` with a gateway, and another gateway as `falkirk serve`."""

    def __init__(self, brokers: str, database: str, folder: Path) -> None:
        ports = free_ports(2)
        self.brokers, self.said, self._folder, self._database = brokers, folder / "said", folder, database
        self.addresses = [f"127.0.0.1:{port}" for port in ports]
        self._command = ["run", "--listen", str(ports[0]), "--workers", "2", "--session-timeout", "6s"]
        self.run = self._start(*self._command)
        self._serve = ["serve", "--listen", str(ports[1])]
        self._gateway = self._start(*self._serve)

    def _start(self, what: str, *options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "falkirk", what, FLOW, "--brokers", self.brokers, *options]
        environment = {**os.environ, "FALKIRK_DATABASE_TRAVEL_URL": self._database}
        with self.said.open("a") as said:
            return subprocess.Popen(
                [*command, "--state-dir", str(self._folder / what)],
                env=environment,
                text=True,
                stdout=said,
                stderr=said,
            )

    def restart(self) -> None:
        """kill -9 of everything that it has started, and a new run."""
        kill_all(self.run)
        self.run = self._start(*self._command)

    def restart_gateway(self) -> None:
        """kill -9 of the other gateway, and a new one."""
        kill_all(self._gateway)
        self._gateway = self._start(*self._serve)

    def leave(self) -> int:
        """SIGTERM; the exit code."""
        self.run.terminate()
        return self.run.wait(PATIENCE)

    def close(self) -> None:
        for process in (self.run, self._gateway):
            if process.poll() is None:
                kill_all(process)

    def send(self, frame: pl.DataFrame) -> None:
        """Flights, in their order."""
        data.send(frame, self.brokers, 0.0, lambda _: None, threading.Event())

    @contextmanager
    def epochs(self) -> Iterator[BatchPart]:
        """The batch part."""
        with batch_part("travel", "usual", Settings(self.brokers, ""), Topics(Cluster(self.brokers))) as part:
            yield part


class Clients:
    """Those who ask, each in a thread, until they are told to stop."""

    def __init__(self, addresses: list[str], names: list[str], pool: ThreadPoolExecutor) -> None:
        self._addresses, self._names, self._lock = addresses, names, threading.Lock()
        self._done, self._given_up = threading.Event(), threading.Event()
        self.told: dict[str, Told] = {}
        """What was answered, by key."""
        self.asked: Counter[str] = Counter()
        """How often it was asked for, by key."""
        self._asking: list[Future[None]] = [pool.submit(self._ask_on, number) for number in range(CLIENTS)]

    def ask(self, pair: Pair, key: str) -> Told:
        """The answer. Raises AssertionError if it is another one than the last time."""
        self.asked[key] += 1
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                found: Told = client.ask(random.choice(self._addresses), *pair, key=key, patience=0.0, timeout=0.5)
                break
            except client.Unanswered:
                if self._given_up.is_set() or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        with self._lock:
            assert self.told.setdefault(key, found) == found, f"{key} was answered in two ways"
        return found

    def check(self) -> None:
        """Raises what has ended one of them."""
        for asking in self._asking:
            if asking.done():
                asking.result()

    def give_up(self) -> None:
        """Let all end, answered or not."""
        self._done.set()
        self._given_up.set()

    def stop(self) -> None:
        """Let all end, each with an answer to its last question."""
        self._done.set()
        for asking in self._asking:
            asking.result()

    def _ask_on(self, number: int) -> None:
        choice, sent = random.Random(number), list[tuple[Pair, str]]()
        nearest: dict[Pair, int] = {}
        while not self._done.wait(0.15):
            # Few origins, so that the same pair is asked for again and again.
            pair = choice.choice(self._names[:6]), choice.choice(self._names)
            sent.append((pair, f"{number}-{len(sent)}"))
            found = self.ask(*sent[-1])["legs"]
            # Routes only come. Who has seen a way never sees a longer one later, and never none.
            assert found is not None or pair not in nearest, f"{pair} was near, and is not"
            if found is not None:
                assert found <= nearest.get(pair, found), f"{pair} was nearer"
                nearest[pair] = found
            if choice.random() < 0.1:
                self.ask(*choice.choice(sent))


def until(app: Travel, clients: Clients, holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        clients.check()
        assert app.run.poll() is None, app.said.read_text()
        assert time.monotonic() < deadline, f"in vain until {what}: {app.said.read_text()[-5000:]}"
        time.sleep(0.1)


def settle(app: Travel, clients: Clients, names: list[str], known: dict[Pair, Usual], near: dict[Pair, int]) -> None:
    """After the last flight, some questions get the exact answer, each as soon as the flights have been read."""
    choice = random.Random(7)
    pairs = [*choice.sample(sorted(known), 10), *choice.sample(sorted(near), 10)]
    for pair in [*pairs, *((choice.choice(names), choice.choice(names)) for _ in range(10))]:
        wanted, tries = answer(pair, known, near), 0

        def exact(pair: Pair = pair, wanted: Told = wanted) -> bool:
            nonlocal tries
            tries += 1
            return clients.ask(pair, f"last-{'-'.join(pair)}-{tries}") == wanted

        until(app, clients, exact, f"the answer is {wanted}")


def written(postgres: Server, name: str) -> int:
    """How many questions are in both tables."""
    with postgres.connect(name) as sql:
        [answers] = sql.execute("select count(*) from answers").fetchone()
        [asked] = sql.execute("select sum(questions) from asked").fetchone()
    return int(min(answers, asked or 0))


def check(postgres: Server, name: str, told: dict[str, Told]) -> None:
    """Raises AssertionError unless the tables say exactly what clients were told."""
    with postgres.connect(name) as sql:
        rows = sql.execute("select request, origin, dest, flights, delay, legs from answers").fetchall()
        asked = sql.execute("select origin, questions, unknown from asked").fetchall()
    compare(rows, asked, told)
