from __future__ import annotations

import struct
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falkirk.errors import DefinitionError
from falkirk.stream.formats import Float32BE, Float64BE, Int16BE, Int32BE, Int64BE, Raw, Scalar, Text

NUMBERS: list[tuple[type[Scalar], str, st.SearchStrategy[Any]]] = [
    (Int64BE, ">q", st.integers(-(2**63), 2**63 - 1)),
    (Int32BE, ">i", st.integers(-(2**31), 2**31 - 1)),
    (Int16BE, ">h", st.integers(-(2**15), 2**15 - 1)),
    (Float64BE, ">d", st.floats(allow_nan=False)),
    (Float32BE, ">f", st.floats(allow_nan=False, width=32)),
]


@pytest.mark.parametrize(("scalar", "code", "numbers"), NUMBERS, ids=lambda v: getattr(v, "__name__", ""))
def test_numbers_are_written_as_java_writes_them(
    scalar: type[Scalar], code: str, numbers: st.SearchStrategy[Any]
) -> None:
    @settings(deadline=None)
    @given(st.lists(st.none() | numbers, max_size=5))
    def check(values: list[Any]) -> None:
        frame = pl.DataFrame({"n": values}, schema={"n": scalar.dtype})
        written = scalar("n").encode(frame)
        assert written == [None if v is None else struct.pack(code, v) for v in values]
        decoded = scalar("n").decode(written)
        assert decoded.frame.equals(frame.drop_nulls())
        assert decoded.bad == [(i, "null value") for i, v in enumerate(values) if v is None]

    check()


@pytest.mark.parametrize("scalar", [Text, Raw, Int64BE, Int32BE, Int16BE, Float64BE, Float32BE])
@given(values=st.lists(st.none() | st.binary(max_size=9), max_size=6))
def test_a_value_does_not_depend_on_others(scalar: type[Scalar], values: list[bytes | None]) -> None:
    together = scalar().decode(values)
    each = [scalar().decode([value]) for value in values]
    assert together.bad == [(i, reason) for i, one in enumerate(each) for _, reason in one.bad]
    assert together.frame.equals(pl.concat([scalar().decode([]).frame, *(one.frame for one in each)]))
    assert together.frame.schema == scalar().schema


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]))))
def test_text_is_utf8(texts: list[str | None]) -> None:
    written = Text("t").encode(pl.DataFrame({"t": texts}, schema={"t": pl.String}))
    assert written == [None if t is None else t.encode() for t in texts]
    assert Text("t").decode(written).frame["t"].to_list() == [t for t in texts if t is not None]


def test_a_number_narrower_than_its_format_fits_and_a_wider_one_is_refused() -> None:
    assert Int64BE("n").encode(pl.DataFrame({"n": pl.Series([5], dtype=pl.UInt8)})) == [struct.pack(">q", 5)]
    with pytest.raises(DefinitionError, match="column 'n' holds a number that does not fit Int32BE"):
        Int32BE("n").encode(pl.DataFrame({"n": [2**31]}))


@pytest.mark.parametrize(
    ("scalar", "series"),
    [
        (Int64BE, pl.Series([1.5])),
        (Int64BE, pl.Series(["1"])),
        (Float64BE, pl.Series(["1"])),
        (Text, pl.Series([1])),
        (Raw, pl.Series(["a"])),
    ],
)
def test_a_column_of_another_type_is_refused(scalar: type[Scalar], series: pl.Series) -> None:
    with pytest.raises(DefinitionError, match=f"which {scalar.__name__} cannot write"):
        scalar("n").encode(pl.DataFrame({"n": series}))


def test_the_column_is_named_and_the_only_one() -> None:
    assert Text("line").schema == pl.Schema({"line": pl.String})
    assert Text("line").project(["line"]).schema == Text("line").project([]).schema == Text("line").schema
    with pytest.raises(DefinitionError, match="no column 'n'"):
        Text("line").project(["n"])
    with pytest.raises(DefinitionError, match="no column 'line' among n"):
        Text("line").encode(pl.DataFrame({"n": ["x"]}))
    with pytest.raises(TypeError, match="encoding"):
        Text(encoding="latin-1")  # type: ignore[call-arg]


def test_raw_bytes_are_written_as_they_are() -> None:
    assert Raw("b").encode(pl.DataFrame({"b": [b"\x00\xff", b"", None]})) == [b"\x00\xff", b"", None]
