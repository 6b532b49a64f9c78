"""Protobuf, against Google's library: what it writes is read as it says, however records are cut into batches."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stream.formats.known import Known

import falkirk as fk
from falkirk.errors import DefinitionError
from falkirk.stream.formats import Protobuf
from falkirk.stream.formats.protobuf.schemas import schema_from
from falkirk.stream.formats.registry import Registered
from falkirk.stream.formats.spoken import format_of
from falkirk.testing.memory import MemoryApp

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EXAMPLES = settings(max_examples=30, deadline=None)
ALL = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";

message All {
  enum Kind { NONE = 0; BID = 1; ALSO_BID = 1; option allow_alias = true; ASK = 5; }
  message In { sint32 z = 1; optional string note = 2; google.protobuf.Timestamp at = 3; All whole = 4; }
  int32 a = 1;
  sint64 b = 2;
  uint32 c = 3;
  fixed64 d = 40;
  sfixed32 e = 5;
  float f = 6;
  double g = 7;
  bool h = 8;
  string from = 9;
  bytes j = 10;
  Kind k = 11;
  optional int64 l = 12;
  optional Kind m = 13;
  google.protobuf.Timestamp at = 14;
  google.protobuf.StringValue name = 15;
  In in = 16;
  repeated int32 ns = 17;
  repeated Kind ks = 18;
  repeated In ins = 19;
  map<string, int64> counts = 20;
  map<int32, In> places = 21;
  repeated google.protobuf.Timestamp ats = 22;
  oneof of { string either = 23; uint64 or = 24; }
}
message Other { message In { int64 n = 1; } In in = 1; }
"""
FORM = Protobuf(ALL, message="All")


def proto(fields: str, name: str = "Bid") -> str:
    """A schema of one message with these fields."""
    return f'syntax = "proto3"; package shop; message {name} {{ {fields} }}'


def message(text: str, **row: Any) -> bytes:
    """What the library writes."""
    return bytes(schema_from(text).made(**row).SerializeToString())


# -- rows, as columns and as the library takes them --------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
KINDS = st.sampled_from(["NONE", "BID", "ASK"])
MOMENTS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999).map(lambda n: EPOCH + timedelta(microseconds=n))


def integers(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) if signed else st.integers(0, (1 << bits) - 1)


def pairs(keys: st.SearchStrategy[Any], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    sort = lambda found: [{"key": key, "value": found[key]} for key in sorted(found)]  # noqa: E731
    return st.dictionaries(keys, values, max_size=3).map(sort)


IN = st.fixed_dictionaries({"z": integers(32), "note": st.none() | TEXT, "at": st.none() | MOMENTS})
ROWS = st.fixed_dictionaries(
    {
        "a": integers(32), "b": integers(64), "c": integers(32, signed=False), "d": integers(64, signed=False),
        "e": integers(32), "f": st.floats(width=32, allow_nan=False), "g": st.floats(allow_nan=False), "h": st.booleans(),
        "from": TEXT, "j": st.binary(max_size=5), "k": KINDS, "l": st.none() | integers(64), "m": st.none() | KINDS,
        "at": st.none() | MOMENTS, "name": st.none() | TEXT, "in": st.none() | IN,
        "ns": st.lists(integers(32), max_size=3), "ks": st.lists(KINDS, max_size=3), "ins": st.lists(IN, max_size=2),
        "counts": pairs(TEXT, integers(64)), "places": pairs(integers(32), IN), "ats": st.lists(MOMENTS, max_size=2),
        "either": st.none(), "or": st.none() | integers(64, signed=False),
    }
)  # fmt: skip


def plain(value: Any, name: str = "") -> Any:
    """A column's value as the library takes it."""
    if isinstance(value, datetime):
        micros = (value - EPOCH) // timedelta(microseconds=1)
        return {"seconds": micros // 1_000_000, "nanos": micros % 1_000_000 * 1000}
    if name in ("counts", "places"):
        return {pair["key"]: plain(pair["value"]) for pair in value}
    if name == "name":
        return None if value is None else {"value": value}
    if isinstance(value, dict):
        return {n: plain(v, n) for n, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, list) else value


def written(row: Any) -> bytes:
    return bytes(schema_from(ALL, "All").made(**plain(row)).SerializeToString())


@EXAMPLES
@given(st.lists(ROWS, max_size=4))
def test_reads_what_the_library_writes(rows: list[Any]) -> None:
    decoded = FORM.decode([written(row) for row in rows])
    assert decoded.bad == []
    assert decoded.frame.schema == FORM.schema
    assert decoded.frame.n_chunks() <= 1
    assert decoded.frame.rows(named=True) == rows


@EXAMPLES
@given(st.lists(ROWS, max_size=4))
def test_reads_what_it_writes(rows: list[Any]) -> None:
    frame = pl.DataFrame(rows, schema=FORM.schema)
    values = FORM.encode(frame)
    assert FORM.decode(values).frame.equals(frame)
    assert values == FORM.encode(frame)
    parse = schema_from(ALL, "All").made.FromString
    assert [parse(value) for value in values] == [parse(written(row)) for row in rows]


@EXAMPLES
@given(st.data())
def test_what_a_record_becomes_depends_on_its_bytes_alone(data: st.DataObject) -> None:
    """Cut, lengthened and changed at will, each record in a batch fares as it does alone."""
    values: list[bytes | None] = [written(row) for row in data.draw(st.lists(ROWS, min_size=1, max_size=4))]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(values) - 1))
        value = values[at] or b""
        cut = data.draw(st.integers(0, len(value)))
        values[at] = value[:cut] + data.draw(st.binary(max_size=12)) + value[cut + data.draw(st.integers(0, 3)) :]
    values.insert(data.draw(st.integers(0, len(values))), data.draw(st.none() | st.binary(max_size=20)))
    alone = [FORM.decode([value]) for value in values]
    together = FORM.decode(values)
    assert together.bad == [(i, each.bad[0][1]) for i, each in enumerate(alone) if each.bad]
    assert together.frame.equals(pl.concat([each.frame for each in alone]))


