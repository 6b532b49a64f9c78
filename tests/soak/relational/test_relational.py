"""The checker passes what the relational flow emits, and finds out each spoilt update and each broken operator."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import orjson
import pytest
from tests.soak.check.findings import Findings, Kind
from tests.soak.check.seen import Seen, Tp
from tests.soak.relational import watched
from tests.soak.relational.watched import World, check, world

from falkirk.stream.dataflow.batch import WEIGHT, Batch
from falkirk.stream.operators.groups.top_k import TopKRunner
from falkirk.stream.operators.joins import interval_step
from falkirk.stream.operators.joins.interval import IntervalJoin
from falkirk.stream.operators.joins.join_step import Pairs
from falkirk.stream.operators.loops.iterate import IterateRunner
from falkirk.stream.operators.windows.session_step import SessionRunner

pytestmark = [pytest.mark.slow]


@pytest.fixture(autouse=True, scope="module")
def _once() -> Iterator[None]:
    """A world is made once for all tests, and not kept for others."""
    yield
    world.cache_clear()


@pytest.mark.parametrize("seed", range(3))
def test_each_update_and_each_final_table_is_explained(seed: int) -> None:
    seen = world()
    assert list(check(seen, random.Random(seed))) == []


def test_rows_come_late_are_taken_back_and_come_again() -> None:
    seen = world()
    weights = [orjson.loads(r.value or b"")["weight"] for name in ("sessions", "pairs") for _, r in places(seen, name)]
    assert weights.count(-1) > 100
    assert sum(r.value is None for name in ("best", "near") for _, r in places(seen, name)) > 100
    assert all(len(list(places(seen, name))) for name in ("late-bids", "sessions-final", "visits", "paired"))


def places(seen: World, topic: str) -> Iterator[tuple[int, Seen]]:
    """The records of a topic, each with its place in its partition."""
    for tp, log in sorted(seen.logs.items()):
        if tp.topic == topic:
            yield from enumerate(log)


def spoilt(seen: World, topic: str, chosen: Callable[[Seen], bool], by: Callable[[Seen], list[Seen]]) -> World:
    """The world with one record in the middle of a topic replaced."""
    found = [(i, record) for i, record in places(seen, topic) if chosen(record)]
    i, record = found[len(found) // 2]
    log = seen.logs[record.tp]
    return seen.spoilt(record.tp, *log[:i], *by(record), *log[i + 1 :])


def retraction(record: Seen) -> bool:
    return record.value is None or b'"weight":-1' in record.value


def changed(column: str) -> Callable[[Seen], list[Seen]]:
    """A number in the row is another."""

    def change(record: Seen) -> list[Seen]:
        row = orjson.loads(record.value or b"")
        return [record._replace(value=orjson.dumps(row | {column: row[column] + 1}))]

    return change


def gone(record: Seen) -> list[Seen]:
    return []


def twice(record: Seen) -> list[Seen]:
    return [record, record]


@pytest.mark.parametrize("topic", ["sessions", "pairs", "best", "near"])
def test_a_retraction_that_is_not_there_is_lost(topic: str) -> None:
    found = check(spoilt(world(), topic, retraction, gone), random.Random(1))
    assert found.counts[Kind.LOST] == 1, list(found)


@pytest.mark.parametrize("topic", ["sessions", "pairs", "best", "near", "sessions-final"])
def test_an_update_that_is_there_again_is_doubled(topic: str) -> None:
    found = check(spoilt(world(), topic, lambda _: True, twice), random.Random(1))
    assert found.counts[Kind.DOUBLED] == 1, list(found)


@pytest.mark.parametrize(
    ("topic", "column"),
    [
        ("sessions", "weight"), ("sessions", "window_end"), ("sessions-final", "n"), ("visits", "longest"),
        ("pairs", "at"), ("pairs", "weight"), ("paired", "gain"), ("best", "price"), ("late-bids", "id"),
    ],
)  # fmt: skip
def test_an_update_with_another_value_is_wrong(topic: str, column: str) -> None:
    found = check(spoilt(world(), topic, lambda r: r.value is not None, changed(column)), random.Random(1))
    assert found.counts[Kind.WRONG] >= 1, list(found)


@pytest.mark.parametrize("topic", ["pairs", "best", "near", "sessions", "sessions-final"])
def test_an_update_with_another_timestamp_is_wrong(topic: str) -> None:
    later = spoilt(world(), topic, lambda _: True, lambda r: [r._replace(timestamp=r.timestamp + 1)])
    assert check(later, random.Random(1)).counts[Kind.WRONG] == 1


@pytest.mark.parametrize("topic", ["visits", "paired", "best", "near"])
def test_a_final_table_that_another_bid_would_give_is_found_out(topic: str) -> None:
    """The input has another bid than what the operators saw: steps and tables must both tell."""
    seen = world()
    tp = Tp("bids", 0)
    *others, last = seen.logs[tp]
    bid = orjson.loads(last.value or b"")
    bid |= {"auction": 3, "bidder": 5, "price": 1, "at": bid["at"] + 5_000}
    found = check(seen.spoilt(tp, *others, last._replace(value=orjson.dumps(bid))), random.Random(1))
    assert any(words.startswith(f"table: {topic}:") for words in found), list(found)


def verdict_on(broken: pytest.MonkeyPatch, target: object, name: str, by: object) -> Findings:
    """The checker's findings where an operator does something else."""
    broken.setattr(target, name, by)
    return check(watched.world.__wrapped__(400, crashes=0), random.Random(1))


def test_a_join_that_does_not_take_lonely_rows_back_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> Pairs:
        none = np.zeros(0, np.int64)
        return Pairs(none, none, none, none)

    found = verdict_on(monkeypatch, interval_step, "_flipped", never)
    assert found.counts[Kind.LOST] > 10
    assert found.counts[Kind.TABLE] > 1
    assert any("in pairs: key" in words and "'weight': -1" in words for words in found)


def test_a_join_that_forgets_too_early_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for an inner join: a row that is alone again takes back nulls that are not there."""
    short = property(lambda join: (max(join.upper, 0), max(-join.lower, 0)))
    found = verdict_on(monkeypatch, IntervalJoin, "kept", short)
    assert any("in pairs: key" in words and "is not due" in words for words in found)


def test_sessions_that_are_not_taken_back_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    change = SessionRunner._change

    def only_new(*given: Any) -> Batch:
        whole = change(*given)
        return whole.filter(whole.meta[WEIGHT] > 0)

    found = verdict_on(monkeypatch, SessionRunner, "_change", only_new)
    assert found.counts[Kind.LOST] > 10
    assert any(words.startswith("table: visits:") for words in found)


def test_a_top_that_is_not_filled_again_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    found = verdict_on(monkeypatch, TopKRunner, "_refilled", lambda *given: given[-1])
    assert any("in best: key" in words for words in found)
    assert any(words.startswith("table: best:") for words in found)


def test_a_loop_that_only_grows_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    change = IterateRunner.change
    growing = lambda *given: {row: n for row, n in change(*given).items() if n > 0}  # noqa: E731
    found = verdict_on(monkeypatch, IterateRunner, "change", growing)
    assert any("in near: key" in words for words in found)
    assert any(words.startswith("table: near:") for words in found)
