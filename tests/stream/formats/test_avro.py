"""Avro, against fastavro: what it writes row by row is read as it says, however records are cut into batches."""

from __future__ import annotations

import json
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.stream.formats.avro_schemas import (
    EMPTY,
    EXAMPLES,
    WIDE,
    Map,
    as_columns,
    datum,
    oracle,
    record,
    schemas,
)
from tests.stream.formats.known import Known

import falkirk as fk
from falkirk.errors import DefinitionError
from falkirk.stream.formats.avro import Avro, items
from falkirk.stream.formats.avro.cursor import Cursor
from falkirk.stream.formats.spoken import format_of


@EXAMPLES
@given(st.data())
def test_reads_what_fastavro_writes(data: st.DataObject) -> None:
    schema, rows = data.draw(schemas())
    given_rows = data.draw(st.lists(rows, max_size=6))
    values = [datum(schema, row) for row in given_rows]
    decoded = Avro(schema).decode(values)
    assert decoded.bad == []
    assert decoded.frame.schema == Avro(schema).schema
    assert decoded.frame.rows(named=True) == [as_columns(row) for row in given_rows]


@EXAMPLES
@given(st.data())
def test_what_a_record_becomes_depends_on_its_bytes_alone(data: st.DataObject) -> None:
    """Cut, lengthened and changed at will, each record in a batch fares as it does alone, and as its parts say."""
    schema, rows = data.draw(schemas())
    values = [datum(schema, row) for row in data.draw(st.lists(rows, min_size=1, max_size=4))]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(values) - 1))
        value = bytearray(values[at])
        cut = data.draw(st.integers(0, len(value)))
        values[at] = bytes(
            value[:cut] + data.draw(st.binary(max_size=12)) + value[cut + data.draw(st.integers(0, 3)) :]
        )
    form = Avro(schema)
    alone = [form.decode([value]) for value in values]
    together = form.decode(values)
    assert together.bad == [(i, each.bad[0][1]) for i, each in enumerate(alone) if each.bad]
    assert together.frame.equals(pl.concat([each.frame for each in alone]))


@EXAMPLES
@given(st.data())
def test_items_that_are_found_by_a_walk_are_the_same(data: st.DataObject) -> None:
    """As they are in a few long lists. Read or passed over, good or not."""
    schema, rows = data.draw(schemas())
    values = [bytearray(datum(schema, row)) for row in data.draw(st.lists(rows, min_size=1, max_size=4))]
    if data.draw(st.booleans()):
        value = data.draw(st.sampled_from(values))
        at = data.draw(st.integers(0, len(value)))
        value[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    for form in (Avro(schema), Avro(schema).project(["f0"])):
        found = form.decode([bytes(value) for value in values])
        with patch.multiple(items, FEW=1000, MANY=-1):
            walked = form.decode([bytes(value) for value in values])
        assert walked.bad == found.bad
        assert walked.frame.equals(found.frame)


def test_a_long_list_is_read_in_few_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    point = {
        "type": "record",
        "name": "P",
        "fields": [{"name": "x", "type": "double"}, {"name": "y", "type": "string"}],
    }
    schema, calls = record(a={"type": "array", "items": point}), list[int]()
    longs = Cursor.longs

    def counted(cursor: Cursor, rows: Any, where: str) -> Any:
        calls.append(len(rows))
        return longs(cursor, rows, where)

    monkeypatch.setattr(Cursor, "longs", counted)
    points = [{"x": 0.5, "y": str(n)} for n in range(10_000)]
    values = [datum(schema, {"a": points}), datum(schema, {"a": points[:1]})]
    decoded = Avro(schema).decode([*values, values[0][:-2]])
    assert decoded.frame["a"].to_list() == [points, points[:1]]
    assert decoded.bad == [(2, "field 'a[].y': ends too early")]
    assert len(calls) < 100


def test_a_short_datum_takes_nothing_from_the_next() -> None:
    """Laid end to end these bytes are two good datums: neither of these two is one."""
    schema = record(auction="long", price="long")
    one, two = datum(schema, {"auction": 7, "price": 120}), datum(schema, {"auction": 8, "price": 90})
    for cut in (1, 2, 4, 5):
        decoded = Avro(schema).decode([(one + two)[:cut], (one + two)[cut:], one])
        assert [i for i, _ in decoded.bad] == [0, 1]
        assert decoded.frame.rows() == [(7, 120)]
    assert Avro(schema).decode([one + two]).bad == [(0, "extra bytes follow the datum: 3")]


# -- malformed ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("long", b"", "ends too early"),
        ("long", b"\x80", "ends too early"),
        ("long", b"\xff" * 10 + b"\x01", "an integer of more than 64 bits"),
        ("long", b"\xff" * 9 + b"\x02", "an integer of more than 64 bits"),
        ("int", b"\x80\x80\x80\x80\x10", "cannot read 2147483648 as Int32"),
        ("boolean", b"\x02", "2 is not a boolean"),
        ("double", b"1234567", "ends too early"),
        ("string", b"\x04\xff\xfe", "not UTF-8"),
        ("string", b"\x03", "a length of -2"),
        ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "ends too early"),
        (["null", "long"], b"\x0a\x02", "branch 5 of 2"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "symbol 1 of 1"),
        ({"type": "fixed", "name": "F", "size": 3}, b"ab", "ends too early"),
        ({"type": "array", "items": "long"}, b"\xfe\xff\xff\xff\xff\x0f", "more items than there are bytes"),
        ({"type": "array", "items": EMPTY}, b"\xfe\xff\xff\xff\xff\x0f\x00", "more items than there are bytes"),
        ({"type": "array", "items": "long"}, b"\x02\x02", "ends too early"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x02\x64", "a decimal of more than 2 digits"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x02\x9c", "a decimal of more than 2 digits"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            "cannot read 9223372036854775807 as Datetime",
        ),
    ],
)
def test_says_what_is_wrong(kind: Any, value: bytes, reason: str) -> None:
    """Also beside a good record, whose bytes come right behind."""
    form = Avro(record(x=kind, y="long"))
    assert form.decode([value]).bad == [(0, f"field 'x': {reason}")]
    assert form.decode([value, b"", value]).bad[::2] == [(i, f"field 'x': {reason}") for i in (0, 2)]


