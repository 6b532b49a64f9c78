from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import falkirk as fk
from falkirk.errors import DefinitionError
from falkirk.stream.formats import Json
from falkirk.stream.formats.types import (
    Binary,
    Boolean,
    Date,
    Datetime,
    DatetimeMicros,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    List,
    String,
    Struct,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
)


def read(kind: Any, text: str) -> Any:
    """What a field of one type becomes; the reason, when it is bad."""
    decoded = Json({"x": kind}).decode([b'{"x":' + text.encode() + b"}"])
    return decoded.bad[0][1] if decoded.bad else decoded.frame["x"].to_list()[0]


def noon(**more: int) -> datetime:
    return datetime(2026, 1, 31, 12, tzinfo=UTC) + timedelta(**more)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (Int64, "9223372036854775807", 2**63 - 1),
        (Int64, "-9223372036854775808", -(2**63)),
        (UInt64, "18446744073709551615", 2**64 - 1),
        (Int8, "-128", -128),
        (UInt16, "65535", 65535),
        (Float64, "1", 1.0),
        (Float64, "1e308", 1e308),
        (Float32, "0.5", 0.5),
        (Boolean, "true", True),
        (String, '"a\\n\\u00e9\\ud83d\\ude00"', "a\né😀"),
        (String, "17", "17"),
        (String, "1.50", "1.5"),
        (String, "true", "true"),
        (String, '"{}"', "{}"),
        (String, '"[1]"', "[1]"),
        (Datetime, '"2026-01-31T12:00:00Z"', noon()),
        (Datetime, '"2026-01-31T12:00:00.123456789Z"', noon(milliseconds=123)),
        (Datetime, '"2026-01-31T14:30:00+02:30"', noon()),
        (Datetime, '"2026-01-31T10:00:00.5-0200"', noon(milliseconds=500)),
        (Datetime, '"2026-01-31T12:00:00"', noon()),
        (Datetime, '"2026-01-31 12:00:00.25"', noon(milliseconds=250)),
        (Datetime, '"2026-01-31"', noon(hours=-12)),
        (Datetime, '"2026-01-31T12:00"', noon()),
        (Datetime, '"2026-01-31T12:00Z"', noon()),
        (Datetime, '"2026-01-31 14:30+02:30"', noon()),
        (Datetime, '"2026-01-31T10:00-02"', noon()),
        (Datetime, '"2026-01-31 12:00:00.5+00"', noon(milliseconds=500)),
        (Datetime, str(int(noon().timestamp() * 1000)), noon()),
        (Datetime, "-1", datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
        (DatetimeMicros, '"2026-01-31T12:00:00.123456789Z"', noon(milliseconds=123, microseconds=456)),
        (DatetimeMicros, "-1", datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
        (fk.Decimal(9, 2), '"-1234567.89"', Decimal("-1234567.89")),
        (fk.Decimal(9, 2), '"1.500"', Decimal("1.50")),
        (fk.Decimal(9, 2), "12.5", Decimal("12.50")),
        (fk.Decimal(2, 2), '"0.99"', Decimal("0.99")),
        (
            fk.Decimal(38, 10),
            '"-9999999999999999999999999999.9999999999"',
            Decimal("-9999999999999999999999999999.9999999999"),
        ),
        (fk.Decimal(38, 0), "123456789012345678", Decimal(123456789012345678)),
        (Date, '"2026-01-31"', date(2026, 1, 31)),
        (Binary, '"aGk="', b"hi"),
        (Binary, '"1234"', b"\xd7m\xf8"),
        (List(Int32), "[1,null]", [1, None]),
        (List(Datetime), '["2026-01-31", null]', [noon(hours=-12), None]),
        (Struct({"a": Int64, "b": String}), '{"b":"x"}', {"a": None, "b": "x"}),
        (List(Struct({"a": Binary})), '[{"a":"aGk="},null,{}]', [{"a": b"hi"}, None, {"a": None}]),
        (Int64, "null", None),
        (List(Int64), "null", None),
        (Struct({"a": Date}), "null", None),
    ],
)
def test_a_value_is_read_as_its_type(kind: Any, text: str, expected: object) -> None:
    assert read(kind, text) == expected


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (Int64, "1.5", "field 'x': cannot read 1.5 as Int64"),
        (Int64, "1.0", "field 'x': cannot read 1.0 as Int64"),
        (Int64, '"1"', "field 'x': cannot read '1' as Int64"),
        (Int64, "true", "field 'x': cannot read true as Int64"),
        (Int64, "[1]", "field 'x': cannot read a list as Int64"),
        (Int64, "9223372036854775808", "field 'x': cannot read 9223372036854775808 as Int64"),
        (Int8, "128", "field 'x': cannot read 128 as Int8"),
        (UInt8, "-1", "field 'x': cannot read -1 as UInt8"),
        (UInt32, "4294967296", "field 'x': cannot read 4294967296 as UInt32"),
        (Float32, "1e39", "field 'x': cannot read 1e+39 as Float32"),
        (Float64, '"NaN"', "field 'x': cannot read 'NaN' as Float64"),
        (Boolean, "1", "field 'x': cannot read 1 as Boolean"),
        (String, '{"a":1}', "field 'x': cannot read an object as String"),
        (String, "[]", "field 'x': cannot read a list as String"),
        (Datetime, '"noon"', "field 'x': cannot read 'noon' as Datetime"),
        (Datetime, '"2026-02-30T00:00:00Z"', "field 'x': cannot read '2026-02-30T00:00:00Z' as Datetime"),
        (Datetime, '"2026-01-31T24:00Z"', "field 'x': cannot read '2026-01-31T24:00Z' as Datetime"),
        (Datetime, '"2026-01-31T12Z"', "field 'x': cannot read '2026-01-31T12Z' as Datetime"),
        (Datetime, '"2026-01-31+02"', "field 'x': cannot read '2026-01-31+02' as Datetime"),
        (Datetime, '"2026-01-31T24:00:00Z"', "field 'x': cannot read '2026-01-31T24:00:00Z' as Datetime"),
        (Datetime, "999999999999999", "field 'x': cannot read '999999999999999' as Datetime"),
        (Datetime, "true", "field 'x': cannot read true as Datetime"),
        (Date, '"2026-1-31"', "field 'x': cannot read '2026-1-31' as Date"),
        (Date, '"0000-01-01"', "field 'x': cannot read '0000-01-01' as Date"),
        (Date, "20260131", "field 'x': cannot read 20260131 as Date"),
        (fk.Decimal(4, 2), '"100"', "field 'x': cannot read '100' as Decimal(4, 2)"),
        (fk.Decimal(4, 2), '"1.005"', "field 'x': cannot read '1.005' as Decimal(4, 2)"),
        (fk.Decimal(4, 2), '""', "field 'x': cannot read '' as Decimal(4, 2)"),
        (fk.Decimal(4, 2), '"."', "field 'x': cannot read '.' as Decimal(4, 2)"),
        (fk.Decimal(4, 2), "true", "field 'x': cannot read true as Decimal(4, 2)"),
        (fk.Decimal(38, 20), "0.1234567890123456", "field 'x': cannot read 0.1234567890123456 as Decimal(38, 20)"),
        (DatetimeMicros, "true", "field 'x': cannot read true as DatetimeMicros"),
        (Binary, '"a"', "field 'x': cannot read 'a' as Binary"),
        (Binary, "1234", "field 'x': cannot read 1234 as Binary"),
        (List(Int8), "[1,300]", "field 'x[1]': cannot read 300 as Int8"),
        (List(Int8), "5", "field 'x': cannot read 5 as List(Int8)"),
        (List(Date), '["2026-01-31","soon"]', "field 'x[1]': cannot read 'soon' as Date"),
        (Struct({"a": Int64}), '{"a":"b"}', "field 'x.a': cannot read 'b' as Int64"),
        (List(Struct({"a": String})), '[{"a":{}}]', "field 'x[0].a': cannot read an object as String"),
        (Int64, "", "not JSON: Expecting value at character 5"),
        (Int64, '"' + "y" * 100 + '"', "field 'x': cannot read '" + "y" * 59 + "…' as Int64"),
        (Int64, '"a\\nb\\u202e"', "field 'x': cannot read 'a\\nb\\u202e' as Int64"),
    ],
)
def test_what_is_not_of_the_type_is_bad_for_a_reason(kind: Any, text: str, reason: str) -> None:
    assert read(kind, text) == reason


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "null value"),
        (b"", "empty"),
        (b" \r\n", "empty"),
        (b"17", "not a JSON object: 17"),
        (b"null", "not a JSON object: null"),
        (
            b'\x00\x00\x00\x00\x07{"x":1}',
            "a schema's id is before the object: JSON of a schema registry is not supported",
        ),
        (b"\x00\x01avro", "not a JSON object: \\x00\\x01avro"),
        (b"\xff", "not a JSON object: \\xff"),
        (b'{"x":1', "not JSON: Expecting ',' delimiter at character 6"),
        (b'{"x":NaN}', "not JSON: NaN is not JSON"),
        (b'{"s":"\xff"}', "not JSON: invalid UTF-8 at byte 6"),
        (b'{"x":1}{"x":2}', "not JSON: Extra data at character 7"),
        (b'{"x":1}\n{"x":2}', "not JSON: Extra data at character 8"),
        (b'{"s":"a\nb"}', "not JSON: Invalid control character at character 7"),
        (b'{"x":' + b"[" * 1000 + b"]" * 1000 + b"}", "field 'x': cannot read a list as Int64"),
    ],
)
def test_a_value_that_is_no_object_is_bad_for_a_reason(value: bytes | None, reason: str) -> None:
    assert Json({"x": int}).decode([value]).bad == [(0, reason)]


