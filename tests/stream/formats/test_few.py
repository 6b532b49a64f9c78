"""What is read one by one is what the batch reader reads."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from falkirk.stream.formats import few
from falkirk.stream.formats.base import Decoded
from falkirk.stream.formats.ndjson import Reader

COLUMNS = {
    "a": pl.Int64(),
    "a32": pl.Int32(),
    "u": pl.UInt64(),
    "u32": pl.UInt32(),
    "f": pl.Float64(),
    "s": pl.String(),
    "b": pl.Boolean(),
}
SCHEMA: dict[str, pl.DataType] = {
    **COLUMNS,
    "i8": pl.Int8(),
    "f4": pl.Float32(),
    "at": pl.Datetime("ms", "UTC"),
    "day": pl.Date(),
    "raw": pl.Binary(),
}
ONE_BY_ONE, BATCH = Reader(SCHEMA), Reader(SCHEMA)
BATCH.few = False

INTEGERS = st.integers(-10, 10) | st.integers(-(2**70), 2**70)
INTEGERS |= st.sampled_from([2**63 - 1, 2**63, -(2**63), 2**64 - 1, 2**64, 2**31, -(2**31) - 1, 2**32, 2**53 + 1])
DECIMALS = st.from_regex(r"\A-?(0|[1-9][0-9]{0,24})\.[0-9]{1,25}([eE][+-]?[0-9]{1,3})?\Z")
FLOATS = st.binary(min_size=8, max_size=8).map(lambda b: repr(struct.unpack("d", b)[0])) | DECIMALS
TEXTS = st.text(max_size=6) | st.sampled_from(
    ["", "{}", "[1]", '"', ",", ":", "\\", "1", "true", "\x00", "\x7f", "\u2028"]
)
TEXTS |= st.sampled_from(["2026-01-31", "2026-01-31T12:00:00Z", "aGk="])
TOKENS = (
    INTEGERS.map(str)
    | FLOATS
    | st.booleans().map(json.dumps)
    | TEXTS.map(lambda text: json.dumps(text, ensure_ascii=False))
    | TEXTS.map(json.dumps)
    | st.sampled_from(["null", "-0", "-0.0", "1e400", "5e-324", "01", "+1", "1.", "nan", "[]", '{"a":1}', ""])
)
SPACES = st.sampled_from(["", "", "", " ", "\n", "\r\n", "\t", "\x0b", "\ufeff"])


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """Objects as they are written by hand: with spaces anywhere, keys twice, numbers in any spelling."""
    names = st.sampled_from([*SCHEMA, "other", "", "é", "A"])
    fields = draw(st.lists(st.tuples(names, TOKENS), max_size=4))
    space = draw(SPACES)
    inner = f",{space}".join(f'"{name}"{space}:{space}{token}' for name, token in fields)
    return (draw(SPACES) + "{" + inner + "}" + draw(SPACES)).encode("utf-8", "surrogatepass")


def check_same(one_by_one: Decoded, batch: Decoded) -> None:
    assert one_by_one.bad == batch.bad
    assert one_by_one.frame.schema == batch.frame.schema
    # By their spelling, in which 0.0 is another than −0.0.
    assert repr(one_by_one.frame.rows()) == repr(batch.frame.rows())


@settings(deadline=None, max_examples=150)
@given(st.lists(documents() | st.none() | st.binary(max_size=4), min_size=1, max_size=4))
@example([b'{"a":1,"a":2}'])
@example([b'{"a":1,"s":"x","a":2}', b'{"s":"{}"}'])
@example([b'{"f":-0}', b'{"f":-0.0}', b'{"f":9007199254740993}'])
def test_both_readers_agree_on_any_records(values: Sequence[bytes | None]) -> None:
    check_same(ONE_BY_ONE.read(values), BATCH.read(values))


@settings(deadline=None, max_examples=150)
@given(st.lists(FLOATS.filter(lambda f: f.strip("-") not in ("nan", "inf")), min_size=1, max_size=20))
def test_both_readers_round_decimals_alike(floats: list[str]) -> None:
    values = [f'{{"f":{f}}}'.encode() for f in floats]
    check_same(ONE_BY_ONE.read(values), BATCH.read(values))


def test_plain_records_are_read_one_by_one() -> None:
    whole = b'{"a": 1, "a32": null, "u": 3, "f": 0.5, "s": "caf\xc3\xa9 {", "b": true, "more": 7}'
    frame = few.read([whole, b"{}"], COLUMNS)
    assert frame is not None
    assert frame.rows() == [(1, None, 3, None, 0.5, "café {", True), (None,) * 7]


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"1",
        b'{"a":1}{"a":2}',
        b'{"a":1,"a":1}',
        b'{"s":"\\u0041"}',
        b'{"a":1.0}',
        b'{"a":true}',
        b'{"s":1}',
        b'{"a32":2147483648}',
        b'{"u32":-1}',
        b'{"u":9223372036854775808}',
        b'{"other":1e30}',
        b'{"other":[]}',
        b'{"s":"' + b"x" * few.BYTES + b'"}',
    ],
    ids=lambda v: repr(v)[:30],
)
def test_all_else_is_left_to_the_batch_reader(value: bytes | None) -> None:
    assert few.read([b'{"a":1}', value], COLUMNS) is None


def test_columns_within_columns_are_for_the_batch_reader() -> None:
    assert few.readable(COLUMNS)
    assert not few.readable({"a": pl.List(pl.Int64())})
