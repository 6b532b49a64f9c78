"""Fields that a schema does not name, and fields that a record lacks, against a plain reading of each record."""

from __future__ import annotations

import json
import pickle
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.stream.formats.test_json_independence import HOSTILE

import falkirk as fk
from falkirk.errors import DefinitionError
from falkirk.stream.formats import Json
from falkirk.stream.formats.base import Decoded
from falkirk.stream.formats.spoken import format_of

SCHEMA = {
    "a": fk.Int64,
    "é": fk.String,
    "x": fk.Struct({"y": fk.Int64, "in": fk.Struct({"z": fk.String})}),
    "xs": fk.List(fk.Struct({"y": fk.Int64})),
    "l": fk.List(fk.Int64),
}
PLAIN = Json(SCHEMA)
FORMATS: dict[tuple[bool, bool], Json] = {
    (True, False): Json(SCHEMA, extra="refuse"),
    (False, True): Json(SCHEMA, missing="refuse"),
    (True, True): Json(SCHEMA, extra="refuse", missing="refuse"),
}


def parsed(value: bytes) -> dict[str, Any]:
    """The record, with the first of fields with one name."""
    return json.loads(value, object_pairs_hook=lambda pairs: dict(reversed(pairs)))  # type: ignore[no-any-return]


def flaws(document: Any, schema: Any, extra: bool, missing: bool, where: str = "") -> set[str]:
    """All that is wrong with the names of a parsed record."""
    found = {f"{where}{name}" for name in document if extra and name not in schema}
    found |= {f"{where}{name}" for name in schema if missing and name not in document}
    for name, dtype in schema.items():
        value = document.get(name)
        parts = [(f"{where}{name}", value)]
        if isinstance(dtype, pl.List):
            dtype, parts = dtype.inner, [(f"{where}{name}[{i}]", v) for i, v in enumerate(value or ())]
        if isinstance(dtype, pl.Struct):
            inner = {f.name: f.dtype for f in dtype.fields}
            found |= {f for w, v in parts if v is not None for f in flaws(v, inner, extra, missing, f"{w}.")}
    return found


def expected(values: list[bytes | None], extra: bool, missing: bool) -> Decoded:
    """What a format that ignores names takes, one record at a time, less those with a flaw."""
    frames, bad = [PLAIN.decode([]).frame], []
    for i, value in enumerate(values):
        alone = PLAIN.decode([value])
        if not alone.bad and value is not None and flaws(parsed(value), PLAIN.schema, extra, missing):
            bad.append((i, ""))
        else:
            frames.append(alone.frame)
            bad += [(i, why) for _, why in alone.bad]
    return Decoded(pl.concat(frames), bad)


INNER = st.fixed_dictionaries({}, optional={"y": st.none() | st.integers(0, 9), "w": st.just([{}])})
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "a": st.none() | st.integers(0, 9) | st.just("no number"),
        "é": st.none() | st.text(max_size=3),
        "x": st.none()
        | INNER
        | st.fixed_dictionaries({"y": st.just(1)}, optional={"in": st.just({"z": "t"}) | st.just({})}),
        "xs": st.none() | st.lists(st.none() | INNER, max_size=3),
        "l": st.none() | st.lists(st.integers(0, 9), max_size=2),
        "r": st.just({"deep": [1.5, None]}),
        'n"ew\n': st.booleans(),
    },
)
WHOLE = '{"a":1,"\\u00e9":"t","x":{"y":1,"in":{"z":""}},"xs":[{"y":1},null],"l":[]}'


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """Objects, spread over lines now and then; some have a field twice."""
    text = json.dumps(draw(DOCUMENTS), ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1])))
    if draw(st.integers(0, 4)) == 0 and text != "{}":
        again = json.dumps(draw(DOCUMENTS))
        text = text[:-1] + "," + again[1:] if again != "{}" else text
    return text.encode("utf-8", "surrogatepass")


@settings(deadline=None, max_examples=100)
@given(st.lists(records() | st.just(WHOLE.encode()) | st.sampled_from(HOSTILE[:90]), max_size=6))
@example([WHOLE.encode(), WHOLE.replace('"a":1,', "").encode(), WHOLE.replace('"z":""', '"z":"","z2":1').encode()])
@example([b'{"a":1,"a":2}', b'{"x":{"y":1},"x":{"q":1}}', b'{"x":{"q":1},"x":{"y":1}}'])
def test_a_record_is_refused_for_its_own_names_and_spoils_no_other(values: list[bytes | None]) -> None:
    for (extra, missing), form in FORMATS.items():
        decoded, wanted = form.decode(values), expected(values, extra, missing)
        assert decoded.frame.equals(wanted.frame)
        assert decoded.frame.n_chunks() <= 1
        assert [i for i, _ in decoded.bad] == [i for i, _ in wanted.bad]
        for (i, why), (_, known) in zip(decoded.bad, wanted.bad, strict=True):
            assert (
                why == known if known else _named(why) in flaws(parsed(values[i] or b""), form.schema, extra, missing)
            )


