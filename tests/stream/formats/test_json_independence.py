"""What becomes of one record never depends on the others: decode(a + b) = decode(a) + decode(b)."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from falkirk.stream.formats import Json, reasons
from falkirk.stream.formats.base import Decoded
from falkirk.stream.formats.types import (
    Binary,
    Boolean,
    Date,
    Datetime,
    Float32,
    Float64,
    Int8,
    Int64,
    List,
    String,
    Struct,
    UInt64,
)

SCHEMA = {
    "a": Int64,
    "f": Float64,
    "f4": Float32,
    "s": String,
    "b": Boolean,
    "i8": Int8,
    "u": UInt64,
    "at": Datetime,
    "day": Date,
    "raw": Binary,
    "l": List(Int64),
    "x": Struct({"y": Int8, "s": String, "at": Datetime}),
    "xs": List(Struct({"s": String, "raw": Binary, "ds": List(Date)})),
}
FORMAT = Json(SCHEMA)

WHOLE = (
    b'{"a":1,"f":0.5,"s":"t","b":true,"i8":-8,"u":18446744073709551615,"at":"2026-01-31T12:00:00Z","day":"2026-01-31"}'
)
DEEP = 2000  # deeper than any reader goes
HOSTILE: list[bytes | None] = [
    None,
    b"",
    b" ",
    b"\n",
    b"\r\n",
    b"\t",
    b"\x0b",
    b"\x00",
    b"\xc2\xa0",
    b"null",
    b"17",
    b"[]",
    b'"{}"',
    b"{}",
    b"{",
    b"}",
    b'{"a":1',
    b',"b":true}',
    b'{"a":1}\n{"a":2}',
    b'{"a":1}{"a":2}',
    b'{"a":1},{"a":2}',
    b'{"a":1}\r{"a":2}',
    b'{"a":1}\n',
    b'\n{"a":1}',
    b'{\n  "a": 1,\n  "s": "x"\n}',
    b'{"s":"a\nb"}',
    b'{"s":"a\rb"}',
    b'{"s":"',
    b'"}',
    b'{"s":"\\',
    b'{"s":"a\\nb"}',
    b'{"s":"\x00"}',
    b'{"s":"\\u0000"}',
    b'{"s":"\x01"}',
    b'{"a":1}\x00',
    b'\xef\xbb\xbf{"a":1}',
    '{"a":1}'.encode("utf-16"),
    b'{"s":"\xff"}',
    b'{"s":"\xed\xa0\x80"}',
    b'{"\xff":1}',
    b'{"s":"\\ud800"}',
    b'{"s":"\\uD800"}',
    b'{"s":"\\uDC00"}',
    b'{"s":"\\ud83d\\ude00"}',
    b'{"s":"\\\\ud800"}',
    b'{"\\ud800":1}',
    b'{"s":"\\ud800\\ud800"}',
    b'{"s":"\\x"}',
    b'{"a":9223372036854775807}',
    b'{"a":9223372036854775808}',
    b'{"a":-9223372036854775809}',
    b'{"u":-1}',
    b'{"u":18446744073709551616}',
    b'{"i8":128}',
    b'{"a":1.0}',
    b'{"a":1e3}',
    b'{"a":-0}',
    b'{"a":01}',
    b'{"a":+1}',
    b'{"a":"1"}',
    b'{"a":true}',
    b'{"a":' + b"9" * 60 + b"}",
    b'{"a":' + b"9" * 5000 + b"}",
    b'{"f":1}',
    b'{"f":1e400}',
    b'{"f":NaN}',
    b'{"f":Infinity}',
    b'{"f":-Infinity}',
    b'{"f":"NaN"}',
    b'{"f":' + b"9" * 60 + b"}",
    b'{"b":1}',
    b'{"b":"true"}',
    b'{"s":1.50}',
    b'{"s":true}',
    b'{"s":{"q":1}}',
    b'{"s":[1]}',
    b'{"s":"{\\"q\\":1}"}',
    b'{"s":"[1]"}',
    b'{"s":"[1] log"}',
    b'{"at":1700000000000}',
    b'{"at":"1700000000000"}',
    b'{"at":99999999999999999}',
    b'{"at":1.5}',
    b'{"at":"2026-02-30T00:00:00Z"}',
    b'{"at":"noon"}',
    b'{"at":true}',
    b'{"at":"2026-01-31 12:00:00.123456+02:00"}',
    b'{"at":"2026-01-31"}',
    b'{"day":"2026-02-30"}',
    b'{"day":"2026-2-3"}',
    b'{"day":5}',
    b'{"raw":"aGk="}',
    b'{"raw":"aGk"}',
    b'{"raw":"====" }',
    b'{"raw":1234}',
    b'{"raw":"1234"}',
    b'{"raw":true}',
    b'{"raw":["aGk="]}',
    b'{"l":[]}',
    b'{"l":[1,null]}',
    b'{"l":5}',
    b'{"l":[1.5]}',
    b'{"l":[[1]]}',
    b'{"x":5}',
    b'{"x":[5]}',
    b'{"x":null}',
    b'{"x":{}}',
    b'{"x":{"y":300}}',
    b'{"x":{"y":1,"s":"q","at":"2026-01-31T12:00:00Z"}}',
    b'{"x":{"at":"noon"}}',
    b'{"x":{"s":{"deep":1}}}',
    b'{"x":{"s":"{}"}}',
    b'{"xs":[{"s":"a","raw":"aGk=","ds":["2026-01-31"]},null,{}]}',
    b'{"xs":[{"ds":["noon"]}]}',
    b'{"xs":[5]}',
    b'{"xs":[[]]}',
    b'{"xs":["{}"]}',
    b'{"xs":[{"ds":5}]}',
    b'{"xs":[{"ds":[5]}]}',
    b'{"xs":{"s":"a"}}',
    b'{"f4":1e39}',
    b'{"f4":0.1}',
    b'{"xs":[{"s":["a"]}]}',
    b'{"xs":[{"raw":1234}]}',
    b'{"a":1,"a":2}',
    b'{"a":1,"a":"x"}',
    b'{"a":"x","a":1}',
    b'{"s":"{}","s":{}}',
    b'{"\\u0061":5}',
    b'{"":1}',
    b'{"z":' + b"[" * DEEP + b"]" * DEEP + b"}",
    b'{"s":' + b"[" * 1000 + b"]" * 1000 + b"}",
    b'{"a":' + b"[" * 980 + b"]" * 980 + b"}",
    b"[" * DEEP,
    b'{"z":[',
    b'{"s":{' + b",".join(b'"k%d":%d' % (i, i) for i in range(40)) + b"}}",
    b"//\n{}",
    b"{'a':1}",
    gzip.compress(b'{"a":1}\n{"a":2}', mtime=0),
    zlib.compress(b'{"a":1}'),
    b"(\xb5/\xfd\x04\x00A\x00\x00" + b'{"a":1}\n',
    WHOLE,
]


def alone(values: list[bytes | None]) -> Decoded:
    """Each record in a batch of its own, one after the other."""
    each = [FORMAT.decode([value]) for value in values]
    bad = [(i, reason) for i, decoded in enumerate(each) for _, reason in decoded.bad]
    return Decoded(pl.concat([d.frame for d in each]) if each else FORMAT.decode([]).frame, bad)


def check_independence(values: list[bytes | None]) -> None:
    together, apart = FORMAT.decode(values), alone(values)
    assert together.bad == apart.bad
    assert together.frame.equals(apart.frame)
    assert together.frame.height + len(together.bad) == len(values)
    assert together.frame.schema == FORMAT.schema
    assert together.frame.n_chunks() <= 1


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda v: repr(v)[:40])
def test_a_hostile_record_spoils_no_other(hostile: bytes | None) -> None:
    check_independence([hostile])
    check_independence([hostile, b""])
    check_independence([hostile, WHOLE, hostile])
    check_independence([b"{", hostile, b"}", b""])


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from(HOSTILE), max_size=12))
def test_mixes_of_hostile_records(values: list[bytes | None]) -> None:
    check_independence(values)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["2026-01-31T12:00:00Z", "2026-01-31", "aGk=", "1234", "{}", "[]", 1700000000000]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["y", "s", "at", "raw", "ds", "q"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """Objects with the schema's fields, of any kind of value; now and then cut or with a byte changed."""
    fields = draw(st.dictionaries(st.sampled_from([*SCHEMA, "other"]), JSON_VALUES, max_size=4))
    text = json.dumps(fields, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1])))
    raw = text.encode("utf-8", "surrogatepass")
    harm = draw(st.sampled_from(["none", "none", "cut", "byte"]))
    at = draw(st.integers(0, len(raw)))
    if harm == "cut":
        return raw[:at]
    if harm == "byte":
        return raw[:at] + draw(st.binary(max_size=2)) + raw[at + 1 :]
    return raw


