"""A backfill on a real Kafka and a local Spark, then a run that goes on from it: what streaming from the start gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.runtime.backfill.stand import Stand, clean

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def stand(kafka: str, topic_prefix: str, tmp_path: Path) -> Stand:
    return Stand(kafka, topic_prefix.split("-")[-2] + "-", tmp_path)


def test_a_backfill_and_a_run_are_a_run_from_the_start(stand: Stand) -> None:
    stand.append(20_000)
    assert "is complete: 20,000 input records" in stand.run("backfill", "filled")
    stand.append(10_000)
    assert "the backfill is complete" in stand.run("backfill", "filled"), "there is one, and it stays"
    stand.run("run", "filled", "--until", "end")
    stand.run("run", "streamed", "--until", "end")
    stand.check("filled", "streamed")
    assert "has run already" in clean(stand.run("backfill", "streamed", code=7))
