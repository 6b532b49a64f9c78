"""Avro: what it writes it reads again, and it writes as fastavro does."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, ClassVar

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.stream.formats.avro_schemas import (
    EXAMPLES,
    PLAIN,
    Typed,
    as_columns,
    datum,
    decimals,
    oracle,
    record,
    schemas,
)
from tests.stream.formats.known import Known

import falkirk as fk
from falkirk.errors import DefinitionError
from falkirk.stream.formats.avro import Avro
from falkirk.testing.memory import MemoryApp


@EXAMPLES
@given(st.data())
def test_reads_what_it_writes(data: st.DataObject) -> None:
    schema, rows = data.draw(schemas())
    form = Avro(schema)
    frame = pl.DataFrame([as_columns(row) for row in data.draw(st.lists(rows, max_size=4))], schema=form.schema)
    values = form.encode(frame)
    assert form.decode(values).frame.equals(frame)
    assert values == form.encode(frame)


@st.composite
def flat_schemas(draw: st.DrawFn) -> Typed:
    precision = draw(st.integers(1, 18))
    logical = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 1}
    kinds = st.sampled_from([*PLAIN, (logical, decimals(precision, 1))])
    fields, rows = {}, {}
    for i, (kind, values) in enumerate(draw(st.lists(kinds, min_size=1, max_size=6))):
        form = draw(st.integers(0, 2))
        fields[f"f{i}"] = [kind, ["null", kind], [kind, "null"]][form]
        rows[f"f{i}"] = values if form == 0 else st.none() | values
    return record(**fields), st.fixed_dictionaries(rows)


@EXAMPLES
@given(st.data())
def test_writes_scalars_byte_by_byte_as_fastavro_does(data: st.DataObject) -> None:
    schema, rows = data.draw(flat_schemas())
    given_rows = data.draw(st.lists(rows, max_size=5))
    form = Avro(schema)
    frame = pl.DataFrame(given_rows, schema=form.schema)
    assert form._writer._flat
    assert form.encode(frame) == [datum(schema, row) for row in given_rows]


def test_a_symbol_that_the_schema_does_not_have_is_not_written() -> None:
    schema = record(x={"type": "enum", "name": "E", "symbols": ["A"]})
    with pytest.raises(DefinitionError, match="a row does not fit the Avro schema"):
        Avro(schema).encode(pl.DataFrame({"x": ["B"]}))


@pytest.mark.parametrize(
    "kind", [{"type": "map", "values": "long"}, {"type": "array", "items": {"type": "map", "values": "long"}}]
)
def test_a_map_that_has_a_key_twice_is_not_written(kind: Any) -> None:
    """One of its values would be lost."""
    pairs = [{"key": "a", "value": 1}, {"key": "a", "value": 2}]
    with pytest.raises(DefinitionError, match="a map has each key once"):
        Avro(record(x=kind)).encode(pl.DataFrame({"x": [pairs if kind["type"] == "map" else [pairs]]}))


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("bytes", "\u00ff"),
        (["bytes", "null"], "\u00ff"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "\u0001"),
        (
            {"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 4, "scale": 2},
            "\u0000\u0001",
        ),
        ({"type": "array", "items": "bytes"}, ["\u00ff"]),
        ({"type": "map", "values": "long"}, {"a": 1}),
        (record("Q", z="bytes"), {"z": "\u00ff"}),
        (["int", "string"], 5),
    ],
)
def test_a_field_without_a_column_is_written_as_its_default(kind: Any, default: Any) -> None:
    schema = record(n="long")
    schema["fields"].append({"name": "x", "type": kind, "default": default})
    found = Avro(schema).decode(Avro(schema).encode(pl.DataFrame({"n": [7, 7]})))
    assert Avro(schema).encode(pl.DataFrame({"n": []}, schema={"n": pl.Int64})) == []
    absent = Avro(schema, registry=Known({5: json.dumps(record(n="long"))})).decode([b"\0\0\0\0\5\x0e"])
    assert found.bad == absent.bad == []
    assert found.frame.rows() == 2 * absent.frame.rows()


@pytest.mark.parametrize("beside", ["long", {"type": "array", "items": "long"}])
def test_times_that_python_does_not_have_are_written_in_each_way(beside: Any) -> None:
    moment = {"type": "long", "logicalType": "timestamp-millis"}
    schema = record(
        day={"type": "int", "logicalType": "date"}, at=["null", moment], days=record("D", at=moment), beside=beside
    )
    frame = pl.DataFrame({"day": [-800_000], "at": [253_402_300_800_000], "beside": [1 if beside == "long" else [1]]})
    frame = frame.with_columns(pl.col("day").cast(pl.Int32).cast(pl.Date), pl.col("at").cast(pl.Datetime("ms", "UTC")))
    (value,) = Avro(schema).encode(frame.with_columns(days=pl.struct("at")))
    numbers = json.loads(json.dumps(schema).replace("logicalType", "was"))
    found = oracle(value, numbers, numbers)
    assert (found["day"], found["at"], found["days"]["at"]) == (-800_000, 253_402_300_800_000, 253_402_300_800_000)


def test_columns_are_written_as_nullable_fields() -> None:
    frame = pl.DataFrame(
        {
            "a": pl.Series([1, None], dtype=pl.UInt16),
            "b": [[{"c": "x"}, None], None],
            "d": pl.Series([Decimal("1.50"), None], dtype=pl.Decimal(9, 2)),
            "t": pl.Series([datetime(2026, 1, 31, 12, tzinfo=UTC), None], dtype=pl.Datetime("ms", "UTC")),
        }
    )
    form = Avro(registry=Numbered()).for_sink("my-topic", frame.schema)
    values = form.encode(frame)
    assert {value[:5] for value in values} == {b"\0\0\0\0\x07"}
    (text,) = Numbered.told
    schema = json.loads(text)
    assert schema["name"] == "my_topic"
    read = Avro(schema)
    assert read.decode([value[5:] for value in values]).frame.equals(frame.cast({"a": pl.Int32}))


class Numbered(Known):
    told: ClassVar[list[str]] = []

    def __init__(self) -> None:
        super().__init__({})

    def register(self, subject: str, schema: str, kind: str) -> int:
        assert subject == "my-topic-value"
        self.told.append(schema)
        return 7


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (pl.DataFrame({"x": [1]}), "no column for the Avro schema's field 'y', which has no default"),
        (pl.DataFrame({"x": [1], "y": ["a"], "z": [1]}), "column 'z' is not in the Avro schema"),
        (pl.DataFrame({"x": [1.5], "y": ["a"]}), "column 'x' is Float64, and the Avro schema's field Int32"),
        (pl.DataFrame({"x": [1 << 40], "y": ["a"]}), "a value does not fit the Avro schema"),
        (pl.DataFrame({"x": [1], "y": [None]}), "column 'y' is null, and the Avro schema allows no null there"),
    ],
)
def test_what_does_not_fit_is_not_written(frame: pl.DataFrame, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        Avro(record(x="int", y="string")).encode(frame)


@pytest.mark.parametrize(("given", "logical"), [("us", "millis"), ("ns", "millis"), ("ns", "micros")])
def test_digits_of_a_moment_are_not_cut_off(given: Any, logical: str) -> None:
    form = Avro(record(t={"type": "long", "logicalType": f"timestamp-{logical}"}))
    with pytest.raises(DefinitionError, match=r"column 't' is .*, and the Avro schema's field Datetime"):
        form.encode(pl.DataFrame({"t": [1]}).cast(pl.Datetime(given, "UTC")))


def test_a_group_that_is_gone_needs_no_row() -> None:
    """Its row is nulls, and the schema allows none."""
    flow = fk.Flow("gone")
    bids = flow.source("bids", key="id", value=fk.Avro(record(id="long", n="long")))
    late = bids.group_by("id", id="sums").agg(n=fk.sum("n")).filter(fk.col("n") > 0)
    late.sink("sums", key="id", value=fk.Avro(record(id="long", n="long")))
    app = MemoryApp(flow)
    for n in (5, -5):
        app.append("bids", b"1", datum(record(id="long", n="long"), {"id": 1, "n": n}))
        app.run()
    assert [r.value() for r in app.records("sums")] == [datum(record(id="long", n="long"), {"id": 1, "n": 5}), None]