def test_decimals_keep_every_digit() -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10}
    for text in ("0", "-1", "0.01", "-9999999999999999999999999999.9999999999", "9223372036854775808"):
        number = Decimal(text).quantize(Decimal("1e-10"), context=WIDE)
        assert Avro(record(x=kind)).decode([datum(record(x=kind), {"x": number})]).frame.item() == number
    padded = b"\x2a" + b"\xff" * 20 + b"\x85"
    assert Avro(record(x=kind)).decode([padded]).frame.item() == Decimal(-123).scaleb(-10)


# -- two schemas -------------------------------------------------------------------------------------------------------


def test_a_reader_has_its_own_schema() -> None:
    """Fields by name and alias, promoted, with defaults, in the reader's order; as fastavro resolves them."""
    writer = record(
        gone={"type": "map", "values": {"type": "array", "items": "string"}},
        n="int",
        old="float",
        kind={"type": "enum", "name": "K", "symbols": ["A", "B", "Z"]},
        both=["null", "int", "string"],
        inner=record("I", a="int", b={"type": "fixed", "name": "F", "size": 2}),
    )
    reader = record(
        inner=record("I", a="long"),
        kind={"type": "enum", "name": "K", "symbols": ["A", "B", "N"], "default": "N"},
        n="double",
    )
    reader["fields"] += [
        {"name": "new", "type": "double", "aliases": ["old"]},
        {"name": "note", "type": ["string", "null"], "default": "none"},
        {"name": "tags", "type": {"type": "array", "items": "long"}, "default": [1, 2]},
    ]
    rows = [
        {"gone": Map(a=["x"], b=[]), "n": 1, "old": 0.5, "kind": "Z", "both": "x", "inner": {"a": 7, "b": b"ab"}},
        {"gone": Map(), "n": -1, "old": -0.5, "kind": "B", "both": None, "inner": {"a": -7, "b": b"cd"}},
    ]
    values = [datum(writer, row) for row in rows]
    with_registry = Avro(reader, registry=Known({5: json.dumps(writer)}))
    decoded = with_registry.decode([b"\0\0\0\0\5" + value for value in values])
    assert decoded.bad == []
    assert decoded.frame.rows(named=True) == [oracle(value, writer, reader) for value in values]


