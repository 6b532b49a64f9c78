"""The check of where keys lie: what each task believes, and what it recalls from an earlier run."""

from __future__ import annotations

import polars as pl
import pytest

from falkirk.errors import SourceError
from falkirk.state.shards import crc32, crc32_partition, murmur2, murmur2_partition
from falkirk.stream.dataflow.partitioners import Partitioners

KEYS = [str(i).encode() for i in range(100)]
JAVAS = [k for k, p in zip(KEYS, murmur2_partition(murmur2(KEYS), 2), strict=True) if p == 0]
PYTHONS = [k for k, p in zip(KEYS, crc32_partition(crc32(KEYS), 2), strict=True) if p == 0]


def check(partitioners: Partitioners, keys: list[bytes | None]) -> None:
    hashes = murmur2([k or b"" for k in keys])
    partitioners.check(keys, hashes, pl.Series([True] * len(keys)), lambda row: f"row {row}")


@pytest.mark.parametrize("keys", [JAVAS, PYTHONS])
def test_either_partitioner_is_believed_for_as_long_as_it_explains_all_keys(keys: list[bytes]) -> None:
    partitioners = Partitioners("source bids", 0, 2)
    check(partitioners, [*keys[:20]])
    check(partitioners, [*keys[20:]])
    other = PYTHONS if keys is JAVAS else JAVAS
    odd = next(i for i, key in enumerate(other) if key not in keys)
    with pytest.raises(SourceError) as caught:
        check(partitioners, [*keys[:3], other[odd]])
    assert repr(other[odd]) in caught.value.what
    assert caught.value.where == "source bids, row 3"
    assert "repartition=True" in caught.value.hint


def test_the_odd_one_out_is_named_though_the_others_came_with_it() -> None:
    (odd,) = [k for k in KEYS if k not in JAVAS and k not in PYTHONS][:1]
    with pytest.raises(SourceError) as caught:
        check(Partitioners("source bids", 0, 2), [JAVAS[0], JAVAS[1], odd, *JAVAS[2:]])
    assert repr(odd) in caught.value.what
    assert "row 2" in caught.value.where


def test_a_row_without_a_key_is_told_so() -> None:
    with pytest.raises(SourceError, match="a row has no key") as caught:
        check(Partitioners("source bids", 0, 2), [JAVAS[0], None])
    assert "row 1" in caught.value.where
    check(Partitioners("source bids", 0, 1), [None])


def test_what_an_earlier_run_has_seen_counts() -> None:
    """The writers go over to the other partitioner between two runs: then keys come that are at home in another task."""
    partitioners = Partitioners("source bids", 0, 2)
    partitioners.recall(lambda: JAVAS)
    moved = [k for k in PYTHONS if k not in JAVAS]
    with pytest.raises(SourceError):
        check(partitioners, [*moved])
    forgetful = Partitioners("source bids", 0, 2)
    check(forgetful, [*moved])  # without the memory, they are believed
