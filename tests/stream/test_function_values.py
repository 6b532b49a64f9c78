"""What a function returns must be of its columns' types: nothing is rounded or converted in silence."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest

import falkirk as fk
from falkirk.errors import UserCodeError
from falkirk.stream.flow.streams import Stream

DAY, NOON = date(2026, 1, 1), datetime(2026, 1, 1, 12, tzinfo=UTC)
USD, ITEM = fk.Decimal(9, 2), fk.Struct({"n": int, "name": str})

WRONG = [
    (fk.Date, NOON),
    (fk.Date, "2026-01-01"),
    (fk.Date, 5),
    (fk.List(fk.Date), [DAY, NOON]),
    (USD, Decimal("1.239")),
    (USD, Decimal("NaN")),
    (USD, Decimal("Infinity")),
    (USD, 0.1 + 0.2),
    (USD, "1.239"),
    (fk.List(USD), [Decimal("1.00"), Decimal("1.239")]),
    (fk.List(int), ""),
    (fk.List(int), b"1"),
    (fk.List(int), {1: 2}),
    (fk.List(int), [1, 1.5]),
    (fk.List(int), [True]),
    (ITEM, {"n": 1.5}),
    (ITEM, {"n": 1, "name": 5}),
    (ITEM, {"n": 1, "names": "a"}),
    (ITEM, (1, "a")),
    (fk.List(ITEM), [{"n": 1.5}]),
]
RIGHT = [
    (fk.Date, DAY, DAY),
    (USD, Decimal("1.2300"), Decimal("1.23")),
    (USD, 1.5, Decimal("1.50")),
    (USD, np.float64(1.5), Decimal("1.50")),
    (USD, np.int64(7), Decimal("7.00")),
    (USD, "1.5", Decimal("1.50")),
    (fk.List(int), (1, None, 3), [1, None, 3]),
    (fk.List(int), np.array([1, 2]), [1, 2]),
    (fk.List(float), np.array([1.5, 2.5], dtype=np.float32), [1.5, 2.5]),
    (fk.List(float), pl.Series([1.5]), [1.5]),
    (fk.List(fk.Date), [DAY, None], [DAY, None]),
    (ITEM, {"n": 1}, {"n": 1, "name": None}),
]


def mapped(stream: Stream, dtype: Any, value: Any) -> Stream:
    return stream.map(lambda row: {"x": value}, returns={"x": dtype})


def kept(stream: Stream, dtype: Any, value: Any) -> Stream:
    """The value goes through the state of a process."""

    def put(row: Any, key: Any) -> Any:
        key.put({"x": value})
        return key.get()

    return stream.key_by("n").process(put, state={"x": dtype}, returns={"x": dtype}, id="kept")


def output(make: Callable[[Stream, Any, Any], Stream], dtype: Any, value: Any) -> list[Any]:
    flow = fk.Flow("values")
    make(flow.source("numbers", value=fk.Json({"n": int})), dtype, value).sink("out", value=fk.Json())
    return [row["x"] for row in fk.testing.run(flow, {"numbers": [{"n": 1}]}).sinks["out"].rows]


@pytest.mark.parametrize(("dtype", "value"), WRONG, ids=repr)
def test_a_value_that_its_column_cannot_hold_is_an_error(dtype: Any, value: Any) -> None:
    with pytest.raises(UserCodeError, match=r"column 'x' is .*, not ") as caught:
        output(mapped, dtype, value)
    assert "topic numbers, partition 0, offset 0" in str(caught.value)


@pytest.mark.parametrize(("dtype", "value", "read"), RIGHT, ids=repr)
def test_a_value_that_its_column_can_hold_is_kept(dtype: Any, value: Any, read: Any) -> None:
    assert output(mapped, dtype, value) == [read]


@pytest.mark.parametrize(("dtype", "value"), [w for w in WRONG if w[0] in (fk.Date, USD)], ids=repr)
def test_so_it_is_in_the_state_of_a_process(dtype: Any, value: Any) -> None:
    with pytest.raises(UserCodeError, match=r"column 'x' is .*, not "):
        output(kept, dtype, value)


def test_a_value_that_does_not_fit_can_become_a_dead_letter() -> None:
    flow = fk.Flow("values", on_error=fk.DeadLetter())
    days = flow.source("numbers", value=fk.Json({"n": int}))
    days.map(lambda row: {"day": NOON if row["n"] == 2 else DAY}, returns={"day": fk.Date}).sink(
        "days", value=fk.Json()
    )
    app = fk.testing.run(flow, {"numbers": [{"n": 1}, {"n": 2}, {"n": 3}]}, step_rows=3)
    assert app.sinks["days"].rows == [{"day": DAY}, {"day": DAY}]
    assert [letter["offset"] for letter in app.dead_letters] == [1]