@pytest.mark.parametrize(
    ("kind", "column", "reason"),
    [
        ("string", fk.Int64, "the writer has string, which does not fit Int64"),
        ("double", fk.Float32, "the writer has double, which does not fit Float32"),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            fk.Datetime,
            "the writer has long (timestamp-micros), which does not fit Datetime",
        ),
        *(
            (
                {"type": kind, "logicalType": logical},
                fk.DatetimeMicros,
                f"the writer has {kind} ({logical}), which does not fit DatetimeMicros",
            )
            for kind, logical in [
                *(("int", "date"), ("int", "time-millis"), ("long", "time-micros"), ("long", "timestamp-nanos")),
                *(("long", "local-timestamp-millis"), ("long", "local-timestamp-micros")),
            ]
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3},
            fk.Decimal(9, 2),
            "the writer has bytes (decimal(9, 3)), which does not fit Decimal(9, 2)",
        ),
    ],
)
def test_a_schema_that_does_not_resolve_is_the_records_fault(kind: Any, column: Any, reason: str) -> None:
    form = Avro({"x": column}, registry=Known({1: json.dumps(record(x=kind))}))
    assert form.decode([b"\0\0\0\0\1\2\2\2"]).bad == [(0, f"schema 1: field 'x': {reason}")]


ONE = {"type": "record", "name": "One", "fields": [{"name": "a", "type": "int"}]}


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("int", 2**40),
        ("double", "NaN"),
        ({"type": "int", "logicalType": "date"}, 10**8),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "Z"),
        (ONE, {}),
        (["null", ONE], {}),
    ],
)
def test_a_default_that_is_no_value_of_its_field_is_refused(kind: Any, default: Any) -> None:
    fields = [{"name": "n", "type": "int"}, {"name": "d", "type": kind, "default": default}]
    with pytest.raises(DefinitionError, match=r"field 'd': its default .* is not"):
        Avro({"type": "record", "name": "R", "fields": fields}, registry=Known({}))


def test_of_a_union_the_branches_that_fit_are_read() -> None:
    writer = record(x=["null", "int", "string"])
    values = [b"\0\0\0\0\1" + datum(writer, {"x": x}) for x in (7, "seven", None)]
    decoded = Avro({"x": fk.Int64}, registry=Known({1: json.dumps(writer)})).decode(values)
    assert decoded.bad == [(1, "field 'x': the writer has string, which does not fit Int64")]
    assert decoded.frame["x"].to_list() == [7, None]


def test_a_record_that_does_not_fit_is_one_branch_of_a_union() -> None:
    old, new = record("Old", id="string"), record("New", id="long")
    values = [
        b"\0\0\0\0\1" + datum(record(x=["null", old, new]), {"x": x}) for x in (("Old", {"id": "7"}), {"id": 7}, None)
    ]
    form = Avro({"x": fk.Struct({"id": fk.Int64})}, registry=Known({1: json.dumps(record(x=["null", old, new]))}))
    decoded = form.decode(values)
    assert decoded.bad == [(0, "field 'x': the writer has string, which does not fit Int64")]
    assert decoded.frame["x"].to_list() == [{"id": 7}, None]
    alone = Avro({"x": fk.Struct({"id": fk.Int64})}, registry=Known({1: json.dumps(record(x=["null", old]))}))
    reason = "schema 1: field 'x.id': the writer has string, which does not fit Int64"
    assert alone.decode(values[:1]).bad == [(0, reason)]


def test_records_of_several_schemas_keep_their_order() -> None:
    schemas = {1: record(x="int"), 2: record(y="string", x="long"), 3: record(x="string")}
    form = Avro({"x": fk.Int64}, registry=Known({n: json.dumps(schema) for n, schema in schemas.items()}))
    values = [
        bytes([0, 0, 0, 0, n]) + datum(schemas[n], {"x": x, "y": "y"}) for n, x in [(2, 5), (1, 6), (2, 7), (3, "8")]
    ]
    decoded = form.decode([*values, None, b"", b"\1" + values[0][1:], b"\0\0\0\0\x09\2"])
    assert decoded.frame["x"].to_list() == [5, 6, 7]
    assert decoded.bad == [
        (3, "schema 3: field 'x': the writer has string, which does not fit Int64"),
        (4, "null value"),
        (5, "0 bytes: too few for a magic byte and a schema's id"),
        (6, "begins with byte 1, where registered Avro has 0"),
        (7, "the registry has no schema 9"),
    ]


def test_a_projection_passes_over_the_rest() -> None:
    schema = record(a={"type": "array", "items": {"type": "map", "values": "bytes"}}, b="string", c="double")
    row = {"a": [{"k": b"v"}, {}], "b": "text", "c": 0.5}
    form = Avro(schema).project(["c"])
    assert form.decode([datum(schema, row)]).frame.rows(named=True) == [{"c": 0.5}]
    assert Avro(schema).project([]).schema is not None
    with pytest.raises(DefinitionError, match="no column 'z'"):
        form.project(["z"])