@pytest.mark.parametrize(
    ("fields", "value", "reason"),
    [
        ("int64 x = 1;", b"\x08", "not a shop.Bid: "),
        ("string x = 1;", b"\x0a\x02\xff\xfe", "not a shop.Bid: "),
        ("string x = 1;", b"\x0a\x05ab", "not a shop.Bid: "),
        ("enum K { A = 0; } K x = 1;", b"\x08\x07", "field 'x': 7 is not a value of shop.Bid.K"),
        ("enum K { A = 0; } repeated K x = 1;", b"\x08\x00\x08\x07", "field 'x[]': 7 is not a value of shop.Bid.K"),
    ],
)
def test_says_what_is_wrong(fields: str, value: bytes, reason: str) -> None:
    form = Protobuf(proto(fields))
    ((_, said),) = form.decode([value]).bad
    assert said.startswith(reason)
    assert [(i, why) for i, why in form.decode([b"", value, b"", None]).bad] == [(1, said), (3, "null value")]


def test_a_moment_out_of_range_is_bad_and_digits_beyond_the_unit_are_cut_off() -> None:
    text = (
        'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message M { google.protobuf.Timestamp at = 1; }'
    )
    form = Protobuf(text)
    for at in ({"seconds": 253_402_300_800}, {"nanos": -1}, {"nanos": 1_000_000_000}):
        ((_, said),) = form.decode([message(text, at=at)]).bad
        assert "field 'at': cannot read" in said
    cut = form.decode([message(text, at={"seconds": -1, "nanos": 999_999_999})]).frame.item()
    assert cut == EPOCH - timedelta(microseconds=1)


def test_what_is_not_set_is_null_where_the_message_can_tell_and_a_default_where_it_cannot() -> None:
    row = FORM.decode([b""]).frame.row(0, named=True)
    assert {name for name, value in row.items() if value is None} == {"l", "m", "at", "name", "in", "either", "or"}
    assert (row["a"], row["from"], row["k"], row["ns"], row["counts"]) == (0, "", "NONE", [], [])


# -- two schemas -------------------------------------------------------------------------------------------------------


knowing = partial(Known, kind="PROTOBUF")


def head(number: int, path: bytes = b"\0") -> bytes:
    return b"\0" + number.to_bytes(4, "big") + path


