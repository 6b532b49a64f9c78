"""Keys sort as their columns do, and what is written is read back."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Context, Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from falkirk.errors import DefinitionError, StateError
from falkirk.state.codec import (
    check_key_type,
    check_value_type,
    decode_key,
    decode_keys,
    decode_values,
    encode_key,
    encode_keys,
    encode_values,
    prefix_end,
)

INTS = st.integers(-(2**127), 2**127 - 1) | st.integers(-(2**63) - 2, -(2**63) + 2) | st.integers(2**63 - 2, 2**63 + 2)
NOON = datetime.fromisoformat("2026-01-01T12:00:00")
TEXTS = st.text(alphabet=st.sampled_from("\0\1a\xffé\U0001f600") | st.characters(codec="utf-8"), max_size=5)
BLOBS = st.binary(max_size=5) | st.lists(st.sampled_from([0, 1, 255]), max_size=5).map(bytes)
KINDS: list[st.SearchStrategy[Any]] = [
    st.booleans(),
    INTS,
    st.floats(allow_nan=False),
    TEXTS,
    BLOBS,
    st.dates(),
    st.datetimes(),
]


@st.composite
def rows_of_one_type(draw: st.DrawFn, count: int = 2) -> list[tuple[Any, ...]]:
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    row = st.tuples(*(st.none() | kind for kind in kinds))
    return draw(st.lists(row, min_size=count, max_size=count))


def _order(row: tuple[Any, ...]) -> list[tuple[int, Any]]:
    return [(0, 0) if value is None else (1, value) for value in row]


@given(rows_of_one_type())
def test_keys_sort_as_their_columns_do(rows: list[tuple[Any, ...]]) -> None:
    a, b = rows
    left, right = _order(a), _order(b)
    assert (left < right) == (encode_key(1, 2, a) < encode_key(1, 2, b))
    assert (left == right) == (encode_key(1, 2, a) == encode_key(1, 2, b))


@given(rows_of_one_type(count=1), st.integers(0, 255), st.integers(0, 1023))
def test_a_key_is_read_back(rows: list[tuple[Any, ...]], table: int, shard: int) -> None:
    assert decode_key(encode_key(table, shard, rows[0])) == (table, shard, rows[0])


@given(rows_of_one_type(count=6), st.data())
def test_a_prefix_scan_gives_what_has_those_leading_columns(rows: list[tuple[Any, ...]], data: st.DataObject) -> None:
    wanted = data.draw(st.sampled_from(rows))[: data.draw(st.integers(0, len(rows[0])))]
    prefix = encode_key(1, 2, wanted)
    for row in rows:
        inside = prefix <= encode_key(1, 2, row) < prefix_end(prefix)
        assert inside == (_order(row[: len(wanted)]) == _order(wanted))


def test_shard_then_table_then_columns() -> None:
    order = [(1, 9, ["z"]), (2, 0, ["z"]), (2, 1, ["a"]), (2, 1, ["b"]), (1023, 0, ["a"])]
    keys = [encode_key(table, shard, values) for shard, table, values in order]
    assert keys == sorted(keys)


def test_floats_are_totally_ordered_and_zeros_and_nans_are_one() -> None:
    values = [-math.inf, -1.5, -5e-324, 0.0, 5e-324, 1.5, math.inf, math.nan]
    keys = [encode_key(0, 0, [value]) for value in values]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(values)
    assert encode_key(0, 0, [-0.0]) == encode_key(0, 0, [0.0])
    odd_nan = np.array([0xFFF8000000000001], np.uint64).view(np.float64)
    assert encode_keys(0, np.zeros(1, int), [pl.Series(odd_nan)]) == [encode_key(0, 0, [math.nan])]
    assert encode_keys(0, np.zeros(2, int), [pl.Series([-0.0, 0.0])]) == [encode_key(0, 0, [0.0])] * 2


def test_a_datetime_with_a_zone_is_its_instant() -> None:
    noon = NOON.replace(tzinfo=timezone(timedelta(hours=2)))
    assert decode_key(encode_key(0, 0, [noon]))[2] == (NOON.replace(hour=10),)
    column = pl.Series("t", [noon.astimezone(UTC)]).dt.convert_time_zone("Europe/Berlin")
    keys = encode_keys(0, np.zeros(1, int), [column])
    assert keys == [encode_key(0, 0, [noon])]
    assert decode_keys(pl.Schema({"t": column.dtype}), keys)["t"].to_list() == [noon]


EXACT = Context(prec=60)
COLUMN_TYPES: list[tuple[pl.DataType, st.SearchStrategy[Any]]] = [
    (pl.Boolean(), st.booleans()),
    (pl.Int8(), st.integers(-128, 127)),
    (pl.UInt32(), st.integers(0, 2**32 - 1)),
    (pl.Int64(), st.integers(-(2**63), 2**63 - 1)),
    (pl.UInt64(), st.integers(0, 2**64 - 1)),
    (pl.Int128(), INTS),
    (pl.Float32(), st.floats(width=32).map(lambda x: x + 0.0)),
    (pl.Float64(), st.floats().map(lambda x: x + 0.0)),
    (pl.String(), TEXTS),
    (pl.Binary(), BLOBS),
    (pl.Date(), st.dates()),
    (pl.Datetime("us"), st.datetimes()),
    (pl.Datetime("ms"), st.datetimes().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000))),
]
VALUE_TYPES = [
    *COLUMN_TYPES,
    (pl.Decimal(38, 10), st.integers(1 - 10**38, 10**38 - 1).map(lambda n: Decimal(n).scaleb(-10, EXACT))),
    (pl.Decimal(9, 2), st.integers(1 - 10**9, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-2))),
    (pl.Time(), st.times()),
    (pl.Duration("us"), st.timedeltas(timedelta(days=-1000), timedelta(days=1000))),
    (pl.Datetime("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    (
        pl.Datetime("ms", "Europe/Berlin"),
        st.datetimes(timezones=st.just(UTC)).map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    ),
    (pl.Duration("ms"), st.integers(-(10**6), 10**6).map(lambda ms: timedelta(milliseconds=ms))),
]


@st.composite
def frames(draw: st.DrawFn, types: list[tuple[pl.DataType, st.SearchStrategy[Any]]], least: int = 1) -> pl.DataFrame:
    chosen = draw(st.lists(st.sampled_from(types), min_size=least, max_size=10))
    rows = draw(st.integers(0, 4))
    nullable = draw(st.booleans())
    cells = [values | st.none() if nullable else values for _, values in chosen]
    columns = [
        pl.Series(f"c{i}", draw(st.lists(cell, min_size=rows, max_size=rows)), dtype=dtype)
        for i, ((dtype, _), cell) in enumerate(zip(chosen, cells, strict=True))
    ]
    return pl.DataFrame(columns)


@given(frames(COLUMN_TYPES), st.integers(0, 255))
def test_columns_of_keys_are_what_single_keys_are(frame: pl.DataFrame, table: int) -> None:
    shards = np.arange(len(frame)) * 300
    keys = encode_keys(table, shards, frame.get_columns())
    assert keys == [encode_key(table, s, row) for s, row in zip(shards.tolist(), frame.rows(), strict=True)]
    assert_frame_equal(decode_keys(frame.schema, keys), frame)


@given(frames(VALUE_TYPES))
def test_values_are_read_back(frame: pl.DataFrame) -> None:
    values = encode_values(frame.schema, frame)
    assert len(values) == len(frame)
    assert_frame_equal(decode_values(frame.schema, values), frame)


@given(frames(VALUE_TYPES))
def test_a_value_depends_on_its_own_row_alone(frame: pl.DataFrame) -> None:
    values = encode_values(frame.schema, frame)
    assert values == [encode_values(frame.schema, frame[i])[0] for i in range(len(frame))]


def test_bytes_are_as_documented() -> None:
    """A change here is a change of format: stores of users would no longer be read."""
    assert encode_key(7, 0x0102, [None, True, -1, 2**63, 1.0]).hex(" ") == (
        "01 02 07 01 03 11 7f ff ff ff ff ff ff ff 12 80 00 00 00 00 00 00 00 80 00 00 00 00 00 00 00"
        " 20 bf f0 00 00 00 00 00 00"
    )
    key = encode_key(0, 0, ["a\0", b"\0", date(1970, 1, 2), datetime.fromisoformat("1970-01-01T00:00:01")])
    assert key.hex(" ") == ("00 00 00 40 61 00 ff 00 01 41 00 ff 00 01 30 80 00 00 01 31 80 00 00 00 00 0f 42 40")
    schema = pl.Schema({"n": pl.Int16, "s": pl.String, "f": pl.Float64, "b": pl.Binary, "t": pl.Time})
    rows = [(258, "ab", 1.0, b"\0", None), (None, None, None, b"", time(0, 0, 0, 1))]
    frame = pl.DataFrame(rows, schema, orient="row")
    written = [
        "01 10 0201 02000000 000000000000f03f 01000000 0000000000000000 6162 00",
        "01 07 0000 00000000 0000000000000000 00000000 e803000000000000",
    ]
    assert encode_values(schema, frame) == [bytes.fromhex(value) for value in written]


@pytest.mark.parametrize(
    "key",
    [
        "",
        "00",
        "0000",
        "000000 99",
        "000000 11 00",
        "000000 40 61",
        "000000 40 61 00 02",
        "000000 40 ff 00 01",
        "000000 40 00 ff",
        "000000 31 ffffffffffffffff",
        "000000 30 ffffffff",
    ],
)
def test_damaged_keys_are_refused(key: str) -> None:
    with pytest.raises(StateError, match="cannot be read"):
        decode_key(bytes.fromhex(key))


@pytest.mark.parametrize(
    ("dtype", "row"),
    [
        (pl.Int64(), ["a"]),
        (pl.String(), [1]),
        (pl.Int8(), [1000]),
        (pl.Int64(), [2**64]),
        (pl.Int64(), [1, 2]),
        (pl.Float64(), [1]),
        (pl.Date(), [NOON]),
    ],
)
def test_keys_of_other_columns_are_refused(dtype: pl.DataType, row: list[Any]) -> None:
    with pytest.raises(StateError):
        decode_keys(pl.Schema({"c": dtype}), [encode_key(0, 0, row)])


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"n": pl.Int64}, "0100"),
        ({"n": pl.Int64}, "02000000000000000000"),
        ({"n": pl.Int64}, "0100000000000000000000"),
        ({"s": pl.String}, "01000200000061"),
        ({"s": pl.String}, "0100000000006161"),
        ({"s": pl.String}, "010001000000ff"),
    ],
)
def test_damaged_values_are_refused(schema: dict[str, Any], value: str) -> None:
    with pytest.raises(StateError, match="not rows of"):
        decode_values(pl.Schema(schema), [bytes.fromhex(value)])


@pytest.mark.parametrize("dtype", [pl.List(pl.Int64), pl.Datetime("ns"), pl.Decimal(10, 2), pl.UInt128()])
def test_types_that_keys_cannot_hold_are_refused_in_words(dtype: pl.DataType) -> None:
    with pytest.raises(DefinitionError) as caught:
        check_key_type(dtype, where="operator stats")
    assert caught.value.where == "operator stats"
    assert caught.value.hint


def test_types_that_values_cannot_hold_are_refused_in_words() -> None:
    with pytest.raises(DefinitionError, match="List"):
        check_value_type(pl.List(pl.Int64), where="operator stats")


@pytest.mark.parametrize("dtype", [dtype for dtype, _ in VALUE_TYPES], ids=str)
def test_every_type_that_is_read_back_is_taken(dtype: pl.DataType) -> None:
    check_value_type(dtype, where="operator stats")


def test_misuse_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="schema"):
        encode_values(pl.Schema({"n": pl.Int64}), pl.DataFrame({"n": ["a"]}))
    with pytest.raises(TypeError, match="list"):
        encode_key(0, 0, [[1]])  # type: ignore[list-item]


def test_a_column_of_nulls_is_a_key_column() -> None:
    column = pl.Series("c", [None, None])
    keys = encode_keys(0, np.zeros(2, int), [column])
    assert keys == [encode_key(0, 0, [None])] * 2
    assert decode_keys(pl.Schema({"c": pl.Null}), keys)["c"].to_list() == [None, None]