def test_half_a_surrogate_pair_is_bad_rather_than_another_character() -> None:
    decoded = Json({"x": str}).decode([b'{"x":"\\ud800"}', b'{"x":"\\ud83d\\ude00"}', b'{"x":"\\uD800"}'])
    assert decoded.frame["x"].to_list() == ["😀"]
    assert [i for i, _ in decoded.bad] == [0, 2]


def test_an_object_on_several_lines_is_one_record() -> None:
    assert Json({"x": int}).decode([b'{\n  "x": 1\n}\n', b'{"x":2}']).frame["x"].to_list() == [1, 2]


def test_a_list_under_a_string_is_bad_however_deep() -> None:
    deep = b'{"x":' + b"[" * 1000 + b"]" * 1000 + b"}"
    assert Json({"x": str}).decode([deep]).bad == [(0, "field 'x': cannot read a list as String")]


def test_missing_fields_are_null_and_unknown_ones_passed_over() -> None:
    frame = Json({"a": int, "b": str}).decode([b'{"c":{"d":[1]},"b":"x"}', b"{}"]).frame
    assert frame.rows() == [(None, "x"), (None, None)]


def test_of_two_fields_with_one_name_the_first_counts() -> None:
    assert Json({"a": int}).decode([b'{"a":1,"a":2}']).frame.rows() == [(1,)]


