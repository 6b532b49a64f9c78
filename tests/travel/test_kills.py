"""The app with all four regimes on a real broker, Spark and PostgreSQL, which are killed while clients ask.

clients   each asks one question after the other, with a key of its own, until it is answered: impatiently, and at any of two
          gateways, so that the app gets some questions twice. Now and then it asks an older one again, which must have the
          same answer
harm      kill -9 of workers; of the whole run, while Spark computes an epoch; of PostgreSQL, which is away for some
          answers
oracle    the table has each answered question once, with the answer that was given, and nothing else; the counts by airport
          are those of all questions (`compare`). An answer says what some of the flights say (`allowed`); after the last
          flight it is exact

`python -m tests.travel` kills as often as one likes.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.cli.live import kill_one, workers
from tests.postgres import Server, server
from tests.travel.oracle import EXAMPLES, airports, allowed, client, flights, legs, routes, usual
from tests.travel.stand import CLIENTS, PATIENCE, Clients, Travel, check, settle, until, written

from falkirk.connectors.embedded import EmbeddedKafka
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.containers]

FIRST, SECOND, LAST = 600, 2000, 3000
"""How many flights are sent before the run starts, by when the epoch is open, and in all."""


@pytest.fixture
def postgres() -> Iterator[Server]:
    found = server()
    yield found
    found.close()


@pytest.mark.timeout(1800)  # two Sparks start, and they yield to everything else
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
        assert allowed(found, [known], near), found
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
