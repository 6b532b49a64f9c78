"""Avro, against fastavro: what it writes row by row is read as it says, however records are cut into batches."""

from __future__ import annotations

import io
import json
import math
import pickle
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import fastavro
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stream.formats.known import Known

import falkirk as fk
from falkirk.errors import DefinitionError
from falkirk.stream.formats.avro import Avro, items
from falkirk.stream.formats.avro.cursor import Cursor
from falkirk.stream.formats.spoken import format_of
from falkirk.testing.memory import MemoryApp

WIDE = Context(prec=60)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EMPTY = {"type": "fixed", "name": "Empty", "size": 0}
EXAMPLES = settings(max_examples=60, deadline=None)


def record(name: str = "R", **fields: Any) -> dict[str, Any]:
    """A schema with these fields."""
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def datum(schema: Any, row: Mapping[str, Any]) -> bytes:
    """A row as fastavro writes it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


def oracle(value: bytes, writer: Any, reader: Any) -> Any:
    """A row as fastavro reads it."""
    return fastavro.schemaless_reader(io.BytesIO(value), fastavro.parse_schema(writer), fastavro.parse_schema(reader))


def as_columns(value: Any) -> Any:
    """What fastavro gives, as columns hold it: a map is a list of pairs."""
    if isinstance(value, Map):
        return [{"key": k, "value": as_columns(v)} for k, v in value.items()]
    if isinstance(value, dict):
        return {k: as_columns(v) for k, v in value.items()}
    return [as_columns(v) for v in value] if isinstance(value, list) else value


class Map(dict[str, Any]):
    """Told from a record."""


# -- schemas, and rows of them -----------------------------------------------------------------------------------------

Typed = tuple[Any, st.SearchStrategy[Any]]


def moments(step: timedelta) -> st.SearchStrategy[datetime]:
    low, high = ((datetime(year, 1, 1, tzinfo=UTC) - EPOCH) // step for year in (1, 9999))
    return st.integers(low, high).map(lambda n: EPOCH + n * step)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale)))


PLAIN: list[Typed] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("string", st.text(max_size=20)),
    ("bytes", st.binary(max_size=20)),
    ({"type": "int", "logicalType": "date"}, st.dates()),
    ({"type": "long", "logicalType": "timestamp-millis"}, moments(timedelta(milliseconds=1))),
    ({"type": "long", "logicalType": "timestamp-micros"}, moments(timedelta(microseconds=1))),
]


@st.composite
def scalars(draw: st.DrawFn, names: Callable[[], str]) -> Typed:
    kind = draw(st.integers(0, len(PLAIN) + 3))
    if kind < len(PLAIN):
        return PLAIN[kind]
    if kind == len(PLAIN):
        symbols = draw(st.lists(st.sampled_from(["A", "B", "C", "D"]), min_size=1, unique=True))
        return {"type": "enum", "name": names(), "symbols": symbols}, st.sampled_from(symbols)
    if kind == len(PLAIN) + 1:
        size = draw(st.integers(0, 20))
        return {"type": "fixed", "name": names(), "size": size}, st.binary(min_size=size, max_size=size)
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    logical = {"logicalType": "decimal", "precision": precision, "scale": scale}
    if kind == len(PLAIN) + 2:
        return {"type": "bytes", **logical}, decimals(precision, scale)
    least = math.ceil((precision / math.log10(2) + 1) / 8)  # a bit of it is the sign
    size = draw(st.integers(17 if precision == 38 else least, 20))
    return {"type": "fixed", "name": names(), "size": size, **logical}, decimals(precision, scale)


@st.composite
def types(draw: st.DrawFn, names: Callable[[], str], depth: int = 2) -> Typed:
    what = draw(st.integers(0, 6)) if depth else 0
    if what == 0 or what > 4:
        return draw(scalars(names))
    inner, values = draw(types(names, depth - 1))
    if what == 1:
        if isinstance(inner, list):
            return inner, values
        optional = ["null", inner] if draw(st.booleans()) else [inner, "null"]
        return optional, st.none() | values
    if what == 2:
        return {"type": "array", "items": inner}, st.lists(values, max_size=4)
    if what == 3:
        return {"type": "map", "values": inner}, st.dictionaries(st.text(max_size=3), values, max_size=3).map(Map)
    other, others = draw(types(names, depth - 1))
    return record(names(), x=inner, y=other), st.fixed_dictionaries({"x": values, "y": others})


@st.composite
def schemas(draw: st.DrawFn) -> Typed:
    """A record's schema, and rows of it."""
    count = iter(range(1000))
    fields = draw(st.lists(types(lambda: f"N{next(count)}"), min_size=1, max_size=5))
    named = {f"f{i}": schema for i, (schema, _) in enumerate(fields)}
    return record(**named), st.fixed_dictionaries({f"f{i}": rows for i, (_, rows) in enumerate(fields)})


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
