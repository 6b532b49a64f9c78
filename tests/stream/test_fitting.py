"""Frames and rows that are sent: a value is the column's, or it is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

import falkirk as fk
from falkirk.errors import ConfigError
from falkirk.stream.definition.fitting import Unfit, frame_of_frame
from falkirk.stream.formats.types import schema_of

MOMENT = datetime(2025, 6, 1, 12, tzinfo=UTC)
KEPT: list[tuple[pl.Series, Any, Any]] = [
    (pl.Series([7, None]), fk.Int8, [7, None]),
    (pl.Series([7]), fk.Float64, [7.0]),
    (pl.Series([2**64 - 1], dtype=pl.Decimal(20, 0)), fk.UInt64, [2**64 - 1]),
    (pl.Series([Decimal("1.250")]), fk.Decimal(6, 2), [Decimal("1.25")]),
    (pl.Series([0.1]), fk.Float32, [pl.Series([0.1], dtype=pl.Float32).item()]),
    (pl.Series([float("inf"), float("nan")]), fk.Float32, [float("inf"), pytest.approx(float("nan"), nan_ok=True)]),
    (pl.Series([MOMENT]), fk.Datetime, [MOMENT]),
    (pl.Series([MOMENT]).dt.convert_time_zone("Europe/Oslo"), fk.Datetime, [MOMENT]),
    (pl.Series([5]), fk.Datetime, [datetime(1970, 1, 1, 0, 0, 0, 5000, tzinfo=UTC)]),
    (pl.Series([None]), fk.Datetime, [None]),
    (pl.Series(["a"], dtype=pl.Categorical), fk.String, ["a"]),
    (pl.Series([{"l": [1]}]), fk.Struct({"l": fk.List(fk.Int8)}), [{"l": [1]}]),
]
REFUSED: list[tuple[pl.Series, Any, str]] = [
    (pl.Series([1.0]), fk.Int64, "column 'v' is Float64, not Int64"),
    (pl.Series(["1"]), fk.Int64, "column 'v' is String, not Int64"),
    (pl.Series([1]), fk.String, "column 'v' is Int64, not String"),
    (pl.Series([2]), fk.Boolean, "column 'v' is Int64, not Boolean"),
    (pl.Series([1.25]), fk.Decimal(6, 1), "column 'v' is Float64, not Decimal"),
    (pl.Series([date(2025, 6, 1)]), fk.Datetime, "column 'v' is Date, not Datetime"),
    (pl.Series([MOMENT]), fk.Date, "column 'v' is DatetimeMicros, not Date"),
    (pl.Series([Decimal("1.00"), Decimal("1.25")]), fk.Int64, "row 2, column 'v': 1.25 is not Int64"),
    (pl.Series([Decimal("1.25")]), fk.Decimal(6, 1), "row 1, column 'v': 1.25 is not Decimal"),
    (pl.Series([1e300]), fk.Float32, r"row 1, column 'v': 1e\+300 is not Float32"),
    (pl.Series([2**53 + 1]), fk.Float64, "row 1, column 'v': 9007199254740993 is not Float64"),
    (pl.Series([MOMENT.replace(microsecond=1)]), fk.Datetime, "row 1, column 'v': .* is not Datetime"),
    (pl.Series([[1.5]]), fk.List(fk.Int64), r"column 'v' is List\(Float64\), not List\(Int64\)"),
    (pl.Series([{"a": 1.5}]), fk.Struct({"a": fk.Int64}), "column 'v' is Struct"),
    (pl.Series([{"a": 1, "b": 2}]), fk.Struct({"a": fk.Int64}), "column 'v' is Struct"),
]


@pytest.mark.parametrize(("given", "kind", "values"), KEPT)
def test_a_frame_keeps_what_its_columns_types_can_hold(given: pl.Series, kind: Any, values: list[Any]) -> None:
    made = frame_of_frame(pl.DataFrame({"v": given}), schema_of({"v": kind, "other": int}))
    assert made.schema == schema_of({"v": kind, "other": int})
    assert made["v"].to_list() == values
    assert made["other"].null_count() == len(values)


@pytest.mark.parametrize(("given", "kind", "why"), REFUSED)
def test_a_frame_that_a_cast_would_change_is_refused(given: pl.Series, kind: Any, why: str) -> None:
    with pytest.raises(Unfit, match=why):
        frame_of_frame(pl.DataFrame({"v": given}), schema_of({"v": kind}))


@pytest.mark.parametrize("key", [1.5, True, 2**63])
def test_a_key_that_its_column_cannot_have_is_refused(key: Any) -> None:
    flow = fk.Flow("f")
    flow.source("in", key="k", value=fk.Json({"k": fk.Int64})).sink("out", key="k", value=fk.Json())
    with pytest.raises(ConfigError, match=r"column 'k': .* is not Int64"):
        fk.testing.run(flow, {"in": [fk.testing.Record(key=key, value={"k": 1})]})
