"""Tables of Spark's in the place of records: what of them is read, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession

import falkirk as fk
from falkirk.connectors.spark.columns import frame_in_utc
from falkirk.connectors.spark.epochs.histories import table_of
from falkirk.errors import ConfigError
from falkirk.stream.access.producing import sources_of
from falkirk.stream.backfill.history import History, record
from falkirk.stream.backfill.past import HistoryRows
from falkirk.stream.backfill.stage import backfill_stage
from falkirk.stream.operators.sources.source import Source

ROWS = {"auction": [7, 8], "price": [10, None], "at": [datetime(2013, 1, 1, 5, tzinfo=UTC)] * 2, "beside": ["x", "y"]}


def source(**given: Any) -> Source:
    flow = fk.Flow("f")
    value = fk.Json({"auction": fk.Int64, "price": fk.Int64, "at": fk.Datetime})
    flow.source("bids", key="auction", value=value, **given).sink("out", value=fk.Json())
    return sources_of(flow.plan())["bids"]


def test_the_columns_of_the_source_are_read(spark: SparkSession, tmp_path: Path) -> None:
    pl.DataFrame(ROWS).write_parquet(tmp_path / "old.parquet")
    table_of(spark, History("bids", "parquet", str(tmp_path)), source()).createGlobalTempView("old")
    again = table_of(spark, History("bids", "table", "global_temp.old"), source(time="at"))
    assert again.columns == ["auction", "price", "at"]
    made = HistoryRows.of(source(time="at"), pl.DataFrame(again.toArrow()), 4, clock=1)
    assert made.times == [1_357_016_400_000] * 2
    one = record(made.payloads[0], 5, headers=False)
    assert (one.offsets, one.keys, one.times) == ([5], [b"7"], made.times[:1])
    assert one.values == [b'{"auction":7,"price":10,"at":"2013-01-01T05:00:00.000Z"}']


def test_moments_are_the_same_whatever_zone_spark_names(spark: SparkSession, tmp_path: Path) -> None:
    at, own = datetime(1890, 1, 1, 5, 0, 0, 250_000, tzinfo=UTC), spark.newSession()
    rows = {"auction": [7], "price": [1], "at": [at], "nested": [[{"at": at}]]}
    pl.DataFrame(rows).write_parquet(tmp_path / "old.parquet")
    for zone in ("UTC", "GMT+02:00", "-03:30", "America/St_Johns"):
        own.conf.set("spark.sql.session.timeZone", zone)
        read = own.read.parquet(str(tmp_path)).toArrow().to_batches()
        assert frame_in_utc(read[0]).to_dict(as_series=False) == rows


def test_what_is_no_history_of_the_source_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    nowhere = History("bids", "parquet", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="Spark cannot read the history of source 'bids'") as caught:
        table_of(spark, nowhere, source())
    assert f"--history {nowhere}" in str(caught.value)
    pl.DataFrame(ROWS).drop("price").write_parquet(tmp_path / "old.parquet")
    with pytest.raises(ConfigError, match="no column 'price'") as caught:
        table_of(spark, History("bids", "parquet", str(tmp_path)), source())
    assert "which has auction, at, beside" in str(caught.value)
    for price in ("dear", 1.5):
        rows = pl.DataFrame(ROWS).drop("beside").with_columns(price=pl.lit(price))
        with pytest.raises(
            ConfigError, match=r"does not fit its columns: column 'price' is .*, not Int64\n(.*\n)*.*a view"
        ):
            HistoryRows.of(source(), rows, 4, clock=1)


@pytest.mark.parametrize("text", ["bids", "bids=parquet", "bids=:x", "=parquet:x"])
def test_a_history_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a history"):
        History.parse(text)


def test_histories_are_of_sources_that_there_are_and_one_of_each() -> None:
    flow = fk.Flow("f")
    flow.source("bids", key="k", value=fk.Json({"k": str})).group_by("k").agg(n=fk.len()).sink(
        "n", key="k", value=fk.Json()
    )
    plan, old = flow.plan(), History("bids", "parquet", "old")
    whole, with_one = backfill_stage(plan), backfill_stage(plan, [old])
    assert whole.fingerprint != with_one.fingerprint, "one that is open is not gone on with by another table"
    with pytest.raises(ConfigError, match=r"no source 'bidz'\n.*\n  to do: did you mean 'bids'"):
        backfill_stage(plan, [old._replace(source="bidz")])
    with pytest.raises(ConfigError, match="'bids' has two histories"):
        backfill_stage(plan, [old, old])