def test_a_reader_with_a_schema_goes_by_numbers() -> None:
    """Renamed, widened, gone, new; each as Protobuf's rules have it, or with the reader's own default."""
    old = proto("int32 n = 1; float old = 2; enum K { A = 0; } K k = 3; string gone = 4;")
    new = proto(
        "int64 m = 1; double now = 2; string k = 3; optional string note = 5; repeated int32 ns = 6; int64 z = 7;"
    )
    form = Protobuf(new, registry=knowing({1: old}))
    decoded = form.decode([head(1) + message(old, n=-7, old=0.5, k="A", gone="x")])
    assert decoded.bad == []
    assert decoded.frame.rows(named=True) == [{"m": -7, "now": 0.5, "k": "A", "note": None, "ns": [], "z": 0}]


def test_a_reader_of_columns_goes_by_names() -> None:
    old = proto("int64 n = 9; int64 at = 2; message In { int32 z = 1; int32 y = 2; } repeated In ins = 3;")
    columns = {
        "ins": fk.List(fk.Struct({"y": fk.Int8, "new": fk.String})),
        "at": fk.Datetime,
        "n": fk.Float64,
        "x": fk.Date,
    }
    form = Protobuf(columns, registry=knowing({1: old}))
    values = [head(1) + message(old, n=5, at=1500, ins=[{"z": 1, "y": 2}]), head(1) + message(old, ins=[{"y": 300}])]
    decoded = form.decode(values)
    assert decoded.bad == [(1, "field 'ins[].y': cannot read 300 as Int8")]
    assert decoded.frame.rows(named=True) == [
        {"ins": [{"y": 2, "new": None}], "at": EPOCH + timedelta(milliseconds=1500), "n": 5.0, "x": None}
    ]


@pytest.mark.parametrize(
    ("fields", "column", "reason"),
    [
        ("string x = 1;", fk.Int64, "the writer has string, which does not fit Int64"),
        ("double x = 1;", fk.Float32, "the writer has double, which does not fit Float32"),
        ("bytes x = 1;", fk.String, "the writer has bytes, which does not fit String"),
        ("repeated int32 x = 1;", fk.Int32, "the writer has repeated int32, which does not fit Int32"),
        ("int32 x = 1;", fk.List(fk.Int32), "the writer has int32, which does not fit List(Int32)"),
        ("map<string, int32> x = 1;", fk.List(fk.Int32), "the writer has a map, which does not fit List(Int32)"),
        ("Bid x = 1;", fk.Int32, "the writer has shop.Bid, which does not fit Int32"),
        ("sfixed64 x = 1;", fk.Date, "the writer has sfixed64, which does not fit Date"),
    ],
)
def test_a_schema_that_does_not_fit_is_the_records_fault(fields: str, column: Any, reason: str) -> None:
    form = Protobuf({"x": column}, registry=knowing({1: proto(fields)}))
    assert form.decode([head(1)]).bad == [(0, f"schema 1: field 'x': {reason}")]


def test_an_integer_that_does_not_fit_is_the_records_fault() -> None:
    text = proto("uint64 x = 1;")
    form = Protobuf({"x": fk.Int64}, registry=knowing({1: text}))
    decoded = form.decode([head(1) + message(text, x=n) for n in (1 << 63, (1 << 63) - 1)])
    assert decoded.bad == [(0, "field 'x': cannot read 9223372036854775808 as Int64")]
    assert decoded.frame.item() == (1 << 63) - 1


def test_records_of_several_schemas_keep_their_order() -> None:
    schemas = {1: proto("int32 x = 1;"), 2: proto("string y = 1; int64 x = 2;"), 3: proto("string x = 1;")}
    known = knowing({**schemas, 4: Registered("{}", "AVRO"), 5: "message Bid { in64 x = 1; }"})
    form = Protobuf({"x": fk.Int64}, registry=known)
    values = [head(n) + message(schemas[n], x=x) for n, x in [(2, 5), (1, 6), (2, 7), (3, "8")]]
    decoded = form.decode([*values, None, b"", b"\1" + values[0][1:], head(9), head(4), head(5)])
    assert decoded.frame["x"].to_list() == [5, 6, 7]
    reasons = dict(decoded.bad)
    assert "schema 5: this is not a Protobuf schema: " in reasons.pop(9)
    assert reasons == {
        3: "schema 3: field 'x': the writer has string, which does not fit Int64",
        4: "null value",
        5: "0 bytes: too few for a magic byte, a schema's id and a message's number",
        6: "begins with byte 1, where registered Protobuf has 0",
        7: "the registry has no schema 9",
        8: "schema 4 is AVRO, not Protobuf",
    }


