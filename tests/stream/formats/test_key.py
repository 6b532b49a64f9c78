from __future__ import annotations

import json
import math
import struct
from datetime import UTC, date, datetime
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falkirk.errors import DefinitionError
from falkirk.stream.formats import Float64BE, Int32BE, Int64BE, Json, Key, Text, key_of

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
MOMENT = pl.Datetime("ms", "UTC")


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (17, pl.Int64(), b"17"),
        (-1, pl.Int8(), b"-1"),
        (2**64 - 1, pl.UInt64(), b"18446744073709551615"),
        ("é\n", pl.String(), "é\n".encode()),
        ("", pl.String(), b""),
        (True, pl.Boolean(), b"true"),
        (0.1, pl.Float64(), b"0.1"),
        (1e300, pl.Float64(), b"1e+300"),
        (3.0, pl.Float64(), b"3.0"),
        (-0.0, pl.Float64(), b"0.0"),
        (math.nan, pl.Float64(), b"NaN"),
        (-math.inf, pl.Float64(), b"-Infinity"),
        (b"\x00\xff", pl.Binary(), b"\x00\xff"),
        (NOON.date(), pl.Date(), b"2026-01-31"),
        (NOON, MOMENT, b"2026-01-31T12:00:00.000Z"),
        (NOON, pl.Datetime("us", "Asia/Tokyo"), b"2026-01-31T12:00:00.000000Z"),
        (NOON.replace(tzinfo=None), pl.Datetime("ms"), b"2026-01-31T12:00:00.000"),
        (NOON.replace(tzinfo=None), pl.Datetime("ns"), b"2026-01-31T12:00:00.000000000"),
    ],
)
def test_a_key_of_one_column_is_its_text(value: Any, dtype: pl.DataType, expected: bytes) -> None:
    frame = pl.DataFrame({"k": [value, None]}, schema={"k": dtype})
    assert Key("k").encode(frame) == [expected, None]
    decoded = Key("k").decode([expected, None], {"k": dtype, "other": pl.Int64()})
    assert decoded.bad == []
    assert decoded.frame.equals(frame)


def test_a_key_in_a_zone_is_the_same_moment_on_both_sides_of_a_change_of_its_clock() -> None:
    twice = [datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1)]  # both are 2:30 in Paris
    frame = pl.DataFrame({"k": twice}, schema={"k": pl.Datetime("ms", "Europe/Paris")})
    assert Key("k").decode(Key("k").encode(frame), frame.schema).frame.equals(frame)


def test_a_key_of_columns_is_a_json_array() -> None:
    frame = pl.DataFrame(
        {
            "a": [17, None],
            "b": ['x"', None],
            "f": [0.5, math.nan],
            "at": pl.Series([NOON, None], dtype=MOMENT),
            "z": [1, 2],
        }
    )
    keys = Key(["b", "a", "f", "at"]).encode(frame)
    assert keys == [b'["x\\"",17,0.5,"2026-01-31T12:00:00.000Z"]', b'[null,null,"NaN",null]']
    assert [json.loads(key or b"") for key in keys] == [
        ['x"', 17, 0.5, "2026-01-31T12:00:00.000Z"],
        [None, None, "NaN", None],
    ]
    assert Key(["a"]).encode(frame) == [b"[17]", b"[null]"]


def test_a_key_may_have_a_format() -> None:
    frame = pl.DataFrame({"id": [1, None]})
    for key in (Key("id", Int64BE), Key("id", Int64BE())):
        assert key.encode(frame) == [struct.pack(">q", 1), None]
        assert key.decode([struct.pack(">q", 1), None], {"id": pl.Int64()}).frame.equals(frame)
    assert Key("id", Int32BE).decode([b"\0\0\0\1", b"1"], {"id": pl.Int64()}).bad == [
        (1, "key is not Int64 as Int32BE: 1")
    ]
    assert Key("id", Text).columns == ("id",)


def test_equal_floats_have_the_same_bytes_in_each_format() -> None:
    nans = pl.Series([0x7FF8 << 48, 0xFFF8 << 48], dtype=pl.UInt64).to_numpy().view("f8")
    for spec in (Key("x"), Key(["x"]), Key("x", Json), Key("x", Float64BE)):
        assert len(set(spec.encode(pl.DataFrame({"x": [0.0, -0.0]})))) == 1
        assert len(set(spec.encode(pl.DataFrame({"x": nans})))) == 1
    assert Key("x", Float64BE).decode([struct.pack(">d", -0.0)], {"x": pl.Float64()}).bad != []


@pytest.mark.parametrize("wrong", [b"", b"017", b"+1", b" 1", b"1.0", b"x", b"9223372036854775808", b"\xff", b"null"])
def test_a_key_is_read_only_if_it_is_as_written(wrong: bytes) -> None:
    decoded = Key("k").decode([b"1", wrong, b"2"], {"k": pl.Int64()})
    assert decoded.frame["k"].to_list() == [1, 2]
    assert [i for i, _ in decoded.bad] == [1]
    assert decoded.bad[0][1].startswith("key is not Int64 as text: ")


@pytest.mark.parametrize(
    "wrong",
    [b"", b"[]", b"[1]", b'[1,"a",2]', b'[1, "a"]', b'{"a":1}', b'["1","a"]', b"[1,2]", b'[1,{"b":1}]', b"[", None],
)
def test_an_array_key_is_read_only_if_it_is_as_written(wrong: bytes | None) -> None:
    good = [b'[1,"a"]', b'[null,"\xc3\xa9"]']
    decoded = Key(["n", "s"]).decode([good[0], wrong, good[1]], {"s": pl.String(), "n": pl.Int64()})
    assert decoded.frame.rows(named=True) == [{"n": 1, "s": "a"}, {"n": None, "s": "é"}]
    assert [i for i, _ in decoded.bad] == [1]