def _named(why: str) -> str:
    name = why.partition("field '")[2].rpartition("': ")[0]
    return name.encode().decode("unicode_escape") if "\\" in name else name


def test_the_reason_names_the_field() -> None:
    form = FORMATS[True, True]
    cases = {
        WHOLE: [],
        WHOLE.replace('"a":1,', ""): [(0, "field 'a': it is missing")],
        WHOLE.replace('"y":1,', ""): [(0, "field 'x.y': it is missing")],
        WHOLE.replace('{"y":1},null', "null,{}"): [(0, "field 'xs[1].y': it is missing")],
        WHOLE.replace('"a"', '"b":1,"a"'): [(0, "field 'b': the schema has none")],
        WHOLE.replace('"z":""', '"z":"","zz":{}'): [(0, "field 'x.in.zz': the schema has none")],
    }
    for text, bad in cases.items():
        assert form.decode([text.encode()]).bad == bad


def test_any_name_can_be_compared() -> None:
    form = Json({'q"\\': int, "x": fk.Struct({"\n": fk.Int64})}, extra="refuse", missing="refuse")
    good, lacking = b'{"q\\"\\\\":1,"x":{"\\n":1}}', b'{"q\\"\\\\":1,"x":{}}'
    assert form.decode([good, lacking]).bad == [(1, "field 'x.\n': it is missing")]


def test_names_are_compared_whichever_columns_are_used() -> None:
    form = FORMATS[True, True].project(["a"])
    assert form.schema == pl.Schema({"a": pl.Int64()})
    whole, odd = WHOLE.encode(), WHOLE.replace('"x":{', '"x":{"w":1,').encode()
    assert form.decode([whole, odd]).bad == [(1, "field 'x.w': the schema has none")]
    assert form.project([]).decode([whole, b"{}"]).bad == [(1, "field 'a': it is missing")]
    # Of a column that is not used, the values are not looked at.
    assert form.decode([WHOLE.replace('[{"y":1},null]', '"odd"').encode()]).frame.rows() == [(1,)]


def test_what_no_reader_of_names_goes_into_is_bad_by_itself() -> None:
    deep = WHOLE.replace('"a"', '"z":' + "[" * 2000 + "]" * 2000 + ',"a"').encode()
    for form in FORMATS.values():
        together = form.decode([WHOLE.encode(), deep, WHOLE.encode()])
        assert together.bad == [(1, form.decode([deep]).bad[0][1])]


def test_a_refused_record_is_buried_with_its_field() -> None:
    flow = fk.Flow("strict")
    bids = flow.source("bids", value=Json({"auction": int, "price": int}, extra="refuse", missing="refuse"))
    bids.select("auction").sink("seen", value=fk.Json())
    texts = [b'{"auction":7,"price":null}', b'{"auction":8}', b'{"auction":9,"price":1,"prize":2}']
    result = fk.testing.run(flow, {"bids": [(None, text) for text in texts]})
    assert result.sinks["seen"].rows == [{"auction": 7}]
    assert [letter["reason"] for letter in result.dead_letters] == [
        "field 'price': it is missing",
        "field 'prize': the schema has none",
    ]


def test_a_format_says_its_options_and_travels_with_them() -> None:
    form = Json({"a": int}, extra="refuse", missing="refuse")
    assert repr(form) == "Json({'a': Int64}, extra='refuse', missing='refuse')"
    assert repr(Json({"a": int}, extra="ignore", missing="null")) == "Json({'a': Int64})"
    for other in (
        pickle.loads(pickle.dumps(form)),
        format_of(repr(form)),
        format_of(repr(form).replace("Json", "fk.Json")),
    ):
        assert other.decode([b'{"a":1,"b":1}', b"{}"]).bad == form.decode([b'{"a":1,"b":1}', b"{}"]).bad != []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"extra": "forbid"}, "extra='forbid' is none of 'ignore', 'refuse'"),
        ({"missing": None}, "missing=None is none of 'null', 'refuse'"),
    ],
)
def test_an_option_that_is_none_is_refused(more: Any, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        Json({"a": int}, **more)


def test_without_a_schema_there_is_nothing_to_compare_with() -> None:
    with pytest.raises(DefinitionError, match="missing='refuse' compares a record's fields with a schema"):
        Json(missing="refuse")
