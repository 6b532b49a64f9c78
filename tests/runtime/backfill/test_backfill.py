"""A backfill on a real Kafka and a local Spark, then a run that goes on from it: what streaming from the start gives."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from tests.runtime.backfill.stand import PARTITIONS, TABLES, Stand, clean

from falkirk.checkpoint.ids import TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture
def stand(kafka: str, topic_prefix: str, tmp_path: Path) -> Stand:
    return Stand(kafka, topic_prefix.split("-")[-2] + "-", tmp_path)


def test_a_backfill_that_is_killed_is_finished_by_the_next_and_with_a_run_it_is_a_run_from_the_start(
    stand: Stand,
) -> None:
    stand.append(20_000)
    for word in ("backfill opened", "publish"):
        stand.kill_backfill("filled", word)
        stand.append(1_000)
    assert "is under way" in clean(stand.run("run", "filled", "--until", "end", code=7))
    said = stand.run("backfill", "filled")
    assert "is complete: 22,000 input records" in said, "what came after its opening is not the backfill's"
    stand.append(5_000)
    assert "the backfill is complete" in stand.run("backfill", "filled"), "there is one, and it stays"
    stand.run("run", "filled", "--until", "end")
    stand.run("run", "streamed", "--until", "end")
    stand.check("filled", "streamed")
    assert "has already run" in clean(stand.run("backfill", "streamed", code=7))


def test_a_table_stands_for_what_kafka_holds_no_more(stand: Stand) -> None:
    """The older bids are in Parquet files, and gone from the topic when it is backfilled. (Within one time their order is
    unknown: what is told of a highest price on the way is another.)"""
    stand.append(20_000)
    old = [json.loads(value) for _, value in stand.read(f"{stand.prefix}bids") if value != b"no bid"]
    for part in range(2):
        (stand.folder / "lake").mkdir(exist_ok=True)
        pl.DataFrame(old[part::2]).with_columns(beside=pl.lit("of no use")).write_parquet(
            stand.folder / "lake" / f"{part}.parquet"
        )
    places = [TopicPartition(f"{stand.prefix}bids", p) for p in range(PARTITIONS)]
    half = stand.topics.offsets(places, "latest")
    stand.append(5_000)
    stand.run("run", "streamed", "--until", "end")
    stand.topics.trim(half)
    history = f"bids=parquet:{stand.folder / 'lake'}"
    stand.kill_backfill("filled", "publish", "--history", history)
    assert "another definition" in clean(stand.run("backfill", "filled", code=7)), "without what it was opened with"
    assert "is complete: 7,500 input records" in stand.run("backfill", "filled", "--history", history)
    stand.append(5_000)
    stand.run("run", "filled", "--until", "end")
    stand.run("run", "streamed", "--until", "end")
    for sink in TABLES:
        assert stand.table("filled", sink) == stand.table("streamed", sink), sink
    assert stand.records("filled", "dear") == stand.records("streamed", "dear")