def test_a_key_may_be_a_json_object() -> None:
    """As Debezium and ksqlDB write keys."""
    frame = pl.DataFrame({"id": [17, None], 'na"me': ["é", None]})
    assert Key("id", Json).encode(frame) == [b'{"id":17}', None]
    assert Key(["id"], Json).encode(frame) == [b'{"id":17}', b'{"id":null}']
    both = Key(["id", 'na"me'], Json)
    assert both.encode(frame) == ['{"id":17,"na\\"me":"é"}'.encode(), b'{"id":null,"na\\"me":null}']
    assert both.decode(both.encode(frame), frame.schema).frame.equals(frame)
    assert repr(both) == """Key(['id', 'na"me'], Json)"""
    assert repr(Key("id", Json)) == "Key('id', Json)"


def test_a_key_of_other_columns_has_the_same_bytes() -> None:
    frame, other = pl.DataFrame({"a": [17, 2], "b": ["x", None]}), pl.DataFrame({"n": [17, 2], "s": ["x", None]})
    for key in (Key(["a", "b"], Json), Key(["a", "b"]), Key("a", Json), Key("a", Int64BE), Key("a")):
        mine = key.over(["n", "s"][: len(key.columns)])
        assert mine.encode(other) == key.encode(frame)
        assert mine.decode(mine.encode(other), other.schema).frame.equals(other[list(mine.columns)])
        assert repr(mine) != repr(key)


@pytest.mark.parametrize(
    "wrong",
    [b"", b"{}", b'{"n": 1,"s":"a"}', b'{"s":"a","n":1}', b'{"n":1,"s":"a","x":1}', b'{"n":"1","s":"a"}', b"[1]", None],
)
def test_an_object_key_is_read_only_if_it_is_as_written(wrong: bytes | None) -> None:
    good = [b'{"n":1,"s":"a"}', b'{"n":null,"s":null}']
    decoded = Key(["n", "s"], Json).decode([good[0], wrong, good[1]], {"s": pl.String(), "n": pl.Int64()})
    assert decoded.frame.rows(named=True) == [{"n": 1, "s": "a"}, {"n": None, "s": None}]
    ((i, why),) = decoded.bad
    assert i == 1
    assert why.startswith("key is not {n: Int64, s: String} as JSON: ")


KINDS: list[tuple[pl.DataType, st.SearchStrategy[Any]]] = [
    (pl.Int64(), st.integers(-(2**63), 2**63 - 1)),
    (pl.UInt8(), st.integers(0, 255)),
    (pl.String(), st.text(st.characters(exclude_categories=["Cs"]))),
    (pl.Boolean(), st.booleans()),
    (pl.Float64(), st.floats()),
    (pl.Float32(), st.floats(width=32)),
    (pl.Date(), st.dates()),
    (pl.Binary(), st.binary()),
]


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_keys_read_back_and_tell_rows_apart(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    height = data.draw(st.integers(1, 5))
    columns = {
        f"c{i}": pl.Series(data.draw(st.lists(st.none() | values, min_size=height, max_size=height)), dtype=dtype)
        for i, (dtype, values) in enumerate(kinds)
    }
    frame = pl.DataFrame(columns)
    several = len(kinds) > 1 or data.draw(st.booleans())
    key = Key(frame.columns if several else "c0", data.draw(st.sampled_from([None, Json])))
    written = key.encode(frame)
    assert len(set(written)) == frame.unique().height
    decoded = key.decode(written, frame.schema)
    assert decoded.bad == []
    assert decoded.frame.equals(frame)
    assert key.encode(decoded.frame) == written


@pytest.mark.parametrize("columns", [[], ["a", "a"]])
def test_a_key_needs_columns_each_once(columns: list[str]) -> None:
    with pytest.raises(DefinitionError, match="a key needs columns"):
        Key(columns)


def test_a_format_is_for_one_column() -> None:
    with pytest.raises(DefinitionError, match="writes one column"):
        Key(["a"], Int64BE)
    with pytest.raises(DefinitionError, match="no schema of its own"):
        Key("a", Json({"a": int}))  # type: ignore[arg-type]


def test_a_key_of_columns_that_are_not_there_or_have_no_text_is_refused() -> None:
    with pytest.raises(DefinitionError, match="no column 'a' for the key"):
        Key("a").encode(pl.DataFrame({"b": [1]}))
    with pytest.raises(DefinitionError, match=r"column 'b' is List\(Int64\), which has no text"):
        Key("b").encode(pl.DataFrame({"b": [[1]]}))


def test_a_name_a_list_or_a_key_make_a_key() -> None:
    key = Key("id", Int64BE)
    assert key_of(key) is key
    assert (key_of("a").columns, key_of(["a", "b"]).columns) == (("a",), ("a", "b"))
    assert repr(key_of("a")) == "Key('a')"
    assert repr(key) == "Key('id', Int64BE)"


def test_a_date_is_not_a_moment() -> None:
    assert Key("d").decode([b"2026-01-31T12:00:00.000Z"], {"d": pl.Date()}).bad
    assert Key("d").encode(pl.DataFrame({"d": [date(2026, 1, 31)]})) == [b"2026-01-31"]
