"""Every aggregate against DuckDB, after every step, with and without rows that are taken back."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.stream.operators.against import Change, Driven, changes

import falkirk as fk
from falkirk.errors import DefinitionError, UserCodeError

SCHEMA = {"k": fk.Int64, "i": fk.Int64, "f": fk.Float64, "s": fk.String, "b": fk.Boolean}
row = st.tuples(
    st.integers(0, 2),
    st.none() | st.integers(-3, 3) | st.integers(-(2**20), 2**20),
    st.none() | st.sampled_from([-1.5, 0.1, 0.25, 0.3, 1e3]),
    st.none() | st.sampled_from(["", "a", "b", "ü\0"]),
    st.none() | st.booleans(),
)

# DuckDB's var_samp is a running sum of floats: on the border between two rounded results it falls to the other side.
EXACT_VARIANCE = """case when count(i) > 1 then
    (count(i) * sum(i * i) - sum(i) * sum(i))::double / (count(i) * (count(i) - 1)) end"""

CASES: dict[str, tuple[Any, str]] = {
    "n_unique of integers": (fk.n_unique("i"), "count(distinct i) + coalesce(max(case when i is null then 1 end), 0)"),
    "n_unique of text": (fk.n_unique("s"), "count(distinct s) + coalesce(max(case when s is null then 1 end), 0)"),
    "n_unique of floats": (fk.n_unique("f"), "count(distinct f) + coalesce(max(case when f is null then 1 end), 0)"),
    "var of integers": (fk.var("i"), EXACT_VARIANCE),
    "var of floats": (fk.var("f"), "var_samp(f)"),
    "std of integers": (fk.std("i", ddof=0), "stddev_pop(i)"),
    "std of floats": (fk.std("f", ddof=0), "stddev_pop(f)"),
    "any": (fk.any("b"), "coalesce(bool_or(b), false)"),
    "all": (fk.all(fk.col("i") > 0), "coalesce(bool_and(i > 0), true)"),
    "first": (fk.first("i", by="s"), "arg_min_null(i, (s, i is not null, i)) filter (s is not null)"),
    "last": (fk.last("s", by="f"), "arg_max_null(s, (f, s is not null, s)) filter (f is not null)"),
    "last of floats": (fk.last("f", by="i"), "arg_max_null(f, (i, f is not null, f)) filter (i is not null)"),
    "collect": (fk.collect("i"), "list(i order by i nulls first)"),
    "collect by": (fk.collect("s", by="i"), "list(s order by i nulls first, s nulls first)"),
    "min": (fk.min("s"), "min(s)"),
    "max": (fk.max("f"), "max(f)"),
}
"""An aggregate, and the same in DuckDB."""


def rounded(cell: Any) -> Any:
    """DuckDB's variance is rounded on the way."""
    return round(cell, 5) if isinstance(cell, float) else cell


@pytest.mark.parametrize("retract", [True, False])
@pytest.mark.parametrize("name", CASES)
@given(steps=changes(row))
def test_an_aggregate_is_that_of_the_rows_that_are_left(name: str, retract: bool, steps: list[Change]) -> None:
    aggregate, sql = CASES[name]
    driven = Driven(SCHEMA, lambda a: a.group_by("k").agg(x=aggregate), retract=retract)
    for change in steps:
        got = driven.step(change)
        wanted = driven.wanted(f"select k, {sql} from a group by k")
        assert {(k, rounded(x)): n for (k, x), n in got.items()} == {(k, rounded(x)): n for (k, x), n in wanted.items()}


HARD = st.tuples(
    st.just(0), st.none(), st.floats(-1e300, 1e300) | st.sampled_from([1e-308, 5e-324]), st.none(), st.none()
)


@given(kept=st.lists(HARD, min_size=2, max_size=5), steps=changes(HARD))
def test_no_float_that_is_taken_back_leaves_anything_behind(kept: list[Any], steps: list[Change]) -> None:
    def build(a: Any) -> Any:
        return a.group_by("k").agg(var=fk.var("f"), std=fk.std("f"))

    driven, fresh = (Driven(SCHEMA, build, retract=True) for _ in range(2))
    driven.step([(r, 1) for r in kept])
    for change in steps:
        driven.step(change)
    got = driven.step([(r, -n) for r, n in driven.inputs[0].items()] + [(r, 1) for r in kept])
    assert got == fresh.step([(r, 1) for r in kept])


def test_the_variance_of_large_integers_is_exact() -> None:
    driven = Driven(SCHEMA, lambda a: a.group_by("k").agg(x=fk.var("i")), retract=True)
    assert driven.step([((0, 2**63 - 1, None, None, None), 1), ((0, 2**63 - 3, None, None, None), 1)]) == {(0, 2.0): 1}
    assert driven.step([((0, -(2**63), None, None, None), 1), ((0, 2**63 - 1, None, None, None), -1)])


def test_nan_makes_a_variance_nan_until_it_is_taken_back() -> None:
    driven = Driven(SCHEMA, lambda a: a.group_by("k").agg(x=fk.var("f")), retract=True)
    one, two, nan, inf = ((0, None, f, None, None) for f in (1.0, 2.0, float("nan"), float("inf")))
    assert driven.step([(one, 1), (two, 1), (inf, 1)]) == {(0, "nan"): 1}
    assert driven.step([(inf, -1)]) == {(0, 0.5): 1}
    assert driven.step([(nan, 1)]) == {(0, "nan"): 1}


def test_decimals_have_a_variance_an_order_and_different_values() -> None:
    schema = {"k": fk.Int64, "d": fk.Decimal(12, 2)}

    def build(a: Any) -> Any:
        return a.group_by("k").agg(
            v=fk.var("d"), n=fk.n_unique("d"), top=fk.last("d", by="d"), low=fk.first("d", by="d")
        )

    driven = Driven(schema, build, retract=False)
    low, high = Decimal("-1.50"), Decimal("2.50")
    got = driven.step([((0, low), 1), ((0, high), 1), ((0, high), 1), ((0, None), 1)])
    assert got == driven.wanted(
        "select k, var_samp(d), count(distinct d) + 1, arg_max(d, d), arg_min(d, d) from a group by k"
    )


def test_a_list_longer_than_its_limit_stops_the_app_with_the_group() -> None:
    driven = Driven(SCHEMA, lambda a: a.group_by("k").agg(x=fk.collect("i", limit=2)), retract=False)
    with pytest.raises(UserCodeError, match="x comes to 3 values, and its limit is 2"):
        driven.step([((7, i, None, None, None), 1) for i in range(3)])


@pytest.mark.parametrize(
    ("aggregate", "message"),
    [
        (fk.any("i"), "any of 'i', which is Int64, is not defined"),
        (fk.std("s"), "std of 's', which is String, is not defined"),
        (fk.var("i", ddof=-1), "ddof=-1"),
        (fk.collect("i", limit=0), "limit=0"),
        (fk.first("i", by="nope"), "there is no column 'nope'"),
        (fk.n_unique(7), "7 is neither a column nor an expression"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_aggregated_is_named(aggregate: Any, message: str) -> None:
    source = fk.Flow("f").source("a", value=fk.Json(SCHEMA))
    with pytest.raises(DefinitionError, match=message):
        source.group_by("k").agg(x=aggregate)
