"""One server for the tests here, and a database for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.postgres import Server, server


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