def test_items_may_have_no_bytes_at_all() -> None:
    schema = record(a={"type": "array", "items": EMPTY}, b="long")
    value = b"\x06\x00" + b"\x0e"
    assert Avro(schema).decode([value]).frame.rows() == [([b"", b"", b""], 7)]
    assert Avro(schema).project(["b"]).decode([value]).frame.rows() == [(7,)]


def test_a_block_may_say_its_size() -> None:
    schema = record(a={"type": "array", "items": "long"}, b="long")
    value = b"\x03\x04\x02\x04" + b"\x02\x06" + b"\x00" + b"\x0e"
    assert Avro(schema).decode([value]).frame.rows() == [([1, 2, 3], 7)]
    assert Avro(schema).project(["b"]).decode([value]).frame.rows() == [(7,)]


# -- schemas -----------------------------------------------------------------------------------------------------------


def test_fields_that_cannot_be_columns_are_passed_over() -> None:
    tree: dict[str, Any] = record("Tree", n="long")
    tree["fields"].append({"name": "left", "type": ["null", "int", "string"]})
    tree["fields"].append({"name": "wide", "type": {"type": "bytes", "logicalType": "decimal", "precision": 39}})
    assert Avro(tree).schema == pl.Schema({"n": pl.Int64()})
    row = {"n": 7, "left": "x", "wide": Decimal(10**38)}
    assert Avro(tree).decode([datum(tree, row)]).frame.rows() == [(7,)]


def test_the_schema_is_a_file_its_text_or_a_dict(tmp_path: Path) -> None:
    file = tmp_path / "bid.avsc"
    file.write_text(json.dumps(record(n="long")))
    for schema in (file, str(file), file.read_text(), record(n="long")):
        assert repr(Avro(schema)) == repr(Avro(record(n="long")))
    assert pickle.loads(pickle.dumps(Avro(file))).decode([b"\x02"]).frame.item() == 1
    assert format_of(repr(Avro(file))).schema == Avro(file).schema


ALIASED = {"name": "a", "type": "long", "aliases": ["b"], "default": -1}


@pytest.mark.parametrize("fields", [("a", "b"), ("a",), ("b",)])
def test_an_alias_is_not_taken_for_another_field_of_its_name(fields: tuple[str, ...]) -> None:
    """A field was renamed from b to a, and a new one is called b: as fastavro, by names first. So it is for each column
    alone, too."""
    reader = {"type": "record", "name": "R", "fields": [ALIASED, {"name": "b", "type": "long", "default": 0}]}
    writers = [record(b="long"), record(a="long"), record(a="long", b="long")]
    rows = [{"b": 7}, {"a": 8}, {"a": 9, "b": 10}]
    registry = Known({n: json.dumps(writer) for n, writer in enumerate(writers)})
    values = [datum(writer, row) for writer, row in zip(writers, rows, strict=True)]
    decoded = (
        Avro(reader, registry=registry)
        .project(fields)
        .decode([b"\0\0\0\0%c" % n + value for n, value in enumerate(values)])
    )
    assert decoded.bad == []
    expected = [oracle(value, writer, reader) for value, writer in zip(values, writers, strict=True)]
    assert decoded.frame.rows(named=True) == [{name: row[name] for name in fields} for row in expected]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (
            {"type": "record", "name": "R", "fields": [ALIASED, {"name": "c", "type": "long", "aliases": ["b"]}]},
            "fields 'a' and 'c' both have the alias 'b'",
        ),
        ("missing.avsc", "an Avro schema cannot be read"),
        ("{", "an Avro schema is not JSON"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "x", "type": "lnog"}]},
            "this is not an Avro schema: .*lnog",
        ),
        ({"type": "array", "items": "long"}, "an Avro schema of 'array' has no columns"),
        (record(x=["int", "string"]), "without a field that can be a column"),
        ({"x": fk.Int64}, "columns do not say how plain Avro was written"),
        (None, "Avro needs a schema, or a registry"),
    ],
)
def test_a_wrong_definition_says_so(schema: Any, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        Avro(schema)


def test_a_type_that_holds_itself_is_refused() -> None:
    schema = record("Node", n="long", next=["null", "Node"])
    with pytest.raises(DefinitionError, match="field 'next': Node contains itself, which is not supported"):
        Avro(schema)


# -- writing -----------------------------------------------------------------------------------------------------------
