from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falkirk.durations import duration, duration_text, parse_size
from falkirk.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100ms", timedelta(milliseconds=100)),
        ("10s", timedelta(seconds=10)),
        ("5m", timedelta(minutes=5)),
        ("1h", timedelta(hours=1)),
        ("2d", timedelta(days=2)),
        ("50us", timedelta(microseconds=50)),
        ("0.5s", timedelta(milliseconds=500)),
        ("1d", timedelta(days=1)),
        ("7d", timedelta(days=7)),
        ("1h30m", timedelta(minutes=90)),
        ("1d0.5s", timedelta(days=1, milliseconds=500)),
        ("0.1s", timedelta(milliseconds=100)),
    ],
)
def test_a_duration_is_a_number_and_its_unit(text: str, expected: timedelta) -> None:
    assert duration(text) == expected


@pytest.mark.parametrize(
    "wrong",
    ["", "5", "ms", "5 s", "5x", "5S", "-5s", "30m1h", "1h1h", "1h 30m", "1e3s", "٥s", "5s\n", 5, 5.0, None, True],
)
def test_what_is_no_duration_is_refused_by_name(wrong: object) -> None:
    with pytest.raises(ConfigError, match="is not a duration") as caught:
        duration(wrong, where="step")  # type: ignore[arg-type]
    assert caught.value.where == "step"
    assert "100ms" in caught.value.hint


@pytest.mark.parametrize("zero", ["0s", "0.1us", timedelta(), timedelta(seconds=-1)])
def test_a_duration_is_greater_than_zero(zero: str | timedelta) -> None:
    with pytest.raises(ConfigError, match="greater than zero"):
        duration(zero)


def test_a_duration_beyond_what_can_be_held_is_refused() -> None:
    with pytest.raises(ConfigError, match="too long"):
        duration("9999999999999d")


@given(st.timedeltas(min_value=timedelta(microseconds=1)))
def test_text_reads_back_as_the_duration(time: timedelta) -> None:
    assert duration(duration_text(time)) == time
    assert duration(time) == time


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1B", 1),
        ("4KiB", 4096),
        ("64MiB", 1 << 26),
        ("1.5GiB", 3 << 29),
        ("3MB", 3_000_000),
        ("2TB", 2 * 10**12),
        (7, 7),
    ],
)
def test_a_size_is_a_number_and_its_unit(text: str | int, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize("wrong", ["", "64", "64 MiB", "64mib", "64M", "-1MiB", 1.5, None, True])
def test_what_is_no_size_is_refused_by_name(wrong: object) -> None:
    with pytest.raises(ConfigError, match="is not a size") as caught:
        parse_size(wrong, where="max_bytes")  # type: ignore[arg-type]
    assert caught.value.where == "max_bytes"


@pytest.mark.parametrize("zero", ["0B", "0.1B", 0, -5])
def test_a_size_is_greater_than_zero(zero: str | int) -> None:
    with pytest.raises(ConfigError, match="greater than zero"):
        parse_size(zero)
