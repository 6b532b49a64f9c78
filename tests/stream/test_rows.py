"""Operators without state, against Python over the same rows, whatever the division."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import falkirk as fk
from falkirk.testing.memory import MemoryApp

Rng = st.randoms(use_true_random=False)
rows_of = st.lists(st.fixed_dictionaries({"a": st.integers(0, 9), "s": st.none() | st.sampled_from(["x", "y"])}))


def through(operators: Any, rows: list[dict[str, Any]], rng: random.Random) -> list[dict[str, Any]]:
    """What comes out of a sink after `operators(stream)`."""
    flow = fk.Flow("rows")
    operators(flow.source("in", value=fk.Json({"a": fk.Int64, "s": fk.String}))).sink("out", value=fk.Json())
    app = MemoryApp(flow)
    for i, row in enumerate(rows):
        app.append("in", None, msgspec.json.encode(row), timestamp=i)
    app.run(rng)
    return [msgspec.json.decode(r.value() or b"") for r in app.records("out")]


@given(rows_of, Rng)
def test_filter_keeps_rows_for_which_all_predicates_are_true(rows: list[dict[str, Any]], rng: random.Random) -> None:
    got = through(lambda s: s.filter(fk.col("a") > 3, fk.col("s") == "x"), rows, rng)
    assert got == [r for r in rows if r["a"] > 3 and r["s"] == "x"]


@given(rows_of, Rng)
def test_select_gives_these_columns_only(rows: list[dict[str, Any]], rng: random.Random) -> None:
    got = through(lambda s: s.select("s", b=fk.col("a") * 2), rows, rng)
    assert got == [{"s": r["s"], "b": r["a"] * 2} for r in rows]


@given(rows_of, Rng)
def test_with_columns_adds_and_replaces(rows: list[dict[str, Any]], rng: random.Random) -> None:
    got = through(lambda s: s.with_columns(fk.col("a") + 1, one=1), rows, rng)
    assert got == [{"a": r["a"] + 1, "s": r["s"], "one": 1} for r in rows]


@given(rows_of, Rng)
def test_map_calls_a_function_for_each_row(rows: list[dict[str, Any]], rng: random.Random) -> None:
    got = through(lambda s: s.map(lambda r: {"t": str(r["a"])}, returns={"t": fk.String}), rows, rng)
    assert got == [{"t": str(r["a"])} for r in rows]


@given(rows_of, Rng)
def test_a_function_may_change_the_dict_that_it_gave_for_its_next_row(
    rows: list[dict[str, Any]], rng: random.Random
) -> None:
    last: dict[str, Any] = {}

    def mapped(row: dict[str, Any]) -> dict[str, Any]:
        last.update(row, s="y")
        return last

    def several(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for s in ("x", "y"):
            row["s"] = s
            yield row

    both = [{"a": row["a"], "s": s} for row in rows for s in ("x", "y")]
    assert through(lambda s: s.map(mapped), rows, rng) == both[1::2]
    assert through(lambda s: s.flat_map(several), rows, rng) == both
    processed = through(lambda s: s.key_by("a").process(lambda row, key: several(row), id="process"), rows, rng)
    assert processed == both
    assert through(lambda s: s.key_by("a").process(lambda row, key: mapped(row), id="process"), rows, rng) == both[1::2]


@given(rows_of, Rng)
def test_flat_map_gives_any_number_of_rows(rows: list[dict[str, Any]], rng: random.Random) -> None:
    def several(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for _ in range(row["a"] % 3):
            yield row

    assert through(lambda s: s.flat_map(several), rows, rng) == [r for r in rows for _ in range(r["a"] % 3)]


@given(rows_of, Rng)
def test_map_batches_sees_polars_frames(rows: list[dict[str, Any]], rng: random.Random) -> None:
    got = through(lambda s: s.map_batches(lambda f: f.filter(pl.col("a") % 2 == 0)), rows, rng)
    assert got == [r for r in rows if r["a"] % 2 == 0]


@given(rows_of, Rng)
def test_concat_has_the_rows_of_all_its_streams(rows: list[dict[str, Any]], rng: random.Random) -> None:
    got = through(lambda s: s.filter(fk.col("a") > 4).concat(s.filter(fk.col("a") > 7)), rows, rng)
    wanted = [r for r in rows for least in (4, 7) if r["a"] > least]
    assert sorted(map(msgspec.json.encode, got)) == sorted(msgspec.json.encode(dict(sorted(r.items()))) for r in wanted)


@given(rows_of, Rng)
def test_branch_sends_each_row_to_the_first_that_takes_it(rows: list[dict[str, Any]], rng: random.Random) -> None:
    flow = fk.Flow("rows")
    stream = flow.source("in", value=fk.Json({"a": fk.Int64, "s": fk.String}))
    x, big = stream.branch(fk.col("s") == "x", fk.col("a") > 4)
    x.sink("x", value=fk.Json())
    big.sink("big", value=fk.Json())
    app = MemoryApp(flow)
    for row in rows:
        app.append("in", None, msgspec.json.encode(row))
    app.run(rng)
    got = {name: [msgspec.json.decode(r.value() or b"") for r in app.records(name)] for name in ("x", "big")}
    assert got == {
        "x": [r for r in rows if r["s"] == "x"],
        "big": [r for r in rows if r["s"] != "x" and r["a"] > 4],
    }


def test_functions_over_a_changing_table_take_back_what_they_gave() -> None:
    flow = fk.Flow("rows")
    stream = flow.source("in", key="a", value=fk.Json({"a": fk.Int64, "x": fk.Int64}))
    table = stream.group_by("a").agg(hi=fk.max("x"))
    shaped = (
        table.map(lambda r: {**r, "hi": r["hi"] * 10})
        .flat_map(lambda r: [r] if r["hi"] < 50 else [])
        .map_batches(lambda f: f.with_columns(pl.col("hi") + 1))
    )
    shaped.sink("out", key="a", value=fk.Json())
    app = MemoryApp(flow)
    for x in (3, 4, 9):
        app.append("in", b"1", msgspec.json.encode({"a": 1, "x": x}))
        app.run()
    assert [r.value() for r in app.records("out")] == [b'{"a":1,"hi":31}', b'{"a":1,"hi":41}', None]


def test_metadata_becomes_columns() -> None:
    flow = fk.Flow("rows")
    stream = flow.source(
        "in", value=fk.Json({"a": fk.Int64}), metadata={"k": "key", "p": "partition", "o": "offset", "t": "timestamp"}
    )
    stream.with_columns(fk.col("k").cast(fk.String)).sink("out", value=fk.Json())
    app = MemoryApp(flow, {"in": 2})
    app.append("in", b"key", b'{"a":1}', partition=1, timestamp=1500)
    app.run()
    assert [r.value() for r in app.records("out")] == [b'{"a":1,"k":"key","p":1,"o":0,"t":"1970-01-01T00:00:01.500Z"}']


def test_rows_keep_their_timestamps_and_those_without_a_key_go_round_the_partitions() -> None:
    flow = fk.Flow("rows")
    flow.source("in", value=fk.Json({"a": fk.Int64})).sink("out", value=fk.Json())
    app = MemoryApp(flow, {"out": 3})
    for i in range(6):
        app.append("in", None, b'{"a":1}', timestamp=100 + i)
    app.run()
    assert [len(part) for part in app.topics["out"]] == [2, 2, 2]
    assert sorted(r.millis for r in app.records("out")) == [100, 101, 102, 103, 104, 105]


def fails(operators: Any, rows: list[dict[str, Any]]) -> fk.FalkirkError:
    with pytest.raises(fk.FalkirkError) as caught:
        through(operators, rows, random.Random(1))
    assert type(caught.value).__name__ == "UserCodeError"
    return caught.value


def picky(row: dict[str, Any]) -> dict[str, Any]:
    if row["a"] == 3:
        raise RuntimeError("not three")
    return row


def picky_batch(frame: pl.DataFrame) -> pl.DataFrame:
    if (frame["a"] == 3).any():
        raise RuntimeError("not three")
    return frame


@pytest.mark.parametrize(
    "operators",
    [
        lambda s: s.map(picky),
        lambda s: s.filter(fk.col("a") > 0).flat_map(lambda r: [picky(r)]),
        lambda s: s.map_batches(picky_batch),
    ],
    ids=["map", "flat_map", "map_batches"],
)
def test_a_function_that_raises_stops_the_app_with_the_address_of_the_record(operators: Any) -> None:
    error = fails(operators, [{"a": a, "s": None} for a in range(6)])
    assert "raised RuntimeError: not three" in error.what
    assert "topic in, partition 0, offset 3" in error.where
    assert isinstance(error.__cause__, RuntimeError)


@pytest.mark.parametrize(
    "operators",
    [
        lambda s: s.select("a", n=fk.col("s").cast(fk.Int64)),
        lambda s: s.with_columns(n=fk.col("s").cast(fk.Int64)),
        lambda s: s.filter(fk.col("s").cast(fk.Int64) > 1),
        lambda s: s.group_by("a", id="g").agg(n=fk.sum(fk.col("s").cast(fk.Int64))).select("a", "n"),
    ],
)
def test_an_expression_that_fails_on_a_value_stops_the_app_with_the_address_of_the_record(operators: Any) -> None:
    flow = fk.Flow("rows")
    stream = flow.source("in", key="a", value=fk.Json({"a": fk.Int64, "s": fk.String}))
    operators(stream).sink("out", key="a", value=fk.Json())
    app = MemoryApp(flow)
    for i, s in enumerate(["1", "2", "x", "4"]):
        app.append("in", str(i).encode(), msgspec.json.encode({"a": i, "s": s}))
    with pytest.raises(fk.FalkirkError) as caught:
        app.run()
    assert type(caught.value).__name__ == "UserCodeError"
    assert "topic in, partition 0, offset 2" in caught.value.where


@pytest.mark.parametrize(
    ("operators", "says"),
    [
        (lambda s: s.map(lambda r: {"a": "no" if r["a"] == 3 else 1}, returns={"a": fk.Int64}), "'no'"),
        (lambda s: s.map(lambda r: r if r["a"] != 3 else {"b": 1}), "{'b': 1}"),
        (lambda s: s.map(lambda r: r if r["a"] != 3 else None), "None"),
        (lambda s: s.flat_map(lambda r: [r] if r["a"] != 3 else [1]), "gave 1"),
        (lambda s: s.flat_map(lambda r: [r] if r["a"] != 3 else 7), "not iterable"),
        (lambda s: s.flat_map(lambda r: [r] if r["a"] != 3 else r), "not one dict"),
    ],
)
def test_a_function_that_gives_another_shape_stops_the_app_with_the_address(operators: Any, says: str) -> None:
    error = fails(operators, [{"a": a, "s": None} for a in range(6)])
    assert says in error.what
    assert "topic in, partition 0, offset 3" in error.where


def test_a_batch_function_that_gives_other_columns_stops_the_app() -> None:
    error = fails(lambda s: s.map_batches(lambda f: f.drop("s")), [{"a": 1, "s": None}])
    assert "a frame of a Int64, not a Polars frame of a Int64, s String" in error.what
    error = fails(lambda s: s.map_batches(lambda f: None), [{"a": 1, "s": None}])
    assert "NoneType" in error.what


@pytest.mark.parametrize("step_rows", [1, 2, 100])
@pytest.mark.parametrize(
    "function",
    [
        lambda f: f.filter(pl.col("v") > 1),
        lambda f: pl.concat([f, f]),
        lambda f: f.sort("v", descending=True),
        lambda f: f.with_columns(v=pl.concat_list("v", 7)).explode("v"),
    ],
    ids=["fewer rows", "more rows", "another order", "other rows"],
)
def test_map_batches_of_rows_that_come_several_times_gives_theirs_as_often(function: Any, step_rows: int) -> None:
    flow = fk.Flow("weights")
    rows = flow.source("rows", value=fk.Json({"v": int, "weight": int}), changes="weights")
    counts = rows.map_batches(function).group_by("v").agg(n=fk.len())
    counts.sink("counts", key="v", value=fk.Json())
    weights = [(1, 3), (2, 1), (3, 5), (2, 2), (1, -2), (3, -5), (4, 1)]
    app = fk.testing.run(flow, {"rows": [{"v": v, "weight": w} for v, w in weights]}, step_rows=step_rows)
    left = pl.DataFrame({"v": [1, 2, 2, 2, 4]})
    wanted = function(left).group_by("v").len().sort("v").rows()
    assert sorted((row["v"], row["n"]) for row in app.sinks["counts"].table.values()) == wanted
