"""Ids of operators: topics are named after them, so they must be names that Kafka allows."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import falkirk as fk
from falkirk.errors import DefinitionError
from falkirk.stream.flow.streams import Stream

COLUMNS = ["user id", "größe", "@timestamp", "a/b", "$ref", " k", "x" * 300]

KEYED: dict[str, Callable[[Stream, str], Stream]] = {
    "group": lambda s, c: s.group_by(c).agg(n=fk.len()),
    "top": lambda s, c: s.group_by(c).top_k(1, by="v"),
    "over": lambda s, c: s.over(c, order_by="v").agg(n=fk.sum("v")),
    "column": lambda s, c: s.with_columns(n=fk.sum("v").over(c)),
    "process": lambda s, c: s.key_by(c).process(lambda row, key: row),
    "join": lambda s, c: s.join(s.agg(n=fk.len(), **{c: fk.min(c)}, id="least"), on=c),
    "session": lambda s, c: s.group_by(c, fk.session("v", gap="1s")).agg(n=fk.len()),
    "repartition": lambda s, c: s.repartition(c),
}

UNKEYED: dict[str, Callable[[Stream, Stream], Stream]] = {
    "union": lambda a, b: a.union(b),
    "intersect": lambda a, b: a.intersect(b),
    "subtract": lambda a, b: a.subtract(b),
    "unique": lambda a, b: a.concat(b).unique(),
    "total": lambda a, b: a.concat(b).agg(k=fk.len()),
    "regime": lambda a, b: a.concat(b).with_regime(fk.LazyCheckpoint()).filter(fk.col("k") > 0),
    "loop": lambda a, b: a.concat(b).unique().iterate(lambda rows: rows.unique()),
    "map": lambda a, b: a.concat(b).map(lambda row: row).unique(),
    "flat_map": lambda a, b: a.concat(b).flat_map(lambda row: [row]).deduplicate("k"),
}


def topics(flow: fk.Flow) -> list[str]:
    return [output.topic for stage in flow.plan().stages for output in stage.outputs]


def check_topics(flow: fk.Flow) -> None:
    stages = [stage.id for stage in flow.plan().stages]
    assert [name for name in [*stages, *topics(flow)] if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name)] == []


@pytest.mark.parametrize("column", COLUMNS, ids=lambda c: c[:10])
@pytest.mark.parametrize("what", KEYED)
def test_a_column_may_have_any_name(what: str, column: str) -> None:
    flow = fk.Flow("app")
    result = KEYED[what](flow.source("rows", value=fk.Json({column: str, "v": int})), column)
    result.sink("out", key=[c for c in (column, "v", "window_start") if c in result.schema], value=fk.Json())
    check_topics(flow)
    app = fk.testing.run(flow, {"rows": [{column: "a", "v": 1}, {column: "b", "v": 2}]}, crash_at=[2])
    assert {row[column] for row in app.sinks["out"].table.values()} == ({"a"} if what == "join" else {"a", "b"})


@pytest.mark.parametrize("what", UNKEYED)
def test_operators_without_an_id_have_a_valid_one(what: str) -> None:
    flow = fk.Flow("app")
    a, b = (flow.source(name, value=fk.Json({"k": int})) for name in "ab")
    UNKEYED[what](a, b).sink("out", key="k", value=fk.Json())
    check_topics(flow)


def test_columns_that_look_the_same_have_states_of_their_own() -> None:
    flow = fk.Flow("app")
    rows = flow.source("rows", value=fk.Json({"a b": str, "a/b": str, "a_b": str}))
    for i, column in enumerate(["a b", "a/b", "a_b"]):
        rows.group_by(column).agg(n=fk.len()).sink(f"out{i}", key=column, value=fk.Json())
    app = fk.testing.run(flow, {"rows": [{"a b": "x", "a/b": "y", "a_b": "z"}]})
    assert [list(app.sinks[f"out{i}"].table) for i in range(3)] == [["x"], ["y"], ["z"]]


@pytest.mark.parametrize("given", ["a b", "a/b", "größe", "x" * 181, 5])
def test_an_id_that_is_no_name_of_a_topic_is_refused(given: Any) -> None:
    rows = fk.Flow("app").source("rows", value=fk.Json({"k": int}))
    with pytest.raises(DefinitionError, match="is not a valid id") as caught:
        rows.group_by("k", id=given).agg(n=fk.len())
    assert "test_ids.py" in str(caught.value)
    with pytest.raises(DefinitionError, match="is not a valid id"):
        rows.unique(id=given)


@pytest.mark.kafka
@pytest.mark.slow
def test_kafka_takes_the_topics(falkirk_run: Any) -> None:
    flow = fk.Flow("names")
    order = fk.Json({"user id": str, "größe": int})
    shop, web = flow.source("shop", value=order), flow.source("web", value=order)
    both = shop.union(web)
    both.group_by("user id").agg(n=fk.len()).sink("users", key="user id", value=fk.Json())
    shop.key_by("größe").process(lambda row, key: row).sink("sizes", key="größe", value=fk.Json())
    rows = [{"user id": "ann", "größe": 4}, {"user id": "bob", "größe": 5}]
    app = falkirk_run(flow, {"shop": rows, "web": rows[:1]})
    assert app.sinks["users"].table == {"ann": {"user id": "ann", "n": 1}, "bob": {"user id": "bob", "n": 1}}
    assert sorted(app.sinks["sizes"].table) == [4, 5]