def test_a_record_says_which_message_of_its_schema_it_is() -> None:
    """As Confluent's serializer writes it: how many numbers, and these, zigzag; one 0 for the first message."""
    form = Protobuf({"n": fk.Int64, "a": fk.Int64}, registry=knowing({1: ALL}))
    paths = {b"\x04\x02\x00": (5, None), b"\x02\x00": (None, 5), b"\x00": (None, 5)}
    for path, row in paths.items():
        assert form.decode([head(1, path) + b"\x08\x05"]).frame.rows() == [row]
    wrong = {
        b"\x02\x04": "schema 1: it has no message 2",
        b"\x04\x02\x02": "schema 1: it has no message 1.1",
        b"\x01": "names its message by a negative number",
        b"\x04\x02": "ends within the number of its message",
        b"\x80\x80\x80\x80\x80\x00": "ends within the number of its message",
        b"\xf2\x01": "names a message 121 deep",
    }
    values = [head(1, path) for path in wrong]
    assert form.decode([*values, head(1) + b"\x08\x05"]).bad == list(enumerate(wrong.values()))


def test_a_projection_passes_over_the_rest() -> None:
    few = FORM.project(["c", "in"])
    value = schema_from(ALL, "All").made(c=5, ns=[1]).SerializeToString() + b"\x58\x63"
    assert FORM.decode([value]).bad == [(0, "field 'k': 99 is not a value of shop.All.Kind")]
    assert few.decode([value]).frame.rows(named=True) == [{"c": 5, "in": None}]
    assert list(FORM.project([]).schema) == ["a"]
    with pytest.raises(DefinitionError, match="no column 'z'"):
        few.project(["z"])


# -- schemas -----------------------------------------------------------------------------------------------------------


def test_the_schema_is_a_file_its_text_or_a_class(tmp_path: Path) -> None:
    file = tmp_path / "bid.proto"
    file.write_text(proto("int64 n = 1;"))
    given_class = schema_from(proto("int64 n = 1;")).made
    for schema in (file, str(file), file.read_text(), given_class):
        form = Protobuf(schema)
        assert form.decode([b"\x08\x01"]).frame.rows(named=True) == [{"n": 1}]
        assert pickle.loads(pickle.dumps(form)).decode([b"\x08\x01"]).frame.item() == 1
        assert repr(form).startswith("Protobuf(shop.Bid ")
    assert format_of(f"Protobuf({str(file)!r}, message='Bid')").schema == form.schema
    assert repr(Protobuf(proto("int64 n = 1;"))) != repr(Protobuf(proto("int64 n = 2;")))


def test_a_file_may_import_others_beside_it(tmp_path: Path) -> None:
    (tmp_path / "money.proto").write_text(proto("int64 cents = 1;", "Money"))
    file = tmp_path / "bid.proto"
    file.write_text('syntax = "proto3"; package shop; import "money.proto"; message Bid { Money price = 1; }')
    form = Protobuf(file)
    assert form.schema == pl.Schema({"price": pl.Struct({"cents": pl.Int64})})
    assert form.decode(form.encode(pl.DataFrame({"price": [{"cents": 5}]}))).frame.item() == {"cents": 5}
    with pytest.raises(DefinitionError, match=r"imports money\.proto, which would have to be registered apart"):
        Protobuf(file, registry=knowing({})).for_sink("bids", form.schema)


