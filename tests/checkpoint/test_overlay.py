"""Staged changes over a store: what is read, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falkirk.checkpoint.overlay import TAIL, EmptyReader, Overlay
from falkirk.state.store import Changes

KEYS = st.binary(min_size=1, max_size=2)
PUTS = st.dictionaries(KEYS, st.one_of(st.none(), st.binary(max_size=1)), max_size=8)


def put(overlay: Overlay, changes: Changes) -> None:
    overlay.put(list(changes), list(changes.values()))


@given(st.lists(PUTS, max_size=4), st.lists(st.tuples(PUTS, KEYS, KEYS), max_size=8))
def test_a_scan_sees_what_is_staged_over_what_is_below(
    below: list[Changes], above: list[tuple[Changes, bytes, bytes]]
) -> None:
    expected: dict[bytes, bytes | None] = {}
    store = Overlay(EmptyReader())
    for changes in below:
        put(store, changes)
        expected |= changes
    overlay = Overlay(store)
    for changes, start, end in above:
        put(overlay, changes)
        expected |= changes
        due = sorted((k, v) for k, v in expected.items() if v is not None and start <= k < end)
        assert list(overlay.scan(start, end)) == due


@given(st.integers(1, 4 * TAIL), st.integers(1, 4 * TAIL))
def test_many_keys_are_as_in_order_as_few(first: int, second: int) -> None:
    overlay = Overlay(EmptyReader())
    for number in (first, second):
        keys = [b"%06d" % (n * 7919 % 10_007) for n in range(number)]
        overlay.put(keys, keys)
        found = [key for key, _ in overlay.scan(b"", b"\xff")]
        assert found == sorted(overlay.changes)


def test_what_is_staged_while_a_scan_is_under_way_does_not_disturb_it() -> None:
    overlay = Overlay(EmptyReader())
    keys = [b"%04d" % n for n in range(3 * TAIL)]
    overlay.put(keys[::2], keys[::2])
    scan = overlay.scan(b"", b"\xff")
    assert next(scan) == (keys[0], keys[0])
    for key in keys[1::2]:
        overlay.put([key], [key])
        list(islice(overlay.scan(key, b"\xff"), 1))
    assert [key for key, _ in scan] == keys[2::2]


class Counted(bytes):
    """A key that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: bytes) -> bool:
        Counted.compared += 1
        return bytes.__lt__(self, other)

    def __ge__(self, other: bytes) -> bool:  # what Python asks for `other <= self`
        Counted.compared += 1
        return bytes.__ge__(self, other)

    __hash__ = bytes.__hash__


def cost_of_scans(groups: int) -> int:
    """Comparisons of a step in which each of so many groups has one value go and another come, and asks for its first."""
    Counted.compared = 0
    overlay = Overlay(EmptyReader())
    keys = [Counted(b"%08d%s" % (n * 7919 % 1_000_003, tail)) for n in range(groups) for tail in (b"a", b"b")]
    overlay.put(keys, [None, b"1"] * groups)
    for key in keys[::2]:
        assert next(overlay.scan(key[:8], key[:8] + b"\xff")) == (key[:8] + b"b", b"1")
    return Counted.compared


def cost_in_turn(keys: int) -> int:
    """Comparisons where a key is put and looked for, then the next."""
    Counted.compared = 0
    overlay = Overlay(EmptyReader())
    for n in range(keys):
        key = Counted(b"%08d" % (n * 7919 % 1_000_003))
        overlay.put([key], [b"1"])
        assert next(overlay.scan(key, key + b"\0")) == (key, b"1")
    return Counted.compared


@pytest.mark.parametrize(("cost", "size"), [(cost_of_scans, 4_000), (cost_in_turn, 4_000)])
def test_twice_as_many_scans_cost_little_more_than_twice_as_much(cost: object, size: int) -> None:
    assert callable(cost)
    assert cost(2 * size) < 3 * cost(size)


class Endless(EmptyReader):
    """So many pairs that nobody should ask for all of them."""

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        yield start, b"1"
        raise AssertionError("more was read than was asked for")


def test_a_scan_reads_no_further_than_it_is_taken() -> None:
    overlay = Overlay(Endless())
    overlay.put([b"b"], [b"2"])
    assert next(overlay.scan(b"a", b"z")) == (b"a", b"1")
