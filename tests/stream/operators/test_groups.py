"""Grouped aggregates against Polars, whatever the division, with and without rows being taken back."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import msgspec
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import falkirk as fk
from falkirk.errors import UserCodeError
from falkirk.testing.memory import MemoryApp

SCHEMA = {"k": fk.String, "i": fk.Int64, "f": fk.Float64, "s": fk.String, "b": fk.Boolean, "at": fk.Datetime}
POLARS = pl.Schema({"k": pl.String, "i": pl.Int64, "f": pl.Float64, "s": pl.String, "b": pl.Boolean})

Rng = st.randoms(use_true_random=False)
# Eighths add up exactly in any order: what is tested is the bookkeeping, not the rounding.
floats = st.integers(-1000, 1000).map(lambda n: n / 8)
row = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", "c", "", "ü"]),
        "i": st.none() | st.integers(-(2**40), 2**40),
        "f": st.none() | floats,
        "s": st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3),
        "b": st.none() | st.booleans(),
    }
)


def run(flow: fk.Flow, topic: str, rows: list[dict[str, Any]], rng: random.Random, key: str = "k") -> MemoryApp:
    app = MemoryApp(flow, {topic: 2, "out": 2}, tasks=2)
    for i, r in enumerate(rows):
        app.append(topic, str(r[key]).encode(), msgspec.json.encode(r), timestamp=i)
    app.run(rng)
    return app


def latest(app: MemoryApp) -> list[dict[str, Any]]:
    return sorted((msgspec.json.decode(v) for v in app.latest("out").values()), key=repr)


def frame(rows: list[dict[str, Any]], schema: pl.Schema = POLARS) -> pl.DataFrame:
    return pl.DataFrame(rows, schema)


def close(value: Any) -> Any:
    """Sums of floats are rounded on the way; what is left beyond six digits is no difference."""
    return round(value, 6) + 0.0 if isinstance(value, float) else value


@settings(max_examples=20)
@given(st.lists(row, max_size=30), Rng)
def test_aggregates_over_an_append_only_stream_are_those_of_polars(
    rows: list[dict[str, Any]], rng: random.Random
) -> None:
    flow = fk.Flow("g")
    source = flow.source("in", key="k", value=fk.Json({c: t for c, t in SCHEMA.items() if c != "at"}))
    kept = source.group_by("k").agg(
        n=fk.len(), si=fk.sum("i"), sf=fk.sum("f"), sb=fk.sum("b"), mi=fk.mean("i"), mf=fk.mean("f"), mb=fk.mean("b"),
        lo=fk.min("i"), hi=fk.max("i"), lf=fk.min("f"), hf=fk.max("f"), ls=fk.min("s"), hs=fk.max("s"),
        lb=fk.min("b"), hb=fk.max("b"), twice=fk.sum(fk.col("i") * 2),
    )  # fmt: skip
    kept.sink("out", key="k", value=fk.Json())
    c = pl.col
    wanted = frame(rows).group_by("k").agg(
        n=pl.len(), si=c("i").sum(), sf=c("f").sum(), sb=c("b").sum(), mi=c("i").mean(), mf=c("f").mean(),
        mb=c("b").mean(), lo=c("i").min(), hi=c("i").max(), lf=c("f").min(), hf=c("f").max(), ls=c("s").min(),
        hs=c("s").max(), lb=c("b").min(), hb=c("b").max(), twice=(c("i") * 2).sum(),
    )  # fmt: skip
    got = latest(run(flow, "in", rows, rng))
    for mine, polars in zip(got, sorted(wanted.rows(named=True), key=repr), strict=True):
        assert mine == polars


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.none() | st.integers(-4, 4)), max_size=40), Rng)
def test_aggregates_of_aggregates_take_rows_back(values: list[tuple[int, int, int | None]], rng: random.Random) -> None:
    rows = [{"k": k, "g": g, "x": x} for k, g, x in values]
    flow = fk.Flow("g")
    source = flow.source("in", key="k", value=fk.Json({"k": fk.Int64, "g": fk.Int64, "x": fk.Int64}))
    inner = source.group_by("k").agg(g=fk.max("g"), x=fk.max("x"), y=fk.mean("x"))
    outer = inner.filter(fk.col("g") < 2).group_by("g", id="outer").agg(
        n=fk.len(), sx=fk.sum("x"), sy=fk.sum("y"), my=fk.mean("y"), lo=fk.min("x"), hi=fk.max("x"), lf=fk.min("y"),
        hf=fk.max("y"),
    )  # fmt: skip
    outer.sink("out", key="g", value=fk.Json())
    c = pl.col
    first = frame(rows, pl.Schema({"k": pl.Int64, "g": pl.Int64, "x": pl.Int64}))
    first = first.group_by("k").agg(g=c("g").max(), x=c("x").max(), y=c("x").mean())
    wanted = first.filter(c("g") < 2).group_by("g").agg(
        n=pl.len(), sx=c("x").sum(), sy=c("y").sum(), my=c("y").mean(), lo=c("x").min(), hi=c("x").max(),
        lf=c("y").min(), hf=c("y").max(),
    )  # fmt: skip
    got = latest(run(flow, "in", rows, rng))
    for mine, polars in zip(got, sorted(wanted.rows(named=True), key=repr), strict=True):
        assert {c: close(v) for c, v in mine.items()} == {c: close(v) for c, v in polars.items()}


class Values(fk.Aggregate):
    """All values, sorted, as text."""

    state = {"seen": str}  # noqa: RUF012
    returns = str

    def add(self, state: dict[str, Any] | None, values: list[int | None]) -> dict[str, Any]:
        seen = msgspec.json.decode(state["seen"]) if state else []
        return {"seen": msgspec.json.encode(sorted(seen + values)).decode()}

    def retract(self, state: dict[str, Any] | None, values: list[int | None]) -> dict[str, Any]:
        seen = msgspec.json.decode(state["seen"]) if state else []
        for value in values:
            seen.remove(value)
        return {"seen": msgspec.json.encode(seen).decode()}

    def result(self, state: dict[str, Any]) -> str:
        return ",".join(map(str, msgspec.json.decode(state["seen"])))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), max_size=30), Rng)
def test_a_user_made_aggregate_adds_and_takes_back(values: list[tuple[int, int]], rng: random.Random) -> None:
    flow = fk.Flow("g")
    source = flow.source("in", key="k", value=fk.Json({"k": fk.Int64, "g": fk.Int64}))
    source.group_by("k").agg(g=fk.max("g")).group_by("g", id="outer").agg(ks=Values("k")).sink(
        "out", key="g", value=fk.Json()
    )
    last: dict[int, int] = {}
    for k, g in values:
        last[k] = max(g, last.get(k, g))
    wanted = {g: ",".join(map(str, sorted(k for k, of in last.items() if of == g))) for g in set(last.values())}
    app = run(flow, "in", [{"k": k, "g": g} for k, g in values], rng)
    assert {r["g"]: r["ks"] for r in latest(app)} == wanted


def test_nan_and_infinities_are_as_in_polars_and_can_be_taken_back() -> None:
    flow = fk.Flow("g")
    source = flow.source("in", key="k", value=fk.Json({"k": fk.Int64, "g": fk.Int64, "v": fk.Int64}))
    special = fk.when(fk.col("v") == 1).then(float("nan")).when(fk.col("v") == 2).then(float("inf"))
    inner = source.group_by("k").agg(g=fk.max("g"), v=fk.max("v")).with_columns(f=special.otherwise(fk.col("v") * 0.5))
    inner.group_by("g", id="outer").agg(s=fk.sum("f"), hi=fk.max("f"), n=fk.len()).sink("out", key="g", value=fk.Json())
    app = MemoryApp(flow)

    def put(k: int, g: int, v: int) -> dict[str, Any]:
        app.append("in", str(k).encode(), msgspec.json.encode({"k": k, "g": g, "v": v}))
        app.run()
        return msgspec.json.decode(app.latest("out")[b"0"])

    # JSON writes what is no number as null.
    assert put(1, 0, 6) == {"g": 0, "s": 3.0, "hi": 3.0, "n": 1}
    assert put(2, 0, 1) == {"g": 0, "s": None, "hi": 3.0, "n": 2}
    assert put(3, 0, 2) == {"g": 0, "s": None, "hi": None, "n": 3}
    assert put(2, 5, 1) == {"g": 0, "s": None, "hi": None, "n": 2}
    assert put(3, 5, 2) == {"g": 0, "s": 3.0, "hi": 3.0, "n": 1}


def test_integers_are_summed_beyond_64_bits_and_a_result_beyond_them_stops_the_app() -> None:
    flow = fk.Flow("g")
    source = flow.source("in", key="k", value=fk.Json({"k": fk.Int64, "x": fk.Int64}))
    source.group_by("k", id="sums").agg(s=fk.sum("x"), m=fk.mean("x")).sink("out", key="k", value=fk.Json())
    app = MemoryApp(flow)
    big = 2**63 - 1
    for x in [big, big, -big]:
        app.append("in", b"1", msgspec.json.encode({"k": 1, "x": x}))
    app.run()
    assert latest(app) == [{"k": 1, "s": big, "m": pytest.approx(big / 3)}]
    app.append("in", b"1", b'{"k":1,"x":1}')
    with pytest.raises(fk.FalkirkError, match=f"s comes to {2**63}, beyond Int64") as caught:
        app.run()
    assert "group_by 'sums'" in caught.value.where
    assert "group {'k': 1}, topic in, partition 0, offset 3" in caught.value.where
    assert "Float64" in caught.value.hint


def test_the_greatest_datetime_is_kept() -> None:
    flow = fk.Flow("g")
    source = flow.source("in", key="k", value=fk.Json({"k": fk.Int64}), metadata=["timestamp"])
    source.group_by("k").agg(last=fk.max("timestamp")).sink("out", key="k", value=fk.Json())
    app = MemoryApp(flow)
    for millis in (5, 1700000000000, 7):
        app.append("in", b"1", b'{"k":1}', timestamp=millis)
        app.run()
    assert app.latest("out") == {b"1": b'{"k":1,"last":"2023-11-14T22:13:20.000Z"}'}


def test_a_group_that_is_gone_gives_a_tombstone_and_leaves_no_state() -> None:
    flow = fk.Flow("g")
    source = flow.source("in", key="k", value=fk.Json({"k": fk.Int64, "g": fk.Int64}))
    source.group_by("k").agg(g=fk.max("g")).group_by("g", id="outer").agg(n=fk.len(), hi=fk.max("k")).sink(
        "out", key="g", value=fk.Json()
    )
    app = MemoryApp(flow)
    for g in (1, 2):
        app.append("in", b"7", msgspec.json.encode({"k": 7, "g": g}))
        app.run()
    assert [(r.key(), r.value()) for r in app.records("out")] == [
        (b"1", b'{"g":1,"n":1,"hi":7}'),
        (b"1", None),
        (b"2", b'{"g":2,"n":1,"hi":7}'),
    ]
    assert len(app.states["outer", 0].data) == 2  # one group, one value


def test_a_row_that_stays_as_it_was_is_not_written_again() -> None:
    flow = fk.Flow("g")
    source = flow.source("in", key="k", value=fk.Json({"k": fk.Int64, "x": fk.Int64}))
    source.group_by("k").agg(hi=fk.max("x")).sink("out", key="k", value=fk.Json())
    app = MemoryApp(flow)
    for x in (3, 2, 5):
        app.append("in", b"1", msgspec.json.encode({"k": 1, "x": x}))
        app.run()
    assert [r.value() for r in app.records("out")] == [b'{"k":1,"hi":3}', b'{"k":1,"hi":5}']


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 9)), max_size=20), Rng)
def test_grouping_by_more_than_the_key_needs_no_exchange(rows: list[tuple[int, int, int]], rng: random.Random) -> None:
    flow = fk.Flow("g")
    source = flow.source("in", key="k", value=fk.Json({"k": fk.Int64, "g": fk.Int64, "x": fk.Int64}))
    source.group_by("k", "g").agg(n=fk.len()).sink("out", key=["k", "g"], value=fk.Json())
    assert len(flow.plan().stages) == 1
    app = run(flow, "in", [{"k": k, "g": g, "x": x} for k, g, x in rows], rng)
    counts = {(k, g): sum(r[:2] == (k, g) for r in rows) for k, g, _ in rows}
    assert {(r["k"], r["g"]): r["n"] for r in latest(app)} == counts


@pytest.mark.parametrize(
    ("aggregate", "message", "where"),
    [
        (fk.len(), "a row of {'n': 11} is retracted", "group_by 'again'"),
        (fk.max("k"), "a row of {'n': 11, 'most.best': 1} is retracted", "most of group_by 'again'"),
    ],
)
def test_a_row_that_is_taken_back_but_never_came_stops_the_app(aggregate: Any, message: str, where: str) -> None:
    shift = 0
    flow = fk.Flow("g")
    source = flow.source("in", key="k", value=fk.Json({"k": fk.Int64}))
    shifted = source.group_by("k").agg(n=fk.len()).map(lambda row: {**row, "n": row["n"] + shift})
    shifted.group_by("n", id="again").agg(most=aggregate).sink("out", key="n", value=fk.Json())
    app = MemoryApp(flow)
    app.append("in", b"1", b'{"k":1}')
    app.run()
    shift = 10
    app.append("in", b"1", b'{"k":1}')
    with pytest.raises(UserCodeError) as caught:
        app.run()
    assert message in caught.value.what
    assert caught.value.where.startswith(where)


CENTS = st.integers(1 - 10**12, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-2))


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.none() | CENTS), max_size=20), Rng)
def test_decimals_are_aggregated_to_the_last_digit(rows: list[tuple[str, Decimal | None]], rng: random.Random) -> None:
    flow = fk.Flow("g")
    prices = flow.source("prices", key="k", value=fk.Json({"k": fk.String, "price": fk.Decimal(12, 2)}))
    by_key = prices.group_by("k", id="k").agg(total=fk.sum("price"), low=fk.min("price"), mean=fk.mean("price"))
    by_key.sink("out", key="k", value=fk.Json())
    app = run(flow, "prices", [{"k": k, "price": None if p is None else str(p)} for k, p in rows], rng)
    assert len(app.latest("out")) == len({k for k, _ in rows})
    for value in latest(app):
        known = [p for k, p in rows if k == value["k"] and p is not None]
        assert Decimal(value["total"]) == sum(known)
        assert (None if value["low"] is None else Decimal(value["low"])) == min(known, default=None)
        assert value["mean"] == pytest.approx(float(sum(known)) / len(known) if known else None)


def test_the_best_decimal_may_be_taken_back() -> None:
    flow = fk.Flow("g")
    prices = flow.source(
        "prices", key="k", value=fk.Json({"k": fk.String, "shop": fk.String, "price": fk.Decimal(12, 2)})
    )
    last = prices.group_by("k", "shop", id="last").agg(price=fk.max("price"))
    last.group_by("shop", id="best").agg(best=fk.min("price"), total=fk.sum("price")).sink(
        "out", key="shop", value=fk.Json()
    )
    rows = [("a", "1.50"), ("b", "2.25"), ("a", "3.00")]
    app = run(flow, "prices", [{"k": k, "shop": "x", "price": price} for k, price in rows], random.Random(1))
    assert latest(app) == [{"shop": "x", "best": "2.25", "total": "5.25"}]


def test_a_column_of_nothing_but_nulls_is_a_key() -> None:
    flow = fk.Flow("f")
    rows = flow.source("rows", value=fk.Json({"v": int})).with_columns(kind=fk.lit(None))
    counted = rows.group_by("kind").agg(total=fk.sum("v"))
    counted.agg(n=fk.sum("total")).sink("out", value=fk.Json())
    assert fk.testing.run(flow, {"rows": [{"v": 1}, {"v": 2}]}).sinks["out"].rows[-1] == {"n": 3}
