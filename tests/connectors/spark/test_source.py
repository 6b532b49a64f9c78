"""The data source, in a real Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import narwhals as nw
import pytest
from pyspark.cloudpickle import dumps
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from tests.connectors.spark.topics import Topic

import falkirk as fk
from falkirk.connectors.spark.source import source_for

pytestmark = pytest.mark.kafka

MakeTopic = Callable[..., Topic]
Load = Callable[..., DataFrame]


def test_a_dataframe_has_the_committed_records_of_all_partitions(topic: MakeTopic, load: Load) -> None:
    mixed = topic(partitions=3)
    mixed.send([("k", "plain"), ("gone", None)], 1, headers=[("h", b"1"), ("h", None)], timestamp=1500)
    mixed.transaction({0: ["a", "b"], 2: ["c"]})
    mixed.transaction({0: ["never"], 1: ["never"]}, commit=False)
    mixed.transaction({2: [("key", "d")]})
    frame = load(mixed, slice=2)
    assert [f"{c.name} {c.dataType.simpleString()}" for c in frame.schema] == [
        "value binary",
        "key binary",
        "topic string",
        "partition int",
        "offset bigint",
        "timestamp timestamp",
        "headers array<struct<key:string,value:binary>>",
    ]
    rows = frame.sort("partition", "offset").collect()
    found = [(r.partition, r.offset, r.key, r.value) for r in rows]
    assert found == [(f.partition, f.offset, f.key, f.value) for f in mixed.committed()]
    (plain,) = [r for r in rows if r.value == b"plain"]
    assert plain.topic == mixed.name
    assert plain.timestamp.timestamp() == 1.5
    assert [(h.key, h.value) for h in plain.headers] == [("h", b"1"), ("h", None)]


def test_values_are_decoded_by_the_flows_own_formats(topic: MakeTopic, load: Load) -> None:
    typed = topic()
    rows = [
        {
            "id": 2**64 - 1,
            "small": 255,
            "at": "2026-01-31T12:00:00.250Z",
            "tags": ["a"],
            "in": {"x": 1.5, "day": "2026-01-31"},
        },
        {"id": 1},
    ]
    typed.send([json.dumps(row) for row in rows] + [None])
    value = fk.Json(
        {
            "id": fk.UInt64,
            "small": fk.UInt8,
            "at": fk.Datetime,
            "tags": fk.List(fk.String),
            "in": fk.Struct({"x": fk.Float32, "day": fk.Date}),
        }
    )
    frame = load(typed, value=value, metadata="offset")
    assert frame.schema.simpleString() == (
        "struct<id:decimal(20,0),small:smallint,at:timestamp,tags:array<string>,in:struct<x:float,day:date>,offset:bigint>"
    )
    first, second, third = (row.asDict(recursive=True) for row in frame.sort("offset").collect())
    assert first["id"] == Decimal(2**64 - 1)
    assert first["small"] == 255
    assert first["at"].astimezone(UTC) == datetime(2026, 1, 31, 12, 0, 0, 250_000, UTC)
    assert first["tags"] == ["a"]
    assert str(first["in"]["day"]) == "2026-01-31"
    assert second == {"id": 1, "small": None, "at": None, "tags": None, "in": None, "offset": 1}
    assert third == {"id": None, "small": None, "at": None, "tags": None, "in": None, "offset": 2}


def test_an_empty_topic_is_a_dataframe_without_rows(topic: MakeTopic, load: Load) -> None:
    assert load(topic(partitions=2), value=fk.Json({"n": int}), metadata="offset").collect() == []


def test_a_flows_expressions_are_for_spark_too(topic: MakeTopic, load: Load) -> None:
    bids = topic(partitions=2)
    bids.transaction({p: [json.dumps({"auction": p, "price": price}) for price in (90, 150, 120)] for p in range(2)})
    frame = nw.from_native(load(bids, value=fk.Json({"auction": fk.Int64, "price": fk.Int64})))
    dear = frame.filter(fk.col("price") > 100).with_columns(half=fk.col("price") / 2)
    stats = dear.group_by("auction").agg(n=nw.len(), top=fk.col("half").max()).sort("auction")
    assert [tuple(row) for row in nw.to_native(stats).collect()] == [(0, 2, 75.0), (1, 2, 75.0)]


@pytest.mark.slow
def test_what_is_read_is_fixed_when_it_is_loaded(topic: MakeTopic, load: Load) -> None:
    growing = topic(partitions=2)
    growing.send(range(5), 0)
    frame = load(growing)
    growing.send(range(5), 1)
    assert frame.count() == 5
    assert load(growing).agg(sf.count("*"), sf.countDistinct("partition")).first() == (10, 2)
    growing.trim(0, 3)
    with pytest.raises(PySparkException, match="records of the range were deleted"):
        frame.count()


@pytest.mark.slow
def test_a_record_that_does_not_decode_is_an_error_with_its_address_or_left_out(topic: MakeTopic, load: Load) -> None:
    mixed = topic()
    mixed.send(['{"n": 1}', '{"n": "one"}', '{"n": 2}'])
    value = fk.Json({"n": int})
    with pytest.raises(PySparkException, match=r"field 'n': cannot read 'one' as Int64\n.*partition 0, offset 1"):
        load(mixed, value=value).collect()
    kept = load(mixed, value=value, metadata="offset", malformed="skip").collect()
    assert [tuple(row) for row in kept] == [(1, 0), (2, 2)]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tpoic": "bids"}, "there is no option 'tpoic'\n.*did you mean 'topic'"),
        ({"ranges": {0: [0, 9]}}, "the range ends at offset 9, and the partition at 1"),
    ],
)
def test_what_is_wrong_is_said_on_load(topic: MakeTopic, load: Load, options: dict[str, object], says: str) -> None:
    one = topic()
    one.send(["a"])
    with pytest.raises(PySparkException, match=says):
        load(one, **options)


def test_a_worker_without_falkirk_says_so(tmp_path: Path) -> None:
    (tmp_path / "source.pickle").write_bytes(dumps(source_for(2)))
    program = """
import pickle, sys
class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "falkirk":
            raise ModuleNotFoundError(f"No module named {name!r}", name="falkirk")
sys.meta_path.insert(0, Missing())
source = pickle.load(open(sys.argv[1], "rb"))
try:
    source({"topic": "bids"})
except ModuleNotFoundError as error:
    print(error)
"""
    said = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "source.pickle")], capture_output=True, text=True, check=True
    )
    assert said.stdout.startswith(f"falkirk is not installed in a Python of Spark's\n  where: {sys.executable} on ")
    assert "pip install 'falkirk[spark]'" in said.stdout
