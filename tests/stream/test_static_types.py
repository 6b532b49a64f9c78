"""Type checkers know the rows of a stream: what the examples of a user's program say is checked by mypy.

A row is what the function really gets: a dict, which a TypedDict describes by column, and a dataclass does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import pytest
from tests.typed import check

import falkirk as fk

BEGIN = """
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

import polars as pl

import falkirk as fk


class Order(TypedDict):
    id: int
    total: float


class Parcel(TypedDict):
    id: int
    city: str


@dataclass
class Payment:
    id: int


flow = fk.Flow("shop")
registry = fk.Registry("http://registry")
orders = flow.source("orders", value=fk.Json(Order))
plain = flow.source("plain", value=fk.Json({"id": int, "total": float}))


def raised(row: Order) -> Order:
    return {**row, "total": row["total"] + 1}


def packed(row: Order) -> Parcel:
    return {"id": row["id"], "city": "Falkirk"}


def sent(row: Parcel) -> Parcel:
    return row


def any_columns(row: dict[str, Any]) -> dict[str, Any]:
    return row
"""

PROGRAMS = {
    "a TypedDict is the type of rows, in every format that takes one": """
assert_type(orders, fk.Stream[Order])
assert_type(flow.source("a", value=fk.Avro(Order, registry=registry)), fk.Stream[Order])
assert_type(flow.source("p", value=fk.Protobuf(Order, registry=registry)), fk.Stream[Order])
""",
    "other rows are dicts by column": """
assert_type(plain, fk.Stream[dict[str, Any]])
assert_type(flow.source("payments", value=fk.Json(Payment)), fk.Stream[dict[str, Any]])
assert_type(flow.source("lines", value=fk.Text("line")), fk.Stream[dict[str, Any]])
assert_type(flow.source("counts", value=fk.Int64BE("n")), fk.Stream[dict[str, Any]])
assert_type(flow.source("avro", value=fk.Avro("order.avsc")), fk.Stream[dict[str, Any]])
assert_type(flow.source("protobuf", value=fk.Protobuf("order.proto")), fk.Stream[dict[str, Any]])
assert_type(flow.source("more", value=fk.Json(Order), metadata=["offset"]), fk.Stream[dict[str, Any]])
""",
    "what describes no columns is refused": """
fk.Json(int)  # E: type-var
fk.Json("id")  # E: call-overload
plain.map(any_columns, returns=int)  # E: type-var
""",
    "a function of map takes the stream's rows": """
assert_type(orders.map(raised), fk.Stream[Order])
assert_type(plain.map(any_columns), fk.Stream[dict[str, Any]])
orders.map(sent)  # E: arg-type
plain.map(raised)  # E: arg-type
orders.map(lambda row: {**row, "total": row["totl"]})  # E: typeddict-item
""",
    "a function of map gives rows of the stream, or of what it says that it returns": """
assert_type(orders.map(packed, returns=Parcel), fk.Stream[Parcel])
assert_type(orders.map(packed, returns=Parcel).map(sent), fk.Stream[Parcel])
assert_type(plain.map(lambda row: {"id": row["id"], "city": ""}, returns=Parcel), fk.Stream[Parcel])
assert_type(orders.map(packed, returns={"id": int, "city": str}), fk.Stream[dict[str, Any]])
assert_type(orders.map(lambda row: {"id": row["id"]}, returns=Payment), fk.Stream[dict[str, Any]])
orders.map(packed)  # E: arg-type
orders.map(raised, returns=Parcel)  # E: arg-type
orders.map(packed, returns=Parcel).map(raised)  # E: arg-type
""",
    "flat_map likewise": """
def halves(row: Order) -> Iterator[Order]:
    yield row
    yield row

def parcels(row: Order) -> list[Parcel]:
    return [packed(row)]

assert_type(orders.flat_map(halves), fk.Stream[Order])
assert_type(orders.flat_map(parcels, returns=Parcel), fk.Stream[Parcel])
assert_type(orders.flat_map(lambda row: [{"n": row["id"]}], returns={"n": int}), fk.Stream[dict[str, Any]])
orders.flat_map(parcels)  # E: arg-type
orders.flat_map(raised)  # E: arg-type
""",
    "a function of map_batches is one of frames": """
def frame(rows: pl.DataFrame) -> pl.DataFrame:
    return rows

assert_type(orders.map_batches(frame), fk.Stream[Order])
assert_type(orders.map_batches(frame, returns=Parcel), fk.Stream[Parcel])
assert_type(orders.map_batches(frame, returns={"n": int}), fk.Stream[dict[str, Any]])
orders.map_batches(raised)  # E: arg-type
""",
    "operators that keep the columns keep the type of rows, and others do not": """