@pytest.mark.parametrize(
    ("schema", "more", "said"),
    [
        ("missing.proto", {}, "a Protobuf schema cannot be read"),
        (
            'syntax = "proto3"; message A { in64 x = 1; }',
            {},
            'not a Protobuf schema: schema.proto:1:32: "in64" is not defined',
        ),
        ("message {}", {}, "not a Protobuf schema: schema.proto:1:9: Expected message name"),
        ('syntax = "proto3"; message A { int64 x = 1; } message B {}', {}, "2 messages, of which none is named"),
        ('syntax = "proto3";', {}, "with no messages"),
        (proto("int64 x = 1;"), {"message": "Ask"}, "there is no message 'Ask'"),
        (proto("Bid x = 1;"), {}, "message shop.Bid has no field that can be a column"),
        ({"x": fk.Int64}, {}, "columns do not say how plain Protobuf was written"),
        (None, {}, "Protobuf needs a schema"),
        (17, {}, "17 describes no Protobuf message"),
        (proto("int64 x = 1;"), {"subject": "{tpoic}"}, "is not a valid pattern"),
    ],
)
def test_a_wrong_definition_says_so(schema: Any, more: Any, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        Protobuf(schema, **more)


def test_fields_that_cannot_be_columns_are_passed_over() -> None:
    text = proto("int64 n = 1; Bid before = 2; message Empty {} Empty e = 3; map<string, Bid> bids = 4;")
    assert Protobuf(text).schema == pl.Schema({"n": pl.Int64()})
    assert Protobuf(text).decode([message(text, n=7, before={"n": 8})]).frame.rows() == [(7,)]
    with pytest.raises(DefinitionError, match="column 'before' is a field of a type that is not a column of message"):
        Protobuf(text).encode(pl.DataFrame({"before": [1]}))


def test_the_older_syntax_tells_what_is_not_set() -> None:
    text = 'syntax = "proto2"; message Bid { required int64 n = 1; optional string s = 2 [default = "x"]; }'
    form = Protobuf(text)
    assert form.decode([b"\x08\x05"]).frame.rows() == [(5, None)]
    assert form.encode(pl.DataFrame({"n": [5]})) == [b"\x08\x05"]
    # Text need not be UTF-8 there, as far as the library looks.
    assert form.decode([b"\x08\x05\x12\x01\xff", b"\x08\x05"]).bad == [(0, "field 's': not UTF-8")]
    by_text = Protobuf('syntax = "proto2"; message M { map<string, string> m = 1; repeated string s = 2; }')
    values = [
        b"\x0a\x06\x0a\x01\xff\x12\x01a\x0a\x06\x0a\x01b\x12\x01a",
        b"\x0a\x06\x0a\x01a\x12\x01\xff",
        b"\x12\x01\xff",
    ]
    assert [i for i, _ in by_text.decode([*values, b"\x12\x01a"]).bad] == [0, 1, 2]
    with pytest.raises(DefinitionError, match="no column for the message's field 'n', which is required"):
        form.encode(pl.DataFrame({"s": ["x"]}))
    with pytest.raises(DefinitionError, match="column 'n' is null"):
        form.encode(pl.DataFrame({"n": pl.Series([None], dtype=pl.Int64)}))


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("optional K x = 1;", b"\x08\x01", b"\x08\x07"),
        ("repeated K x = 1;", b"\x08\x01", b"\x08\x01\x08\x07"),
        ("repeated K x = 1 [packed = true];", b"\x0a\x01\x01", b"\x0a\x02\x01\x07"),
        ("map<string, K> x = 1;", b"\x0a\x05\x0a\x01a\x10\x01", b"\x0a\x05\x0a\x01a\x10\x07"),
    ],
)
def test_a_number_that_a_closed_enum_does_not_name_is_bad(field: str, good: bytes, bad: bytes) -> None:
    form = Protobuf(f'syntax = "proto2"; message Bid {{ enum K {{ Z = 0; A = 1; }} {field} }}')
    decoded = form.decode([good, bad, b"", good + b"\x10\x07"])
    assert decoded.bad == [(1, "field 'x': it has a number that its enum does not name")]
    assert decoded.frame.height == 3


