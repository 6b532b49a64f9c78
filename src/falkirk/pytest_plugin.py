"""Fixtures for tests of flows on a real Kafka. pytest finds them where Falkirk is installed; nothing is imported before they
are asked for.

falkirk_kafka     the address of an embedded Kafka that the session shares; it starts when it is first asked for
falkirk_run       `falkirk.testing.run` on that Kafka: falkirk_run(flow, {"bids": rows})
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from falkirk.testing.real import Run


@pytest.fixture(scope="session")
def falkirk_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real Kafka, for as long as the session."""
    from falkirk.connectors.embedded import EmbeddedKafka

    with EmbeddedKafka(tmp_path_factory.mktemp("kafka")) as kafka:
        yield kafka.bootstrap


@pytest.fixture
def falkirk_run(falkirk_kafka: str, tmp_path: Path) -> Run:
    """Runs a flow over some input on a real Kafka: `falkirk_run(flow, {"bids": rows}, partitions=3)`."""
    from falkirk.testing.real import run

    return partial(run, falkirk_kafka, tmp_path / "state")