assert_type(orders.filter(fk.col("total") > 1), fk.Stream[Order])
assert_type(orders.branch(fk.col("total") > 1), tuple[fk.Stream[Order], ...])
assert_type(orders.concat(plain), fk.Stream[Order])
assert_type(orders.repartition("id"), fk.Stream[Order])
assert_type(orders.with_regime(fk.LazyCheckpoint()), fk.Stream[Order])
assert_type(orders.select("id"), fk.Stream[dict[str, Any]])
assert_type(orders.with_columns(n=1), fk.Stream[dict[str, Any]])
assert_type(orders.lookup(flow.table("t", key="id", value=fk.Json(Parcel))), fk.Stream[dict[str, Any]])
assert_type(orders.group_by("id").agg(n=fk.len()), fk.Stream[dict[str, Any]])
assert_type(orders.errors, fk.Stream[dict[str, Any]])
""",
    "an aggregate names a parameter for each of its columns": """
class Range(fk.Aggregate):
    state = {"low": int, "high": int}
    returns = int

    def add(self, state: dict[str, Any] | None, values: list[int]) -> dict[str, Any]:
        return {"low": min(values), "high": max(values)}

    def retract(self, state: dict[str, Any] | None, values: list[int], weights: list[int]) -> dict[str, Any]:
        return {"low": 0, "high": 0}

    def result(self, state: dict[str, Any]) -> int:
        return int(state["high"] - state["low"])

plain.group_by("id").agg(range=Range("total"))
""",
    "a function of enrich takes the stream's rows, and is async": """
async def scored(row: Order) -> dict[str, Any]:
    return {"score": row["total"]}

class Scores:
    async def __call__(self, row: Order) -> dict[str, Any]:
        return {"score": row["total"]}

def late(row: Order) -> dict[str, Any]:
    return {"score": row["total"]}

assert_type(orders.enrich(scored, returns={"score": float}), fk.Stream[dict[str, Any]])
orders.enrich(Scores(), returns={"score": float})
orders.enrich(Scores, returns={"score": float})
orders.map(packed, returns=Parcel).enrich(scored, returns={"score": float})  # E: arg-type
orders.enrich(late, returns={"score": float})  # E: arg-type
""",
    "a process takes the stream's rows": """
class Ordered(fk.Process[Order]):
    state = Parcel
    tables = {"seen": Payment, "more": {"n": int}}

    def on_row(self, row: Order, key: fk.KeyContext) -> Iterator[Parcel]:
        yield packed(row)

class Sent(fk.Process[Parcel]):
    def on_row(self, row: Parcel, key: fk.KeyContext) -> Parcel:
        return row

class Unchecked(fk.Process):
    def on_row(self, row: Parcel, key: fk.KeyContext) -> Parcel:
        return row

class Wrong(fk.Process[Order]):
    def on_row(self, row: Parcel, key: fk.KeyContext) -> Parcel:  # E: override
        return row

def function(row: Order, key: fk.KeyContext) -> Order:
    return row

keyed = orders.key_by("id")
assert_type(keyed.process(Ordered(), returns=Parcel), fk.Stream[Parcel])
assert_type(keyed.process(Ordered()), fk.Stream[dict[str, Any]])
assert_type(keyed.process(function, returns=Order), fk.Stream[Order])
keyed.process(Unchecked())
keyed.process(Sent())  # E: arg-type
keyed.process(lambda row, key: {"id": row["idd"]}, returns={"id": int})  # E: typeddict-item
plain.key_by("id").process(function)  # E: arg-type
""",
    "a stream without a parameter is of any rows": """
def either(stream: fk.Stream) -> fk.Stream:
    return stream.map(raised).map(sent)

def only(stream: fk.Stream[Order]) -> None: ...

def read(stream: fk.Stream[Mapping[str, Any]]) -> None: ...

either(orders)
either(plain)
only(orders)
only(plain)  # E: arg-type
read(orders)
read(plain)
""",
    "aggregates can be put together before they are used": """
kept = {"n": fk.len(), "usd": fk.sum("total")}
orders.group_by("id").agg(**kept)
orders.group_by("id").agg(n=1)  # E: arg-type
""",
    "sinks and keys take any format": """
orders.sink("a", value=fk.Json(Order), key="id")
orders.sink("b", value=fk.Json(), key=fk.Key("id", fk.Json))
orders.sink("c", value=fk.Text("id"), key=fk.Key("id", fk.Int64BE))
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("claim", PROGRAMS)
def test_mypy_says_so(claim: str, tmp_path: Path) -> None:
    check(BEGIN + PROGRAMS[claim], tmp_path)


class OrderDict(TypedDict):
    id: int


@dataclass
class OrderClass:
    id: int


@pytest.mark.parametrize("schema", [{"id": int}, OrderDict, OrderClass])
def test_a_function_gets_a_dict_whatever_describes_the_columns(schema: Any) -> None:
    seen: list[Any] = []

    def noted(row: Any) -> Any:
        seen.append(row)
        return row

    flow = fk.Flow("noted")
    orders = flow.source("orders", key="id", value=fk.Json(schema)).map(noted, returns=schema)
    orders.key_by("id").process(lambda row, key: noted(row), id="noted").sink("copies", value=fk.Json())
    fk.testing.run(flow, {"orders": [{"id": 7}]})
    assert seen == [{"id": 7}, {"id": 7}]
    assert {type(row) for row in seen} == {dict}
