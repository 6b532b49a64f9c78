"""One server for the tests here, and a database for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.connectors.postgres.chunks import ADDED, Make
from tests.postgres import Server, server

from falkirk.connectors.postgres.client import Database
from falkirk.connectors.postgres.outlet import PostgresOutlet
from falkirk.stream.definition.outlets import TablePlan


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    found = server()
    yield found
    found.close()


@pytest.fixture
def name(postgres: Server) -> Iterator[str]:
    """A new database."""
    with postgres.database() as name:
        yield name


@pytest.fixture
def sql(postgres: Server, name: str) -> Iterator[Any]:
    """A connection of the superuser to the new database."""
    with postgres.connect(name) as connection:
        yield connection


@pytest.fixture
def outlet(postgres: Server, name: str) -> Iterator[Make]:
    """Makes outlets, each with a connection of its own."""
    made: list[Database] = []

    def make(plan: TablePlan = ADDED, topic_id: str = "id", user: str = "postgres") -> PostgresOutlet:
        made.append(Database("shop", postgres.url(name, user), "app"))
        return PostgresOutlet(made[-1], plan, "app", "sink", topic_id)

    yield make
    for database in made:
        database.close()
