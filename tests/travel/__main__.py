"""The travel app under kills, for as long as one likes."""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import click
from tests.postgres import server
from tests.travel.oracle import airports, flights
from tests.travel.stand import CLIENTS, Clients, Travel, check, until, written
from tests.travel.trial import PARTITIONS, Trial

from falkirk.connectors.embedded import EmbeddedKafka
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster

FIRST = 600
"""Flights before the run starts."""


@click.command()
@click.option("--kills", default=1000, show_default=True, help="How many.")
@click.option("--seed", default=7, show_default=True, help="Decides the harm.")
@click.option("--folder", type=click.Path(path_type=Path), help="For logs and state; kept.")
def main(kills: int, seed: int, folder: Path | None) -> None:
    """Kill workers, gateways, Spark, the broker, PostgreSQL and the whole run of examples/travel while clients ask. What they
    were told is compared with the rows in PostgreSQL. Needs PostgreSQL's programs, or an image of it."""
    folder = folder or Path(tempfile.mkdtemp(prefix="falkirk-travel-"))
    began, frame = time.monotonic(), flights()

    def say(words: str) -> None:
        click.echo(f"{time.monotonic() - began:6.0f} s  {words}")

    with ExitStack() as stack:
        postgres = server()
        stack.callback(postgres.close)
        broker = stack.enter_context(EmbeddedKafka(folder / "kafka"))
        Topics(Cluster(broker.bootstrap)).create("flights", PARTITIONS, 1, {"retention.ms": "-1"})
        name = stack.enter_context(postgres.database())
        pool = stack.enter_context(ThreadPoolExecutor(CLIENTS))
        app = Travel(broker.bootstrap, postgres.url(name), folder)
        stack.callback(app.close)
        app.send(frame[:FIRST])
        clients = Clients(app.addresses, [*airports(frame[:FIRST]), "XXX"], pool)
        stack.callback(clients.give_up)
        trial = Trial(app, clients, postgres, broker, frame, FIRST, kills=kills, seed=seed, say=say)
        trial.run()
        until(app, clients, lambda: written(postgres, name) >= len(clients.told), "all is in the database")
        code = app.leave()
        assert code == 0, f"the run ended with exit code {code}; its log is {app.said}"
        check(postgres, name, clients.told)
    say(f"killed: {dict(trial.killed)}")
    click.echo(f"{len(clients.told):,} answers, {len(trial.epochs)} epochs: all exact")


if __name__ == "__main__":
    main()