@settings(deadline=None, max_examples=60)
@given(st.lists(documents() | st.binary(max_size=8) | st.sampled_from(HOSTILE), min_size=1, max_size=6))
@example([b'{"a":1', b',"b":true}', b'{"a":1}\n{"a":2}', b""])
def test_any_bytes(values: list[bytes | None]) -> None:
    check_independence(values)


def test_a_large_batch_keeps_its_order() -> None:
    values: list[bytes | None] = [b'{"a":%d}' % i for i in range(100_000)]
    assert FORMAT.decode(values).frame["a"].equals(pl.Series("a", range(100_000), dtype=pl.Int64))
    values[50_000] = b'{"a":"x"}'
    values[70_000] = b'{"a":7'
    decoded = FORMAT.decode(values)
    assert [i for i, _ in decoded.bad] == [50_000, 70_000]
    assert decoded.frame["a"].to_list() == [i for i in range(100_000) if i not in (50_000, 70_000)]


@settings(deadline=None, max_examples=120)
@given(documents())
def test_what_is_certainly_bad_the_reader_refuses_when_it_is_alone(value: bytes) -> None:
    """Otherwise a record that is set aside because a neighbour failed would have been good without that neighbour."""
    schema = FORMAT.schema
    assert schema is not None
    assert (reasons.certain(value, schema) is None) or FORMAT.decode([value]).bad


@pytest.mark.parametrize("bad", [b"{'a': 1}", b'{"a":NaN}', b'{"a":1,"s":"\xff"}', b'{"a":1', b"[1]", b'{"a":"x"}'])
def test_a_topic_of_bad_records_is_not_read_record_by_record(monkeypatch: pytest.MonkeyPatch, bad: bytes) -> None:
    """A read takes as long as a judgement of ten records."""
    read, sizes = pl.read_ndjson, list[int]()

    def counted(lines: bytes, **given: Any) -> pl.DataFrame:
        sizes.append(len(lines))
        return read(lines, **given)

    monkeypatch.setattr(pl, "read_ndjson", counted)
    decoded = FORMAT.decode([bad] * 2000 + [b'{"a":1}'])
    assert [i for i, _ in decoded.bad] == [*range(2000)]
    assert decoded.frame["a"].to_list() == [1]
    assert len(sizes) < 100
