"""Result rows between Spark and Kafka: what they become, and how they are cut."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falkirk.checkpoint.digest import digest
from falkirk.checkpoint.driver import run
from falkirk.checkpoint.ids import Epoch
from falkirk.checkpoint.ports import Writes
from falkirk.connectors.spark.epochs.results import Spooled, by_partition, lasts, records, slices
from falkirk.connectors.spark.epochs.work import GHOST, MARK, Target
from falkirk.state.shards import murmur2_of
from falkirk.stream.batch import PARCELS

KEYS = st.sampled_from([None, b"", b"a", b"b", b"\xff"])


class Row(NamedTuple):
    bucket: int
    exchange: int
    key: bytes | None
    value: bytes | None
    ghost: bool


def in_order(row: Row) -> tuple[object, ...]:
    return (
        *row[:2],
        row.key is not None, row.key or b"",
        row.ghost,
    )  # fmt: skip


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    real = st.builds(
        Row, st.integers(0, 2), st.integers(0, 1), KEYS, st.sampled_from([None, b"1", b"2"]), st.just(False)
    )
    gone = st.builds(Row, st.integers(0, 2), st.integers(0, 1), KEYS.filter(bool), st.none(), st.just(True))
    found = draw(st.lists(st.one_of(real, gone), max_size=12))
    return sorted([*found, *(Row(bucket, MARK, None, None, False) for bucket in range(3))], key=in_order)


def frames(rows: list[Row], cuts: list[int]) -> Iterator[pl.DataFrame]:
    whole = pl.DataFrame(
        {
            **dict.fromkeys(PARCELS),
            "exchange": [r.exchange for r in rows],
            "bucket": [r.bucket for r in rows],
            "payload": [GHOST if r.ghost else None for r in rows],
            "key": [r.key for r in rows],
            "value": [r.value for r in rows],
            "timestamp": [None if r.ghost else 5 for r in rows],
        },
        schema=PARCELS,
    )
    edges = [0, *sorted(cuts), len(rows)]
    return (whole[a:b] for a, b in pairwise(edges) if a < b)


@given(rows(), st.lists(st.integers(0, 15), max_size=4))
def test_a_ghost_becomes_one_tombstone_where_no_record_has_its_key(rows: list[Row], cuts: list[int]) -> None:
    found = {
        bucket: [
            row
            for frame in records(own, clock=9)
            for row in frame.select("exchange", "key", "value", "timestamp").rows()
        ]
        for bucket, own in by_partition(frames(rows, cuts))
    }
    assert found.keys() == {0, 1, 2}
    for bucket, own in found.items():
        real = [r for r in rows if r.bucket == bucket and r.exchange != MARK and not r.ghost]
        gone = {(r.exchange, r.key) for r in rows if r.bucket == bucket and r.ghost}
        assert [row for row in own if row[3] == 5] == [(r.exchange, r.key, r.value, 5) for r in real]
        buried = [row for row in own if row[3] == 9]
        assert sorted(buried) == sorted((*at, None, 9) for at in gone - {(r.exchange, r.key) for r in real})


@given(rows(), st.lists(st.integers(0, 15), max_size=4))
def test_what_a_task_took_back_is_left_out_wherever_frames_are_cut(rows: list[Row], cuts: list[int]) -> None:
    whole = [f for _, own in by_partition(frames(rows, [])) for f in records(lasts(own, {0}), clock=9)]
    found = [f for _, own in by_partition(frames(rows, cuts)) for f in records(lasts(own, {0}), clock=9)]
    assert pl.concat(found).rows() == pl.concat(whole).rows()


def test_a_frame_of_which_nothing_is_left_may_lie_between_others() -> None:
    gone = [Row(0, 0, key, None, False) for key in (b"a", b"b")]
    for count in range(4):
        kept = [Row(0, 0, b"c%d" % i, b"1", False) for i in range(count)]
        own = frames([Row(0, MARK, None, None, False), *gone, *kept], [1, 3])
        assert pl.concat(records(lasts(own, {0}), clock=9))["key"].to_list() == [row.key for row in kept]


@given(
    st.lists(st.binary(max_size=5), max_size=20),
    st.lists(st.integers(0, 20), max_size=4),
    st.integers(1, 6),
    st.integers(1, 12),
)
def test_slices_are_full_and_do_not_depend_on_frames(
    values: list[bytes], cuts: list[int], most: int, size: int
) -> None:
    whole = pl.DataFrame(
        {"key": pl.Series([None] * len(values), dtype=pl.Binary()), "value": values},
        {"key": pl.Binary(), "value": pl.Binary()},
    )
    edges = [0, *sorted(min(c, len(values)) for c in cuts), len(values)]
    cut = list(slices((whole[a:b] for a, b in pairwise(edges)), most, size))
    assert [s["value"].to_list() for s in cut] == [s["value"].to_list() for s in slices([whole], most, size)]
    assert [v for s in cut for v in s["value"].to_list()] == values
    lengths = [[len(v) for v in s["value"].to_list()] for s in cut]
    assert all(len(held) == 1 or (len(held) <= most and sum(held) <= size) for held in lengths)
    assert all(len(held) == most or sum(held) + following[0] > size for held, following in pairwise(lengths))


@pytest.fixture
def spooled(tmp_path: Path) -> Iterator[Spooled]:
    targets = (Target("keyed", 3, keyed=True), Target("round", 2, keyed=False))
    with closing(Spooled(tmp_path, 5, Epoch(7), targets)) as made:
        yield made
    assert not list(tmp_path.iterdir())


def test_records_go_where_their_keys_or_their_result_partition_say(spooled: Spooled) -> None:
    mixed = [
        Row(5, 0, None, b"n", False),
        Row(5, 0, b"a", b"1", False),
        Row(5, 0, b"b", None, True),
        Row(5, 1, None, b"x", False),
        Row(5, 1, b"a", b"y", False),
    ]
    spooled.fill(records(frames(mixed, [2]), clock=9))
    (keyed, others), _ = every_slice(spooled)
    assert (keyed.topic, keyed.keys, keyed.values, keyed.timestamps) == (
        "keyed",
        [None, b"a", b"b"],
        [b"n", b"1", None],
        [5, 5, 9],
    )
    assert keyed.partitions == [0, *((murmur2_of(k) & 0x7FFFFFFF) % 3 for k in (b"a", b"b"))]
    assert (others.topic, others.partitions, others.keys) == ("round", [1, 1], [None, b"a"])
    assert keyed.headers == [[("falkirk-epoch", b"7")]] * 3
    assert (spooled.records, spooled.tombstones) == (5, 1)


def every_slice(spooled: Spooled) -> list[list[Writes]]:
    return [run(spooled.slice(number)) for number in range(spooled.slices)]


def test_slices_are_the_same_each_time(spooled: Spooled) -> None:
    many = [Row(5, n // 30_000, b"%06d" % n, b"v" * 400, False) for n in range(50_000)]
    spooled.fill(frames(many, [7, 30_001]))
    first, again = (list(map(digest, every_slice(spooled))) for _ in range(2))
    assert first == again
    assert [sum(map(len, writes)) for writes in every_slice(spooled)] == [20_000, 20_000, 10_000, 0]


def test_of_nothing_there_is_an_empty_slice(spooled: Spooled) -> None:
    spooled.fill(records(frames([Row(5, MARK, None, None, False)], []), clock=9))
    assert every_slice(spooled) == [[]]
    assert spooled.records == 0
