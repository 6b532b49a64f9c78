"""A read gives the committed records of its division, and no others; or else an error that says what is in the way."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable

import pytest
from tests.connectors.spark.topics import Found, Topic, read
from tests.waiting import PATIENCE_S

from falkirk.checkpoint.ids import Millis, Nonce, OwnerId, Step
from falkirk.checkpoint.records import Named, StepRecord, encode
from falkirk.connectors.embedded import EmbeddedKafka
from falkirk.connectors.spark import reading
from falkirk.errors import ClusterError, ConfigError, FalkirkError, SourceError, UnreachableError

pytestmark = pytest.mark.kafka

MakeTopic = Callable[..., Topic]


def within(found: list[Found], ranges: dict[int, list[int]]) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [
        (f.partition, f.offset, f.key, f.value)
        for f in found
        if f.partition in ranges and ranges[f.partition][0] <= f.offset < ranges[f.partition][1]
    ]


def places(rows: list[dict[str, object]]) -> list[tuple[object, ...]]:
    return [(row["partition"], row["offset"], row["key"], row["value"]) for row in rows]


@pytest.mark.slow
def test_any_range_of_any_mix_of_transactions_is_what_a_committed_reader_finds_there(topic: MakeTopic) -> None:
    random_ = random.Random(7)
    mixed = topic(partitions=3)
    for turn in range(16):
        values = {p: [(f"k{turn}", f"{turn}-{p}-{i}") for i in range(random_.randrange(4))] for p in range(3)}
        match random_.randrange(4):
            case 0:
                for partition, some in values.items():
                    mixed.send(some, partition)
            case 1:
                mixed.transaction(values, commit=False)
            case _:
                mixed.transaction(values)
    found, ends = mixed.committed(), mixed.ends()
    assert found
    assert places(read(mixed.brokers, mixed.name)) == within(found, {p: [0, end] for p, end in ends.items()})
    for _ in range(6):
        ranges = {p: sorted(random_.choices(range(end + 1), k=2)) for p, end in ends.items() if random_.random() < 0.8}
        if ranges:
            rows = read(mixed.brokers, mixed.name, ranges=ranges, slice=random_.choice([9, 1000]))
            assert places(rows) == within(found, ranges)


def test_a_range_of_nothing_but_aborted_records_and_markers_ends(topic: MakeTopic) -> None:
    hollow = topic()
    hollow.transaction({0: ["a", "b", "c"]}, commit=False)
    hollow.transaction({0: ["d"]}, commit=False)
    assert hollow.ends() == {0: 6}
    for ranges in ({0: [0, 6]}, {0: [3, 4]}, {0: [1, 2]}):
        assert read(hollow.brokers, hollow.name, ranges=ranges) == []
    hollow.transaction({0: ["e"]})
    assert [r["value"] for r in read(hollow.brokers, hollow.name)] == [b"e"]


def test_empty_ranges_and_empty_topics_give_no_rows(topic: MakeTopic) -> None:
    empty = topic(partitions=2)
    assert read(empty.brokers, empty.name) == []
    empty.send(["a"])
    assert read(empty.brokers, empty.name, ranges={0: [1, 1], 1: [0, 0]}) == []
    assert read(empty.brokers, empty.name, starting="latest") == []


def test_times_bound_a_range_by_the_first_records_that_are_as_late(topic: MakeTopic) -> None:
    timed = topic()
    for at in (1000, 2000, 3000):
        timed.send([at], timestamp=at)
    assert [r["value"] for r in read(timed.brokers, timed.name, starting=2000)] == [b"2000", b"3000"]
    assert [r["value"] for r in read(timed.brokers, timed.name, ending="1970-01-01T00:00:02+00:00")] == [b"1000"]
    assert read(timed.brokers, timed.name, starting=9000) == []


def test_a_commit_that_comes_while_a_range_is_read_is_waited_for(topic: MakeTopic) -> None:
    late = topic()
    late.send(["before"])
    producer = late.open({0: ["within"]})
    timer = threading.Timer(0.7, producer.commit_transaction)
    timer.start()
    began = time.monotonic()
    assert [r["value"] for r in read(late.brokers, late.name)] == [b"before", b"within"]
    assert time.monotonic() - began > 0.5
    timer.join()


def test_a_transaction_that_stays_open_is_named_when_patience_ends(topic: MakeTopic) -> None:
    held = topic()
    held.send(["before"])
    producer = held.open({0: ["within"]})
    with pytest.raises(UnreachableError, match=r"a transaction has been open for 1 s.*\n.*\[0\] at offset 1\n"):
        read(held.brokers, held.name, patience="1s")
    assert [r["value"] for r in read(held.brokers, held.name, ranges={0: [0, 1]})] == [b"before"]
    producer.abort_transaction()


@pytest.mark.slow
def test_what_compaction_leaves_is_read(embedded: Callable[..., EmbeddedKafka], topic_prefix: str) -> None:
    with embedded(settings={"log.cleaner.backoff.ms": "50"}) as broker:
        config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "50"}
        holey = Topic(broker.bootstrap, topic_prefix + "compacted", 1, config)
        for i in range(60):
            holey.send([(f"k{i % 3}", i)])
            if i % 10 == 9:
                time.sleep(0.1)
        deadline = time.monotonic() + PATIENCE_S
        while len(found := holey.committed()) > 30 and time.monotonic() < deadline:
            time.sleep(0.2)
            holey.send([("more", 0)])  # a segment is rolled when something is appended to it
        assert len(found) <= 30
        rows = places(read(holey.brokers, holey.name))
    # The cleaner may go on between the two, but never adds.
    assert set(rows) <= set(within(found, {0: [0, 10**6]}))
    assert {key for _, _, key, _ in rows} >= {b"k0", b"k1", b"k2"}


def test_a_range_older_than_retention_is_refused_when_it_is_loaded(topic: MakeTopic) -> None:
    old = topic()
    old.send(range(10))
    old.trim(0, 5)
    with pytest.raises(
        SourceError, match=r"begins at offset 3, and the partition at 5 now\n.*partition 0\n.*starting="
    ):
        read(old.brokers, old.name, ranges={0: [3, 10]})
    assert [r["value"] for r in read(old.brokers, old.name)] == [b"5", b"6", b"7", b"8", b"9"]
    assert read(old.brokers, old.name, ranges={0: [2, 2]}) == []


def test_retention_that_overtakes_a_read_is_an_error_wherever_it_does(topic: MakeTopic) -> None:
    old = topic()
    old.send(range(10))
    options = {"brokers": old.brokers, "topic": old.name}
    division = reading.fix(options)
    (piece,) = reading.plan(options, division, 2)
    old.trim(0, 5)
    with pytest.raises(SourceError, match="begins at offset 0, and the partition at 5 now"):
        reading.plan(options, division, 2)
    with pytest.raises(SourceError, match=r"records of the range were deleted.*\n.*\[0\] from offset 0\n"):
        list(reading.read(options, division, piece))


def test_a_topic_that_was_made_anew_is_not_the_one_that_was_meant(topic: MakeTopic) -> None:
    anew = topic()
    anew.send(range(10))
    options = {"brokers": anew.brokers, "topic": anew.name}
    division = reading.fix(options)
    (piece,) = reading.plan(options, division, 2)
    anew.again()
    anew.send(range(20))
    with pytest.raises(SourceError, match="the topic was recreated"):
        reading.plan(options, division, 2)
    with pytest.raises(SourceError, match="the topic was recreated"):
        list(reading.read(options, division, piece))
    with pytest.raises(SourceError, match=re.escape(f"whose id was {division[0]}")):
        reading.fix({**options, "topic_id": division[0]})


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"ranges": {0: [0, 11]}}, SourceError, "the range ends at offset 11, and the partition at 10"),
        ({"ranges": {1: [0, 1]}}, SourceError, "there is no partition 1: the topic has 1"),
        ({"topic": "nowhere-at-all"}, ClusterError, "topic 'nowhere-at-all' does not exist"),
        ({"step": 3, "app": "nobody"}, ConfigError, "no app of that name has run here"),
        ({"kafka.no.such.setting": "1"}, ConfigError, "No such configuration property"),
    ],
)
def test_what_cannot_be_read_is_said(
    topic: MakeTopic, options: dict[str, object], error: type[FalkirkError], says: str
) -> None:
    ten = topic()
    ten.send(range(10))
    with pytest.raises(error, match=says):
        read(ten.brokers, **{"topic": ten.name, **options})  # type: ignore[arg-type]


@pytest.mark.slow
def test_an_output_as_of_a_step_has_what_the_steps_up_to_it_wrote(topic: MakeTopic) -> None:
    sink, steps = topic("sink"), topic(".app.steps", partitions=2)
    app = {"app": "app", "prefix": steps.name.removesuffix(".app.steps")}
    for step in range(4):
        for task in (0, 1):
            values = [f"{task}-{step}-{i}" for i in range(step)]
            sink.send(values, headers=[("falkirk", f"stats/{task} {step} 0".encode())])
            if task == 0 or step < 3:
                steps.transaction({task: [encode(step_record(f"stats/{task}", step))]})
    sink.send(["somebody else's"])
    steps.transaction({1: [encode(Named(Nonce("b"), OwnerId("w")))]})

    def found(step: object) -> list[str]:
        return sorted(row["value"].decode() for row in read(sink.brokers, sink.name, step=step, **app))

    assert found(2) == ["0-1-0", "0-2-0", "0-2-1", "1-1-0", "1-2-0", "1-2-1"]
    assert found({"stats/0": 3, "stats/1": 0}) == ["0-1-0", "0-2-0", "0-2-1", "0-3-0", "0-3-1", "0-3-2"]
    with pytest.raises(SourceError, match="task stats/1 has not committed step 3 yet: its last is 2"):
        found(3)
    with pytest.raises(SourceError, match="task stats/7 has not committed step 0 yet: its last is none"):
        found({"stats/7": 0})


def step_record(task: str, step: int) -> StepRecord:
    return StepRecord(task, Step(step), Nonce("a"), OwnerId("w"), Millis(0), (), (), "")
