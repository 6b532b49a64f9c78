"""Rows as bytes between tasks."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from io import BytesIO
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from falkirk.errors import StateError
from falkirk.stream.dataflow.batch import TS
from falkirk.stream.dataflow.packing import ARROW, FEW, PLAIN, Packer, rows_of, unpacked, unpacked_all

MOMENT = datetime(2026, 1, 31, 12, 0, 0, 123_000, tzinfo=UTC).replace(tzinfo=None)
VALUES: list[tuple[pl.DataType, list[Any]]] = [
    (pl.Boolean(), [True, False]),
    (pl.Int8(), [-128, 127]),
    (pl.Int64(), [-(2**63), 2**63 - 1]),
    (pl.UInt64(), [0, 2**64 - 1]),
    (pl.Float32(), [0.1, -0.0]),
    (pl.Float64(), [0.1, float("inf")]),
    (pl.String(), ["", "ü\0"]),
    (pl.Binary(), [b"", b"\xff\x00"]),
    (pl.Date(), [date(1969, 12, 31), date(2026, 1, 31)]),
    (pl.Time(), [time(0, 0), time(23, 59, 59, 999_999)]),
    (pl.Datetime("ms"), [MOMENT, MOMENT.replace(year=1900)]),
    (pl.Datetime("us", "UTC"), [MOMENT.replace(tzinfo=UTC), datetime(1900, 1, 1, tzinfo=UTC)]),
    (pl.Duration("ns"), [timedelta(seconds=-1), timedelta(days=1)]),
]
NESTED: list[tuple[pl.DataType, list[Any]]] = [
    (pl.List(pl.String()), [["a", None], []]),
    (pl.Struct({"a": pl.Int64(), "b": pl.List(pl.Float64())}), [{"a": 1, "b": [0.5]}, {"a": None, "b": None}]),
    (pl.Decimal(10, 2), [Decimal("1.25"), Decimal("-0.01")]),
    (pl.Datetime("ms", "Europe/London"), [MOMENT.replace(tzinfo=UTC), None]),
    (pl.Enum(["a", "b"]), ["a", "b"]),
]


def framed(dtype: pl.DataType, values: list[Any]) -> pl.DataFrame:
    return pl.DataFrame({"x": pl.Series([*values, None], dtype=dtype), TS: [*range(len(values)), 7]})


def arrow(frame: pl.DataFrame) -> bytes:
    """A batch as it was packed before there was another form."""
    out = BytesIO()
    frame.write_ipc_stream(out, compression="uncompressed")
    return b"\x01" + out.getvalue()


@pytest.mark.parametrize(("dtype", "values", "kind"), [(*c, PLAIN) for c in VALUES] + [(*c, ARROW) for c in NESTED])
def test_every_type_comes_back_as_it_was(dtype: pl.DataType, values: list[Any], kind: int) -> None:
    frame = framed(dtype, values)
    [(batch, latest)] = Packer(frame).pack(0, frame.height)
    assert (batch[0], latest) == (kind, 7)
    assert rows_of(batch) == rows_of(arrow(frame)) == frame.height
    assert_frame_equal(unpacked(batch, ""), frame)
    assert Packer(frame).pack(0, frame.height) == [(batch, latest)]


def test_nan_is_no_null() -> None:
    frame = framed(pl.Float64(), [float("nan"), 1.0])
    back = unpacked(Packer(frame).pack(0, 3)[0][0], "")
    assert back["x"].is_nan().to_list() == [True, False, None]


@given(st.lists(st.integers(1, 2 * FEW), max_size=6), st.booleans())
def test_batches_of_all_sizes_read_together_are_the_rows_in_their_order(sizes: list[int], old: bool) -> None:
    whole = pl.DataFrame({"x": [str(i) for i in range(sum(sizes))], TS: list(range(sum(sizes)))})
    packer, start, batches = Packer(whole), 0, []
    for i, size in enumerate(sizes):
        (batch, latest) = packer.pack(start, start + size)[0]
        assert latest == start + size - 1
        batches.append(arrow(whole[start : start + size]) if old and i % 2 else batch)
        start += size
    frames, heights = unpacked_all(batches, str)
    assert heights == sizes
    assert pl.concat(frames).rows() == whole.rows() if frames else not sizes


@given(st.lists(st.integers(0, 3), min_size=1, max_size=2 * FEW), st.sampled_from(range(len(VALUES + NESTED))))
def test_rows_packed_in_another_order_are_the_frame_in_that_order(places: list[int], which: int) -> None:
    """A small frame's rows are ordered one by one, a larger frame at once: the bytes are the same."""
    dtype, values = (VALUES + NESTED)[which]
    whole = framed(dtype, [values[i % len(values)] for i in range(len(places) - 1)])
    whole = whole.with_columns(pl.Series(TS, range(whole.height)))
    order = np.argsort(places[: whole.height], kind="stable")
    for start, end in ((0, whole.height), (whole.height // 3, whole.height // 2 + 1)):
        assert Packer(whole, order).pack(start, end) == Packer(whole[order]).pack(start, end)


def test_neighbours_of_other_columns_have_frames_of_their_own() -> None:
    one, two = pl.DataFrame({"a": [1], TS: [1]}), pl.DataFrame({"b": ["x"], "a": [2], TS: [2]})
    batches = [Packer(f).pack(0, 1)[0][0] for f in (one, one, two, one)]
    frames, heights = unpacked_all(batches, str)
    assert [f.columns for f in frames] == [["a", TS], ["b", "a", TS], ["a", TS]]
    assert heights == [1, 1, 1, 1]


@pytest.mark.parametrize("value", [b"\x01no arrow", b"\x02", b"\x02\x92\xc4", b"\x07", b"", None])
def test_what_is_no_batch_is_refused_with_its_address(value: bytes | None) -> None:
    good = Packer(pl.DataFrame({TS: [1]})).pack(0, 1)[0][0]
    with pytest.raises(StateError) as caught:
        unpacked_all([good, value], lambda i: f"place {i}")
    assert caught.value.where == "place 1"


@given(st.lists(st.integers(0, 200), max_size=4), st.binary(max_size=20), st.integers(0, 10_000))
def test_rows_are_counted_in_every_chunk_and_damaged_bytes_count_for_something(
    heights: list[int], noise: bytes, place: int
) -> None:
    schema = {"k": pl.String, TS: pl.Int64}
    frames = [pl.DataFrame({"k": [f"{i}" for i in range(n)], TS: range(n)}, schema) for n in heights]
    whole = pl.concat(frames, rechunk=False) if frames else pl.DataFrame(schema=schema)
    batch = arrow(whole)
    assert rows_of(batch) == whole.height
    place %= len(batch)
    assert isinstance(rows_of(batch[:place] + noise + batch[place + len(noise) :]), int)
    assert isinstance(rows_of(batch[:place]), int)
    assert isinstance(rows_of(bytes([PLAIN]) + noise), int)
