from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, NotRequired, TypedDict

import narwhals as nw
import polars as pl
import pytest

from falkirk.errors import DefinitionError
from falkirk.stream.formats import schema_of
from falkirk.stream.formats.types import Datetime, Float64, Int64, List, String, Struct

MOMENT = pl.Datetime("ms", "UTC")


@dataclass
class Seller:
    name: str
    rating: float | None


@dataclass
class Bid:
    auction: int
    open: bool
    at: datetime
    day: date
    raw: bytes
    tags: list[str]
    seller: Seller
    others: list[Seller]


class Flight(TypedDict):
    carrier: str
    delay: NotRequired[int | None]


def test_a_dict_of_types_is_a_schema() -> None:
    given = {"a": Int64, "b": List(String), "c": Struct({"d": Float64}), "at": Datetime, "own": {"e": int}}
    assert schema_of(given) == pl.Schema(
        {
            "a": pl.Int64,
            "b": pl.List(pl.String),
            "c": pl.Struct({"d": pl.Float64}),
            "at": MOMENT,
            "own": pl.Struct({"e": pl.Int64}),
        }
    )


def test_a_dataclass_is_a_schema_within_others_too() -> None:
    seller = pl.Struct({"name": pl.String, "rating": pl.Float64})
    assert schema_of(Bid) == pl.Schema(
        {
            "auction": pl.Int64,
            "open": pl.Boolean,
            "at": MOMENT,
            "day": pl.Date,
            "raw": pl.Binary,
            "tags": pl.List(pl.String),
            "seller": seller,
            "others": pl.List(seller),
        }
    )


def test_a_typed_dict_is_a_schema() -> None:
    assert schema_of(Flight) == pl.Schema({"carrier": pl.String, "delay": pl.Int64})


@pytest.mark.parametrize("same", [int, Int64, Int64(), pl.Int64, pl.Int64(), int | None])
def test_a_type_has_many_names(same: Any) -> None:
    assert schema_of({"a": same}) == pl.Schema({"a": pl.Int64})


def test_lists_and_structs_may_name_python_s_types() -> None:
    described = {"a": List(int), "b": Struct({"c": int, "d": list[str]}), "e": List(Struct({"f": float}))}
    inner = pl.Struct({"c": pl.Int64, "d": pl.List(pl.String)})
    told = {"a": pl.List(pl.Int64), "b": inner, "e": pl.List(pl.Struct({"f": pl.Float64}))}
    assert schema_of(described) == pl.Schema(told)


def test_a_schema_is_its_own_description() -> None:
    assert schema_of(schema_of(Bid)) == schema_of(Bid)


@pytest.mark.parametrize(
    "wrong",
    [
        object,
        "Int64",
        5,
        None,
        [int],
        list,
        list[object],
        int | str,
        dict[str, int],
        nw.Datetime,
        nw.Datetime("ns", "UTC"),
        nw.List,
        nw.List(nw.Object),
        nw.Array(nw.Int64, 2),
        nw.Decimal,
        pl.Datetime,
        pl.List,
        pl.Duration,
        pl.Struct({"a": pl.Time}),
        {"a": object},
    ],
)
def test_what_is_no_type_is_refused_with_the_field(wrong: Any) -> None:
    with pytest.raises(DefinitionError, match="is not a type of a column") as caught:
        schema_of({"ok": int, "bad": wrong})
    assert caught.value.where.startswith("field 'bad")
    assert caught.value.hint


@pytest.mark.parametrize("wrong", [int, "Bid", None, [("a", int)], Bid(1, True, None, None, b"", [], None, [])])  # type: ignore[arg-type]
def test_what_describes_no_columns_is_refused(wrong: Any) -> None:
    with pytest.raises(DefinitionError, match="does not describe columns"):
        schema_of(wrong)


def test_a_schema_needs_columns_with_names() -> None:
    with pytest.raises(DefinitionError, match="without columns"):
        schema_of({})
    with pytest.raises(DefinitionError, match="without columns") as caught:
        schema_of({"a": {}})
    assert "'a'" in caught.value.where
    with pytest.raises(DefinitionError, match="is a string, not 5"):
        schema_of({5: int})  # type: ignore[dict-item]


def test_a_type_that_cannot_be_found_is_named() -> None:
    class Local: ...

    @dataclass
    class Uses:
        field: Local

    with pytest.raises(DefinitionError, match="a type of Uses is not known: name 'Local'"):
        schema_of(Uses)
