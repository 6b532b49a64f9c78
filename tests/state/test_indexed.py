"""The index against a dictionary, and what it reads and writes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from falkirk.state.codec import encode_key
from falkirk.state.entries import Rows
from falkirk.state.indexed import FEW_BYTES, Index
from falkirk.testing.memory import DictState

KEYS = [encode_key(0, 3, [key]) for key in ("a", "b")]
Row = tuple[int, bytes, int]
"""Key, bytes, place."""


def rows_of(changes: list[tuple[Row, int]]) -> tuple[list[bytes | None], Rows]:
    numbers = np.array([(n, 5, row[2]) for row, n in changes], np.int64).reshape(-1, 3)
    packed = [row[1] for row, _ in changes]
    return [KEYS[row[0]] for row, _ in changes], Rows(packed, numbers[:, 0], numbers[:, 1], numbers[:, 2])


def stepped(state: DictState, changes: list[tuple[Row, int]]) -> bytes | None:
    index = Index(state, 1)
    index.open(KEYS)
    return index.add(*rows_of(changes))


def content(state: DictState, spans: Any = None) -> Counter[Row]:
    index = Index(state, 1)
    index.open(KEYS)
    found = index.read(KEYS, spans)
    owner = np.repeat(np.arange(len(KEYS)), found.counts).tolist()
    total: Counter[Row] = Counter()
    for key, row, weight, place in zip(
        owner, found.rows.packed, found.rows.weights.tolist(), found.rows.places.tolist(), strict=True
    ):
        total[key, row, place] += weight
    assert index.sums(KEYS).tolist() == [sum(n for row, n in total.items() if row[0] == key) for key in (0, 1)]
    return total


SOME = st.tuples(st.integers(0, 1), st.sampled_from([b"", b"a", b"\0\1", b"x" * 90, b"y" * 700]), st.integers(-3, 3))
CHANGES = st.lists(st.lists(st.tuples(SOME, st.integers(-2, 2).filter(bool)), max_size=12), max_size=8)


@given(CHANGES, st.integers(-4, 4), st.integers(-4, 4))
def test_it_holds_the_sum_of_all_changes(steps: Any, first: int, last: int) -> None:
    state, total = DictState(), Counter[Row]()
    for step in steps:
        change: Counter[Row] = Counter()
        for row, n in step:
            change[row] += max(n, -total[row] - change[row])
        total += change
        assert stepped(state, [(row, n) for row, n in change.items() if n]) is None
        assert content(state) == +total
        within = {row: n for row, n in total.items() if n and first <= row[2] <= last}
        assert content_between(state, first, last) == within
    assert stepped(state, [(row, -n) for row, n in total.items() if n]) is None
    assert not state.data


def content_between(state: DictState, first: int, last: int) -> dict[Row, int]:
    index = Index(state, 1)
    index.open(KEYS)
    found = index.read(KEYS, [(first, last)] * len(KEYS))
    owner = np.repeat(np.arange(len(KEYS)), found.counts).tolist()
    places = found.rows.places.tolist()
    assert all(a <= b for i, j, a, b in zip(owner, owner[1:], places, places[1:], strict=False) if i == j)
    total: Counter[Row] = Counter()
    for key, row, weight, place in zip(owner, found.rows.packed, found.rows.weights.tolist(), places, strict=True):
        total[key, row, place] += weight
    return dict(total)


@given(CHANGES, st.integers(-4, 4), st.integers(1, 40))
def test_rows_up_to_a_place_are_dropped_a_few_at_a_time(steps: Any, last: int, most: int) -> None:
    state, total = DictState(), Counter[Row]()
    for step in steps:
        stepped(state, [(row, abs(n)) for row, n in step])
        for row, n in step:
            total[row] += abs(n)
    keys = KEYS
    for _ in range(200):
        index = Index(state, 1)
        index.open(keys)
        keys = keys[index.drop(keys, [(-9, last)] * len(keys), most) :]
        if not keys:
            break
    assert not keys
    assert content(state) == Counter({row: n for row, n in total.items() if row[2] > last})


@given(st.lists(st.tuples(SOME, st.just(1)), max_size=20), SOME)
def test_a_row_that_was_never_added_is_named(there: Any, row: Row) -> None:
    state = DictState()
    stepped(state, there)
    assert stepped(state, [(row, -1)]) == (None if any(row == other for other, _ in there) else row[1])


def test_a_key_with_many_rows_has_an_entry_for_each_and_one_with_few_rows_has_one_value() -> None:
    state = DictState()
    many: list[tuple[Row, int]] = [((0, b"%d" % n, n), 1) for n in range(100)]
    stepped(state, many)
    assert len(state.data) == 101
    stepped(state, [(row, -n) for row, n in many[3:]])
    assert len(state.data) == 1
    assert sum(map(len, state.data.values())) < FEW_BYTES
