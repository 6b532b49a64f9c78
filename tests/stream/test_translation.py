"""What an expression gives for a row does not depend on the rows beside it."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import narwhals as nw
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falkirk.stream.definition.translation import native

FRAME = pl.DataFrame(
    {
        "i": [1, 3, None, -(2**53) - 1],
        "f": [3.0, 0.1, None, float("inf")],
        "g": pl.Series([3.0, 0.1, None, float("nan")], dtype=pl.Float32),
        "d": pl.Series([Decimal("3.00"), Decimal("0.10"), None, Decimal("7.77")], dtype=pl.Decimal(12, 2)),
        "t": [timedelta(seconds=3), timedelta(days=1), None, timedelta(microseconds=7)],
        "b": [True, False, None, True],
    }
)
X, F = nw.col("f"), nw.col("f", "i")


def same_for_each_row(expr: Any) -> pl.DataFrame:
    """What `expr` gives for all rows at once, which is what it gives for each alone."""
    translated = native([expr], FRAME.schema)
    together = FRAME.select(translated)
    alone = pl.concat([FRAME.slice(i, 1).select(translated) for i in range(FRAME.height)])
    assert together.equals(alone)
    return together


@pytest.mark.parametrize(
    "expr",
    [X / 10, X / nw.lit(10), X / (nw.lit(2) * 5), (X + 1) / 3 / 7, F / 10, X / nw.col("i"), 10 / X, X // 0.1, X % 0.1,
     -X / 3, X**0.1, (X / 10).round(3), 1 / (X / 10)],
    ids=str,
)  # fmt: skip
def test_a_row_has_the_same_result_alone_and_among_others(expr: Any) -> None:
    same_for_each_row(expr)


ALWAYS = nw.col("i").is_null() | ~nw.col("i").is_null()
SAME = nw.when(ALWAYS).then(2).otherwise(3)
NEVER = nw.when(nw.col("i") == 99).then(2)


@pytest.mark.parametrize(
    "expr",
    [nw.when(nw.lit(value=True)).then(2).otherwise(NEVER), nw.when(nw.lit(3) < nw.lit(2)).then(NEVER), nw.lit(2) == SAME,
     nw.when(nw.lit(value=False)).then(NEVER).otherwise(2), nw.coalesce(nw.lit(2), NEVER), nw.lit(1) < SAME,
     nw.lit(1) <= SAME, nw.lit(1) > SAME, nw.lit(1) >= SAME, nw.lit(0.5) != SAME.cast(nw.Float64),
     nw.lit(0.5) == nw.coalesce(nw.lit(2), nw.col("i"))],
)  # fmt: skip
def test_each_row_has_a_result_where_all_have_the_same(expr: Any) -> None:
    same_for_each_row(expr)
    assert FRAME.with_columns(native([expr.alias("x")], FRAME.schema)).height == FRAME.height


def test_a_constant_on_the_left_is_compared_as_it_is_written() -> None:
    exprs = [nw.lit(2) < nw.col("i"), nw.lit(3) >= nw.col("i"), nw.lit(3) == nw.col("i"), nw.lit(3) != nw.col("i")]
    frame = FRAME.select(native([e.alias(str(n)) for n, e in enumerate(exprs)], FRAME.schema))
    assert frame.row(1) == (True, True, True, False)
    assert frame.row(0) == (False, True, False, True)


@given(by=st.integers(-(10**6), 10**6) | st.floats(allow_nan=False), column=st.sampled_from(FRAME.columns))
def test_a_quotient_is_that_of_python_and_has_the_type_that_polars_gives_it(by: float, column: str) -> None:
    got = same_for_each_row(nw.col(column) / by).to_series()
    assert got.dtype == FRAME.select(pl.col(column) / by).to_series().dtype
    if column == "f" and by:
        quotients = [None if x is None else x / by for x in FRAME["f"]]
        assert list(map(repr, got)) == list(map(repr, quotients))  # ∞ / ∞ is nan, which is not equal to itself
