"""NexMark's queries give what DuckDB gives, though their processes are killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console
from tests.nexmark.kills import Trial, fill, tables
from tests.waiting import PATIENCE_S

from falkirk.connectors.embedded import EmbeddedKafka

EVENTS = 60_000

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, pl.DataFrame]]]:
    """A broker of its own, for the topics have fixed names; and what is in them."""
    with EmbeddedKafka(tmp_path_factory.mktemp("kafka"), console=Console(quiet=True)) as kafka:
        fill.fill(kafka.bootstrap, EVENTS, partitions=2)
        yield kafka.bootstrap, tables(EVENTS)


@pytest.mark.parametrize(("number", "regime"), [(4, "eager"), (20, "lazy")])
def test_a_killed_query_gives_what_duckdb_gives(
    number: int, regime: str, filled: tuple[str, dict[str, pl.DataFrame]], tmp_path: Path
) -> None:
    brokers, inputs = filled
    trial = Trial(brokers, tmp_path, number, regime, rows=3_000)
    trial.run(kills=2, every=8, timeout=PATIENCE_S)
    assert trial.late() == [], "the topics are not in the order of time"
    assert trial.faults(inputs) == {"too many": {}, "missing": {}}
    assert len(trial.kills) == 2
