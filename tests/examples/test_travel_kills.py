"""The app with all four regimes on a real broker, Spark and PostgreSQL, which are killed while clients ask.

clients   each asks one question after the other, with a key of its own, until it is answered: impatiently, and at any of two
          gateways, so that the app gets some questions twice. Now and then it asks an older one again, which must have the
          same answer
harm      kill -9 of workers; of the whole run, while Spark computes an epoch; of PostgreSQL, which is away for some
          answers
oracle    the table has each answered question once, with the answer that was given, and nothing else; the counts by airport
          are those of all questions (`compare`). An answer says what some of the flights say (`allowed`); after the last
          flight it is exact
"""

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
from typing import Any

import polars as pl
import pytest
from tests.cli.live import kill_all, kill_one, workers
from tests.examples.travel import (
    EXAMPLES,
    FLOW,
    Pair,
    Told,
    Usual,
    airports,
    allowed,
    answer,
    client,
    compare,
    data,
    flights,
    legs,
    routes,
    usual,
)
from tests.postgres import Server, server
from tests.serve.stand import free_port

from falkirk.connectors.embedded import EmbeddedKafka
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.messages.epochs import BatchPart, batch_part

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.containers]

PATIENCE = 400.0
"""Seconds until the test gives up: Spark yields to all that keeps the machine busy."""
CLIENTS = 4
FIRST, SECOND, LAST = 600, 2000, 3000
"""How many flights are sent before the run starts, by when the epoch is open, and in all."""


@pytest.fixture
def postgres() -> Iterator[Server]:
    found = server()
    yield found
    found.close()


class Travel:
    """The app as `falkirk run` with a gateway, and another gateway as `falkirk serve`."""

    def __init__(self, brokers: str, database: str, folder: Path) -> None:
        ports = [free_port(), free_port()]
        self.brokers, self.said, self._folder, self._database = brokers, folder / "said", folder, database
        self.addresses = [f"127.0.0.1:{port}" for port in ports]
        self._command = ["run", "--listen", str(ports[0]), "--workers", "2", "--session-timeout", "6s"]
        self.run = self._start(*self._command)
        self._gateway = self._start("serve", "--listen", str(ports[1]))

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


@pytest.mark.timeout(1500)  # two Sparks start, and they yield to everything else
def test_each_answered_question_is_in_the_database_once_whatever_is_killed(
    embedded: Callable[..., EmbeddedKafka], postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted = count_posts(monkeypatch)
    brokers, frame = embedded().start(), flights().head(LAST)
    Topics(Cluster(brokers)).create("flights", 2, 1, {})
    known, near = usual(frame[:FIRST]), legs(routes(frame))
    with postgres.database() as name, ThreadPoolExecutor(CLIENTS) as pool:
        app = Travel(brokers, postgres.url(name), tmp_path)
        try:
            said = by_hand("fill.py", "--brokers", brokers, "--flights", str(FIRST), "--seconds", "0")
            assert said == f"{FIRST:,} flights are in topic flights\n"
            clients = Clients(app.addresses, [*airports(frame), "XXX"], pool)
            try:
                harm(app, clients, postgres, frame)
            except BaseException:
                clients.give_up()
                raise
            clients.stop()
            settle(app, clients, [*airports(frame), "XXX"], known, near)
            said = by_hand("ask.py", "JFK", "LAX", "--at", app.addresses[0], "--key", "by-hand")
            assert said == f"{client.sentence(clients.ask(('JFK', 'LAX'), 'by-hand'))}\n"
            until(app, clients, lambda: written(postgres, name) >= len(clients.told), "all is in the database")
            assert app.leave() == 0, app.said.read_text()
        finally:
            app.close()
        check(postgres, name, clients.told)
    for found in clients.told.values():
        assert allowed(found, known, near), found
    # The first question of each client comes before there is a gateway.
    again = [key for key, times in posted.items() if times > clients.asked[key] and not key.endswith("-0")]
    assert again, "no question had to be asked again, so this has shown nothing"


def by_hand(script: str, *arguments: str) -> str:
    """What a person does who tries the example, and what is printed."""
    command = [sys.executable, str(EXAMPLES / "travel" / script), *arguments]
    return subprocess.run(command, text=True, check=True, timeout=PATIENCE, stdout=subprocess.PIPE).stdout


def count_posts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Every attempt of the clients from now on, by key."""
    post, posted = client._post, Counter[str]()

    def counting(address: str, body: str, headers: dict[str, str], timeout: float) -> Any:
        posted[headers["Idempotency-Key"]] += 1  # a key is asked for by one client at a time
        return post(address, body, headers, timeout)

    monkeypatch.setattr(client, "_post", counting)
    return posted


def harm(app: Travel, clients: Clients, postgres: Server, frame: pl.DataFrame) -> None:
    """Kill everything once, and some of it twice, while clients ask and flights come."""

    def answered(more: int) -> None:
        wanted = len(clients.told) + more
        until(app, clients, lambda: len(clients.told) >= wanted, f"{more} more answers are given")

    def all_work() -> bool:
        return len(workers(app.run)) >= 2

    answered(20)
    with app.epochs() as epochs:
        until(app, clients, lambda: epochs.look().state != "none", "an epoch is open")
        app.send(frame[FIRST:SECOND])
        kill_one(app.run)
        answered(20)
        app.restart()
        answered(20)
        postgres.kill()
        answered(20)
        until(app, clients, all_work, "all workers are there")
        kill_one(app.run)
        answered(20)
        postgres.start()
        app.send(frame[SECOND:])
        answered(20)
        until(app, clients, lambda: epochs.look().state == "complete", "the epoch is complete")
        assert epochs.look().records == FIRST
    until(app, clients, all_work, "all workers are there")
    kill_one(app.run)
    answered(40)


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
