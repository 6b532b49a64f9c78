"""A sink of files in a flow: what it accepts, what it sends to its log, and how it is shown."""

from __future__ import annotations

import polars as pl
import pytest

import falkirk as fk
from falkirk.connectors.kafka.reading.outbox import public
from falkirk.errors import DefinitionError
from falkirk.stream.dataflow.packing import unpacked_all
from falkirk.stream.flow.explain import explain
from falkirk.testing.memory import MemoryApp

BIDS = fk.Json({"auction": fk.Int64, "price": fk.Int64})
TOPIC = "falkirk.app.files.archive"


def source(regime: fk.EagerCheckpoint | fk.LazyCheckpoint | fk.Batch | None = None) -> tuple[fk.Flow, fk.Stream]:
    flow = fk.Flow("app", regime=regime or fk.EagerCheckpoint())
    return flow, flow.source("bids", key="auction", value=BIDS)


def logged(app: MemoryApp) -> list[pl.DataFrame]:
    """What its log has, by partition."""
    values = [[record.value() for record in records] for records in app.topics[TOPIC]]
    return [pl.concat(map(public, unpacked_all(some, str)[0])) if some else pl.DataFrame() for some in values]


def test_each_task_logs_its_rows_in_its_own_partition() -> None:
    flow, bids = source()
    bids.filter(fk.col("price") > 1).sink_parquet("archive", "somewhere")
    app = MemoryApp(flow, {"bids": 3}, tasks=3)
    for i in range(30):
        app.append("bids", str(i).encode(), b'{"auction":%d,"price":%d}' % (i, i % 3))
    app.run()
    found = logged(app)
    assert sorted(row for frame in found for row in frame.rows()) == [(i, 2) for i in range(30) if i % 3 == 2]
    assert len(found) == 3
    assert all(frame.columns == ["auction", "price"] for frame in found if frame.height)


def test_changes_are_rows_with_a_weight_that_add_up_to_the_result() -> None:
    flow, bids = source()
    bids.group_by("auction").agg(n=fk.len()).sink_parquet("archive", "somewhere", changes=True)
    app = MemoryApp(flow, {"bids": 1})
    for _ in range(3):
        app.append("bids", b"7", b'{"auction":7,"price":1}')
        app.run()
    (rows,) = logged(app)
    assert rows.columns == ["auction", "n", "weight"]
    net = rows.group_by("auction", "n").agg(pl.col("weight").sum()).filter(pl.col("weight") != 0)
    assert net.rows() == [(7, 3, 1)]


def test_a_stream_with_retractions_is_refused_with_what_to_do() -> None:
    _, bids = source()
    counts = bids.group_by("auction").agg(n=fk.len())
    with pytest.raises(DefinitionError, match="can be retracted") as caught:
        counts.sink_parquet("archive", "somewhere")
    assert "changes=True" in caught.value.hint
    assert "test_parquet.py:" in caught.value.where


def test_what_cannot_be_written_is_refused() -> None:
    _, bids = source()
    with pytest.raises(DefinitionError, match="every='soon' is not a duration"):
        bids.sink_parquet("archive", "somewhere", every="soon")
    with pytest.raises(DefinitionError, match="not a valid name"):
        bids.sink_parquet("a/b", "somewhere")
    with pytest.raises(DefinitionError, match="no folder"):
        bids.sink_parquet("archive", "")
    weights = bids.group_by("auction").agg(weight=fk.len())
    with pytest.raises(DefinitionError, match="column 'weight'"):
        weights.sink_parquet("archive", "somewhere", changes=True)
    with pytest.raises(DefinitionError, match="batch part"):
        bids.with_regime(fk.Batch()).sink_parquet("archive", "somewhere")


def test_explain_says_where_the_files_are() -> None:
    flow, bids = source()
    bids.sink_parquet("archive", "s3://bucket/bids", every="90s")
    assert "  write   files archive: Parquet in s3://bucket/bids, every 1m30s" in explain(flow)


def test_a_flow_under_test_runs_with_a_sink_of_files() -> None:
    flow, bids = source()
    bids.sink_parquet("archive", "somewhere")
    bids.sink("out", key="auction", value=fk.Json())
    result = fk.testing.run(flow, {"bids": [{"auction": 7, "price": 1}]}, crash_at=[1])
    assert len(result.sinks["out"].rows) == 1