def test_an_empty_batch_has_the_schema() -> None:
    schema = {"a": int, "at": datetime, "l": list[bytes]}
    decoded = Json(schema).decode([])
    assert decoded.frame.height == 0
    assert decoded.frame.schema == Json(schema).schema
    assert Json().encode(decoded.frame) == []


def test_a_projection_reads_and_checks_its_columns_alone() -> None:
    whole = Json({"a": int, "b": str, "c": float})
    values = [b'{"a":1,"b":"x","c":0.5}', b'{"a":2,"b":"y","c":"bad"}']
    assert whole.decode(values).frame.height == 1
    assert whole.project(["b", "a"]).decode(values).frame.rows() == [(1, "x"), (2, "y")]
    assert whole.project([]).decode(values).frame.height == 2
    with pytest.raises(DefinitionError, match="no column 'z'"):
        whole.project(["z"])


def test_a_format_without_a_schema_cannot_decode() -> None:
    with pytest.raises(DefinitionError, match="without a schema"):
        Json().decode([b"{}"])


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="strict"):
        Json({"a": int}, strict=True)  # type: ignore[call-arg]


def test_encoding_writes_each_type_as_documented() -> None:
    at = noon(milliseconds=1)
    frame = pl.DataFrame(
        {
            "i": [2**63 - 1],
            "f": [1.0],
            "nan": [math.nan],
            "inf": [-math.inf],
            "s": ['a"\n\\é😀'],
            "none": [None],
            "ms": pl.Series([at]).dt.cast_time_unit("ms"),
            "us": pl.Series([at]),
            "paris": pl.Series([at]).dt.cast_time_unit("ms").dt.convert_time_zone("Europe/Paris"),
            "naive": pl.Series([at.replace(tzinfo=None)], dtype=pl.Datetime("ms")),
            "day": [at.date()],
            "time": [time(1, 2, 3)],
            "took": [timedelta(seconds=5)],
            "bytes": [b"hi"],
            "dec": [Decimal("1.50")],
            "l": [[b"hi", None]],
            "st": [{"at": at, "n": 1}],
            "arr": pl.Series([[1, 2]], dtype=pl.Array(pl.Int64, 2)),
            "cat": pl.Series(["x"], dtype=pl.Categorical),
        }
    )
    assert [json.loads(value) for value in Json().encode(frame)] == [
        {
            "i": 2**63 - 1,
            "f": 1.0,
            "nan": None,
            "inf": None,
            "s": 'a"\n\\é😀',
            "none": None,
            "ms": "2026-01-31T12:00:00.001Z",
            "us": "2026-01-31T12:00:00.001000Z",
            "paris": "2026-01-31T12:00:00.001Z",
            "naive": "2026-01-31T12:00:00.001",
            "day": "2026-01-31",
            "time": "01:02:03",
            "took": "PT5S",
            "bytes": "aGk=",
            "dec": "1.50",
            "l": ["aGk=", None],
            "st": {"at": "2026-01-31T12:00:00.001000Z", "n": 1},
            "arr": [1, 2],
            "cat": "x",
        }
    ]