# -- writing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (pl.DataFrame({"zz": [1]}), "column 'zz' is not a field of message shop.All"),
        (pl.DataFrame({"a": [1.5]}), "column 'a' is Float64, and the message's field Int32"),
        (pl.DataFrame({"a": [1 << 40]}), "a value does not fit the message"),
        (pl.DataFrame({"a": [None]}), "column 'a' is null, and the message allows no null there"),
        (pl.DataFrame({"ns": [[1, None]]}), r"column 'ns\[\]' is null"),
        (pl.DataFrame({"ins": [[{"z": None, "note": "", "at": None}]]}), r"column 'ins\[\].z' is null"),
        (pl.DataFrame({"counts": [[{"key": "a", "value": None}]]}), r"column 'counts\[\].value' is null"),
        (pl.DataFrame({"counts": [[{"key": "a", "value": 1}] * 2]}), "a map has each key once"),
        (pl.DataFrame({"either": ["a"], "or": [0]}), "several values of the oneof 'of': either, or"),
        (pl.DataFrame({"k": ["NEITHER"]}), 'a row does not fit the message shop.All: .*"NEITHER"'),
    ],
)
def test_what_does_not_fit_is_not_written(frame: pl.DataFrame, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        FORM.encode(frame)


def test_a_part_that_is_required_and_no_column_is_missed() -> None:
    form = Protobuf(
        'syntax="proto2"; message A { message E {} message B { required E e = 1; optional int32 x = 2; } optional B b = 3; }'
    )
    with pytest.raises(DefinitionError, match=r"a row does not fit the message A: .* b\.e"):
        form.encode(pl.DataFrame({"b": [{"x": 1}]}))


def test_a_nested_oneof_has_one_value_too() -> None:
    form = Protobuf(
        proto(
            "message In { oneof of { int64 x = 1; string y = 2; } } message Out { In in = 1; } repeated Out outs = 1;"
        )
    )
    one, both = {"in": {"x": 1, "y": None}}, {"in": {"x": 1, "y": "a"}}
    assert form.encode(pl.DataFrame({"outs": [[one, {"in": None}], None]})) == [
        b"\x0a\x04\x0a\x02\x08\x01\x0a\x00",
        b"",
    ]
    with pytest.raises(DefinitionError, match=r"the oneof 'of': outs\[\].in.x, outs\[\].in.y"):
        form.encode(pl.DataFrame({"outs": [[one, both]]}))


def test_columns_that_are_not_there_are_not_set_and_narrower_ones_fit() -> None:
    at = pl.Series([EPOCH + timedelta(seconds=1)], dtype=pl.Datetime("ms", "UTC"))
    frame = pl.DataFrame(
        {"b": pl.Series([5], dtype=pl.Int8), "ns": pl.Series([None], dtype=pl.List(pl.Int32)), "at": at}
    )
    row = FORM.decode(FORM.encode(frame)).frame.row(0, named=True)
    assert (row["b"], row["ns"], row["at"], row["a"]) == (5, [], at[0], 0)


def test_the_order_of_a_maps_pairs_changes_no_byte() -> None:
    pairs = [{"key": f"k{i}", "value": i} for i in range(30)]
    rows = FORM.encode(pl.DataFrame({"counts": [pairs, pairs[::-1]]}))
    assert rows[0] == rows[1]


def test_columns_alone_are_not_written() -> None:
    bids = fk.Flow("x").source("bids", value=Protobuf({"n": fk.Int64}, registry=knowing({})))
    with pytest.raises(DefinitionError, match="columns have no numbers"):
        bids.sink("out", value=Protobuf({"n": fk.Int64}, registry=knowing({})))


def test_a_group_that_is_gone_needs_no_row() -> None:
    """Its row is nulls, and the message allows none."""
    text = proto("int64 id = 1; int64 n = 2;")
    flow = fk.Flow("gone")
    bids = flow.source("bids", key="id", value=Protobuf(text))
    late = bids.group_by("id", id="sums").agg(n=fk.sum("n")).filter(fk.col("n") > 0)
    late.sink("sums", key="id", value=Protobuf(text))
    app = MemoryApp(flow)
    for n in (5, -5):
        app.append("bids", b"1", message(text, id=1, n=n))
        app.run()
    assert [r.value() for r in app.records("sums")] == [message(text, id=1, n=5), None]


def test_a_table_may_be_in_protobuf() -> None:
    flow = fk.Flow("names")
    names = flow.table("names", key="id", value=Protobuf(proto("int64 id = 1; string name = 2;")))
    bids = flow.source("bids", key="id", value=fk.Json({"id": fk.Int64}))
    bids.lookup(names, on="id").sink(
        "named", key="id", value=Protobuf(proto("int64 id = 1; optional string name = 2;"))
    )
    result = fk.testing.run(flow, {"names": [{"id": 1, "name": "ann"}], "bids": [{"id": 1}, {"id": 2}]})
    assert result.sinks["named"].rows == [{"id": 1, "name": "ann"}, {"id": 2, "name": None}]
