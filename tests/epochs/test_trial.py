"""A minute of what `python -m tests.epochs` does for an hour, and its checker against faults that were put in by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.epochs.check import HEADER, Checker, Ended, totals
from tests.epochs.told import ToldRow, judge
from tests.epochs.trial import Trial
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1800)]


@pytest.mark.slow
def test_epochs_are_exact_though_all_they_consist_of_is_killed(tmp_path: Path) -> None:
    said: list[str] = []
    trial = Trial(tmp_path, epochs=2, seed=5, kills=2, rate=200, pause=(5.0, 12.0), show=said.append)
    assert trial.go() == [], f"evidence in {tmp_path}; {said}"
    assert min(trial.complete.values()) >= 1
    assert trial.records > 500
    assert trial.harmed.total() >= 2


BIDS = [{"id": i, "auction": i % 2, "bidder": 1, "price": 200} for i in range(8)]  # four bids on each of two auctions
RIGHT = [(b"0", {"auction": 0, "n": 4, "sum": 800}), (b"1", {"auction": 1, "n": 4, "sum": 800})]
FAULTS = {
    "lost": (RIGHT[:1], "keys differ"),
    "doubled": ([*RIGHT, RIGHT[0]], "keys twice"),
    "wrong": ([RIGHT[0], (b"1", {"auction": 1, "n": 3, "sum": 600})], "keys differ"),
    "not buried": ([*RIGHT, (b"7", {"auction": 7, "n": 1, "sum": 200})], "keys differ"),
    "buried": ([*RIGHT, (b"7", None)], "buries 1 keys where 0 are gone"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_the_checker_sees(fault: str | None, kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.epochs.check.QUERIES", {"totals": totals})
    bids, sink = f"{topic_prefix}bids", f"{topic_prefix}totals"
    admin = AdminClient({"bootstrap.servers": kafka})
    for future in admin.create_topics([NewTopic(bids, 1, 1), NewTopic(sink, 1, 1)]).values():
        future.result()
    producer = Producer({"bootstrap.servers": kafka, "enable.idempotence": True})
    for bid in BIDS:
        producer.produce(bids, json.dumps(bid), partition=0)
    rows, words = FAULTS[fault] if fault else (RIGHT, "")
    for key, row in rows:
        value = None if row is None else json.dumps(row).encode()
        producer.produce(sink, value, key, partition=0, headers=[(HEADER, b"0")])
    producer.flush(PATIENCE_S)
    checker = Checker(kafka, source=bids, sinks={"totals": sink})
    checker.seen = {"totals": {0: Ended(0, {(bids, 0): (0, len(BIDS))})}}
    found = checker.judge(1)
    assert (not found) if fault is None else any(words in line for line in found), found


TABLES: dict[int, dict[bytes, dict[str, int]]] = {-1: {}, 0: {b"0": {"n": 1, "sum": 5}}, 1: {b"0": {"n": 2, "sum": 9}}}


def bid(number: int, step: int, known: int | None, so_far: int | None) -> ToldRow:
    return ToldRow("told/0", step, b"0", {"id": number, "known": known, "so_far": so_far})


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([bid(0, 0, None, None), bid(1, 1, 1, 5), bid(2, 1, 1, 5), bid(3, 2, 2, 9)], ""),
        ([bid(0, 0, None, None), bid(1, 1, 1, 5), bid(2, 1, 2, 9), bid(3, 2, 2, 9)], "of no one epoch"),
        ([bid(0, 0, None, None), bid(1, 1, 2, 9), bid(2, 2, 1, 5), bid(3, 2, 1, 5)], "from 1 on"),
        ([bid(0, 0, None, None), bid(1, 1, 2, 5), bid(2, 2, 2, 9), bid(3, 2, 2, 9)], "of no one epoch"),
        ([bid(0, 0, None, None), bid(1, 1, 1, 5), bid(2, 1, 1, 5)], "1 of 4 bids are lost"),
        ([bid(n, 0, None, None) for n in (0, 1, 2, 3, 3)], "1 doubled"),
    ],
)
def test_what_the_stream_was_told_is_judged(rows: list[ToldRow], words: str) -> None:
    found = judge(rows, 4, TABLES)
    assert (found == []) if not words else any(words in line for line in found), found