def test_a_frame_without_columns_is_empty_objects() -> None:
    assert Json().encode(pl.DataFrame({"a": [1, 2]}).drop("a")) == [b"{}", b"{}"]


def test_a_schema_orders_and_widens_what_is_encoded() -> None:
    frame = pl.DataFrame({"b": pl.Series([1], dtype=pl.UInt32), "a": [None]})
    assert Json({"a": str, "b": int}).encode(frame) == [b'{"a":null,"b":1}']


def test_a_moment_of_another_unit_or_zone_is_encoded_as_the_schema_has_it() -> None:
    frame = pl.DataFrame({"at": pl.Series([noon(microseconds=1999)]).dt.convert_time_zone("Europe/Paris")})
    assert Json({"at": Datetime}).encode(frame) == [b'{"at":"2026-01-31T12:00:00.001Z"}']
    with pytest.raises(DefinitionError, match="column 'at' is Datetime"):
        Json({"at": Datetime}).encode(frame.select(pl.col("at").dt.replace_time_zone(None)))


def test_a_format_shows_its_schema() -> None:
    assert repr(Json()) == "Json()"
    assert repr(Json({"a": int, "l": list[datetime]})) == "Json({'a': Int64, 'l': List(Datetime)})"


@pytest.mark.parametrize(
    ("frame", "what"),
    [
        (pl.DataFrame({"b": [1]}), "columns b are not those of"),
        (pl.DataFrame({"a": [1], "b": [1]}), "columns a, b are not those of"),
        (pl.DataFrame({"a": ["1"]}), "column 'a' is String, not Int8"),
        (pl.DataFrame({"a": [1.5]}), "column 'a' is Float64, not Int8"),
        (pl.DataFrame({"a": [300]}), "a number does not fit"),
    ],
)
def test_encoding_what_is_not_the_schema_is_refused(frame: pl.DataFrame, what: str) -> None:
    with pytest.raises(DefinitionError, match=what):
        Json({"a": Int8}).encode(frame)


def test_python_objects_cannot_be_encoded() -> None:
    with pytest.raises(DefinitionError, match="column 'o' holds Python objects"):
        Json().encode(pl.DataFrame({"o": pl.Series([object()], dtype=pl.Object)}))


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECONDS = st.integers(-62_135_596_800_000, 253_402_300_799_999).map(lambda ms: EPOCH + timedelta(milliseconds=ms))
SCALARS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (Int8, st.integers(-(2**7), 2**7 - 1)),
    (Int16, st.integers(-(2**15), 2**15 - 1)),
    (Int64, st.integers(-(2**63), 2**63 - 1)),
    (UInt64, st.integers(0, 2**64 - 1)),
    (Float64, st.floats(allow_nan=False, allow_infinity=False)),
    (Float32, st.floats(allow_nan=False, allow_infinity=False, width=32)),
    (String, st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(["{}", "[1]", '{"a":[', "17"])),
    (Boolean, st.booleans()),
    (Binary, st.binary()),
    (Date, st.dates()),
    (Datetime, MILLISECONDS),
]


@st.composite
def frames(draw: st.DrawFn) -> pl.DataFrame:
    columns: dict[str, Any] = {}
    values: dict[str, Any] = {}
    height = draw(st.integers(0, 4))
    for i in range(draw(st.integers(1, 4))):
        kind, strategy = draw(st.sampled_from(SCALARS))
        shape = draw(st.sampled_from(["scalar", "list", "struct", "list of struct"]))
        strategy = st.none() | strategy
        if "struct" in shape:
            kind, strategy = Struct({"y": kind}), st.none() | st.fixed_dictionaries({"y": strategy})
        if "list" in shape:
            kind, strategy = List(kind), st.none() | st.lists(strategy, max_size=3)
        name = draw(st.sampled_from(["a", 'q"', "é.", " "])) + str(i)
        columns[name], values[name] = kind, draw(st.lists(strategy, min_size=height, max_size=height))
    schema = Json(columns).schema
    assert schema is not None
    return pl.DataFrame(values, schema=schema)


@settings(deadline=None, max_examples=120)
@given(frames())
def test_decoding_what_was_encoded_gives_the_frame(frame: pl.DataFrame) -> None:
    schema = dict(frame.schema)
    written = Json().encode(frame)
    decoded = Json(schema).decode(written)
    assert decoded.bad == []
    assert decoded.frame.equals(frame)
    assert Json(schema).encode(decoded.frame) == written
    assert [list(json.loads(value)) for value in written] == [frame.columns] * frame.height
