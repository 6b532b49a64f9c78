"""Whatever the strategies make, the flow takes: rows decode, what is broken is buried, and crashes change nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings

import falkirk as fk

KINDS = fk.Json(
    {
        "id": int, "small": fk.Int8, "large": fk.UInt64, "price": float, "narrow": fk.Float32, "name": str, "raw": bytes,
        "flag": bool, "day": fk.Date, "at": fk.Datetime, "micros": fk.DatetimeMicros, "cents": fk.Decimal(12, 2),
        "tags": list[str], "place": {"x": int, "y": str},
    }
)  # fmt: skip

every = fk.Flow("every")
kinds = every.source("kinds", key="id", value=KINDS)
kinds.sink("same", key="id", value=KINDS)
kinds.group_by("id", id="counts").agg(n=fk.len()).sink("counts", key="id", value=fk.Json())

named = fk.Flow("named")
names = named.table("names", key="id", value=fk.Json({"id": str, "name": str}))
lines = named.source("lines", value=fk.Text("id"))
lines.lookup(names, "id").sink("looked-up", key="id", value=fk.Json())


@settings(max_examples=10, deadline=None)
@given(fk.testing.strategies.rows(every, "kinds"))
def test_every_row_decodes_to_what_it_was(rows: list[dict[str, Any]]) -> None:
    result = fk.testing.run(every, {"kinds": rows}, step_rows=7)
    assert result.dead_letters == []
    assert result.sinks["same"].rows == rows
    counts = Counter(row["id"] for row in rows)
    assert {key: row["n"] for key, row in result.sinks["counts"].table.items()} == counts


@settings(max_examples=5, deadline=None)
@given(fk.testing.strategies.topics(every, max_size=8))
def test_what_is_broken_is_buried_and_nothing_else_whatever_dies(topics: dict[str, list[Any]]) -> None:
    result = fk.testing.run(every, topics, crash_at=[1] if topics["kinds"] else (), partitions=2)
    broken = [record for record in topics["kinds"] if isinstance(record, tuple)]
    assert len({(letter["partition"], letter["offset"]) for letter in result.dead_letters}) == len(broken)
    assert len(result.sinks["same"].records) == len(topics["kinds"]) - len(broken)


@settings(max_examples=10, deadline=None)
@given(fk.testing.strategies.topics(named, broken=False))
def test_tables_are_given_tombstones(topics: dict[str, list[Any]]) -> None:
    result = fk.testing.run(named, topics, partitions=2)
    assert len(result.sinks["looked-up"].records) == len(topics["lines"])
    known: dict[str, str | None] = {}
    for row in topics["names"]:
        if isinstance(row, fk.testing.Record):
            known.pop(row.key, None)
        else:
            known[row["id"]] = row["name"]
    for row in result.sinks["looked-up"].rows:
        assert row["name"] == known.get(row["id"])


BID = """
syntax = "proto3";
message Bid { int64 id = 1; optional string by = 2; repeated int32 ns = 3; message In { int32 z = 1; } repeated In ins = 4; }
"""
strict = fk.Flow("strict")
strict.source("bids", key="id", value=fk.Protobuf(BID)).sink("same", key="id", value=fk.Protobuf(BID))


@settings(max_examples=10, deadline=None)
@given(fk.testing.strategies.topics(strict, broken=False))
def test_a_schema_without_nulls_is_given_none(topics: dict[str, list[Any]]) -> None:
    result = fk.testing.run(strict, topics)
    assert result.dead_letters == []
    assert result.sinks["same"].rows == topics["bids"]
