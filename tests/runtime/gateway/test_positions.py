"""Positions as text: what they say, and that a subscriber that goes on from any of them loses nothing."""

from __future__ import annotations

import random
from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falkirk.runtime.gateway.positions import Position, gone

OFFSETS = st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=70)


@given(OFFSETS, st.text(min_size=1))
def test_a_position_is_what_its_text_says(offsets: list[int], topic: str) -> None:
    position = Position.at(topic, offsets)
    text = position.text()
    assert Position.parse(text) == position
    # It goes into a header and into a URL as it is.
    assert text.isascii()
    assert text.replace("-", "").replace("_", "").isalnum()


@given(OFFSETS, st.data())
def test_a_text_with_another_letter_or_without_one_is_no_position(offsets: list[int], data: st.DataObject) -> None:
    text = Position.at("topic", offsets).text()
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from("AZaz09-_=* é"))
    if other != text[at]:
        assert Position.parse(text[:at] + other + text[at + 1 :]) is None
    assert Position.parse(text[:at]) is None


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    assert Position.parse(text) is None


@given(st.binary())
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    assert Position.parse(urlsafe_b64encode(data).rstrip(b"=").decode()) is None


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(0, 1000))
def test_what_is_got_up_to_an_event_and_from_its_position_on_is_all(places: list[int], seed: int) -> None:
    """`places`: the partition of each record, as one reader gets them. Another one merges the partitions in its own way."""
    choice = random.Random(seed)
    records = [(p, places[:i].count(p)) for i, p in enumerate(places)]
    position, before = Position.at("topic", [0] * 4), list[tuple[int, int]]()
    for cut in range(len(records) + 1):
        said = Position.parse(position.text())
        assert said is not None
        rest = [(p, n) for p, n in records if n >= said.offsets[p]]
        choice.shuffle(rest)
        rest.sort(key=lambda record: record[1])
        got = before + rest
        assert [[r for r in got if r[0] == p] for p in range(4)] == [
            [r for r in records if r[0] == p] for p in range(4)
        ]
        if cut < len(records):
            partition, offset = records[cut]
            position, before = position.after(partition, offset + 1), [*before, records[cut]]


def test_a_position_does_not_go_back_and_begins_with_all_of_an_added_partition() -> None:
    position = Position.at("topic", [5, 5])
    assert position.after(0, 3) == position
    assert position.after(1, 9).grown(3).offsets == (5, 9, 0)


@pytest.mark.parametrize(
    ("offsets", "topic", "words"),
    [
        ((3, 9), "topic", ""),
        ((8, 9), "topic", ""),
        ((2, 9), "topic", "partition 0 begins with offset 3, and the position is 2"),
        ((3, 10), "topic", "partition 1 ends at offset 9, and the position is 10"),
        ((3, 9), "other", "the position is of another topic"),
    ],
)
def test_what_is_not_kept_is_named(offsets: tuple[int, ...], topic: str, words: str) -> None:
    found = gone(Position.at(topic, offsets), Position.at("topic", [3, 0]), [3, 0], [8, 9])
    if words:
        assert found is not None
        assert found.status == 410
        assert words in found.body.decode()
    else:
        assert found is None
