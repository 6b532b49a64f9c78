"""The vigil over an app's topics: what it asks, what it refuses, and what it says of a cluster that does not answer."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import pytest

from falkirk.connectors.kafka.admin.described import TopicInfo
from falkirk.errors import FalkirkError, OutgrownError, SourceError, UnreachableError
from falkirk.runtime.layout.layout import LayoutRecord, StageRecord, TopicRecord
from falkirk.runtime.worker import topic_watch
from falkirk.runtime.worker.topic_watch import TopicWatch, topic_watches
from falkirk.stream.definition.pattern import Pattern

STATS = StageRecord("stats", 2, "eager", True, "f00", "stats v1", ("bids",), ("out",))
LAYOUT = LayoutRecord(1, "app", (STATS,), {"bids": TopicRecord("a", 2, "source"), "out": TopicRecord("b", 2, "sink")})
AS_EVER = {"bids": TopicInfo("bids", "a", 2), "out": TopicInfo("out", "b", 2)}

Answer = dict[str, TopicInfo] | FalkirkError | None


@dataclass
class Names:
    """The names of all topics, at once."""

    names: list[str]

    def done(self) -> bool:
        return True

    def result(self) -> list[str]:
        return self.names


class Cluster:
    """Stands for `Topics`: answers what it is told to, or, told None, has not answered yet."""

    brokers = "broker:9092"

    def __init__(self) -> None:
        self.answer: Answer = dict(AS_EVER)
        self.asked = 0
        self.names: list[str] = []

    def ask(self, names: Iterable[str], timeout: float) -> Cluster:
        assert set(names) - {"bids-more"} == {"bids", "out"}
        self.asked += 1
        return self

    def ask_names(self) -> Names:
        return Names(self.names)

    def done(self) -> bool:
        return self.answer is not None

    def result(self) -> dict[str, TopicInfo]:
        if isinstance(self.answer, FalkirkError):
            raise self.answer
        assert self.answer is not None
        return dict(self.answer)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(topic_watch, "EVERY", 0.0)
    return Cluster()


def look(over: TopicWatch) -> None:
    """Ask, and take the answer in."""
    over.tick()
    over.tick()


def watch(cluster: Cluster) -> TopicWatch:
    return TopicWatch(LAYOUT, cluster)  # type: ignore[arg-type]


def test_topics_that_are_as_they_were_are_fine_and_so_is_a_sink_that_is_gone(cluster: Cluster) -> None:
    over = watch(cluster)
    look(over)
    cluster.answer = {"bids": AS_EVER["bids"]}
    for _ in range(3):
        look(over)


def test_it_waits_for_no_answer_and_asks_no_second_time_meanwhile(cluster: Cluster) -> None:
    over = watch(cluster)
    cluster.answer = None
    for _ in range(5):
        over.tick()
    assert cluster.asked == 1


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (TopicInfo("bids", "a", 3), "partitions were added to topic 'bids': it had 2 and has 3"),
        (TopicInfo("bids", "z", 2), "topic 'bids' was deleted and recreated"),
    ],
)
def test_a_source_that_is_another_now_ends_the_run_at_once(cluster: Cluster, now: TopicInfo, words: str) -> None:
    over = watch(cluster)
    cluster.answer = {**AS_EVER, "bids": now}
    with pytest.raises(SourceError) as caught:
        look(over)
    assert caught.value.what.startswith(words)


def test_a_source_that_is_missing_is_looked_for_twice(cluster: Cluster) -> None:
    over = watch(cluster)
    cluster.answer = {"out": AS_EVER["out"]}
    look(over)
    cluster.answer = dict(AS_EVER)
    look(over)
    cluster.answer = {"out": AS_EVER["out"]}
    look(over)
    with pytest.raises(SourceError, match="topic 'bids' is gone"):
        look(over)


def test_silence_is_told_once_in_a_while_and_so_is_its_end(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    over = watch(cluster)
    with caplog.at_level(logging.WARNING, "falkirk.kafka"):
        look(over)
        cluster.answer = UnreachableError("no broker answers: timed out")
        for _ in range(3):
            look(over)
        assert over.waits() == "broker:9092 has not answered for 0 s"
        cluster.answer = dict(AS_EVER)
        look(over)
        look(over)
    assert over.waits() == ""
    silence, end = caplog.messages
    assert silence.startswith("broker:9092 has not answered for")
    assert end.startswith("broker:9092 answers again, after")


def test_partitions_that_are_added_to_a_source_that_may_grow_are_told_and_a_broker_may_not_know_them_yet(
    cluster: Cluster,
) -> None:
    over = TopicWatch(LAYOUT, cluster, growing={"bids", "of-another-cluster"})  # type: ignore[arg-type]
    assert isinstance(cluster.answer, dict)
    for partitions in (2, 1, 2):
        cluster.answer["bids"] = TopicInfo("bids", "a", partitions)
        look(over)
    cluster.answer["bids"] = TopicInfo("bids", "a", 5)
    with pytest.raises(OutgrownError, match="topic bids has 3 more partitions"):
        look(over)
    cluster.answer["bids"] = TopicInfo("bids", "z", 5)
    with pytest.raises(SourceError, match="deleted and recreated"):
        look(over)


def test_a_topic_that_a_pattern_matches_is_told_once_the_cluster_describes_it(cluster: Cluster) -> None:
    over = TopicWatch(LAYOUT, cluster, [Pattern("bids.*")], "falkirk")  # type: ignore[arg-type]
    cluster.names = ["bids", "out", "falkirk.bids", "falkirk.app.bids", "__bids"]
    for _ in range(3):
        look(over)
    cluster.names.append("bids-more")
    for _ in range(3):
        look(over)  # it has a name, and nothing else is known of it
    assert isinstance(cluster.answer, dict)
    cluster.answer["bids-more"] = TopicInfo("bids-more", "c", 1)
    with pytest.raises(OutgrownError, match="bids-more"):
        look(over)


class Clock:
    """Stands for `time`, in what asks now and then."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


def test_partitions_without_a_leader_are_told_once_in_a_while_and_so_is_their_end(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(topic_watch, "time", clock)
    over = watch(cluster)

    def pass_(seconds: int) -> None:
        for _ in range(2 * seconds):
            clock.now += 0.5
            over.tick()

    cluster.answer = {**AS_EVER, "bids": TopicInfo("bids", "a", 2, leaderless=(1,))}
    with caplog.at_level(logging.WARNING, "falkirk.kafka"):
        pass_(4)
        assert (over.waits(), caplog.messages) == ("", [])
        pass_(50)
        assert over.waits().startswith("bids[1] has had no leader for 5")
        cluster.answer = dict(AS_EVER)
        pass_(3)
    assert over.waits() == ""
    first, second, end = caplog.messages
    assert first.startswith("bids[1] has had no leader for 5 s; nothing is lost")
    assert second.startswith("bids[1] has had no leader for 3")
    assert end.startswith("all partitions have a leader again, after 5")


def test_only_one_worker_looks_for_topics_that_join_until_there_is_a_newer_layout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, looks = Clock(), {"leader": 0, "other": 0}
    monkeypatch.setattr(topic_watch, "time", clock)

    class Counting(Cluster):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def ask_names(self) -> Names:
            looks[self.name] += 1
            return Names(["bids", "out"])

    leader, other = (
        TopicWatch(LAYOUT, Counting(name), [Pattern("bids.*")], "falkirk")  # type: ignore[arg-type]
        for name in looks
    )
    for _ in range(590):
        clock.now += 0.1
        leader.tick(True, 1)
        other.tick(False, 1)
    assert looks["leader"] >= 25
    assert looks["other"] == 0
    other.tick(False, 2)
    other.tick(False, 2)
    assert looks["other"] == 1
    clock.now += topic_watch.RARELY
    other.tick(False, 2)
    assert looks["other"] == 2


class Elsewhere(Cluster):
    """Has the topics of cluster sales."""

    def of(self, cluster: str) -> Cluster:
        assert cluster == "sales"
        return self

    def ask(self, names: Iterable[str], timeout: float) -> Cluster:
        assert set(names) <= {"sales:bids", "sales:bids-more"}
        return self


def test_a_pattern_of_another_cluster_matches_what_that_cluster_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_watch, "EVERY", 0.0)
    there = Elsewhere()
    bids = {"sales:bids": TopicRecord("c", 2, "source")}
    layout = msgspec.structs.replace(LAYOUT, topics={**LAYOUT.topics, **bids})
    patterns = [Pattern("bids.*").within("sales")]
    _, over = topic_watches(layout, there, patterns, "falkirk")  # type: ignore[arg-type]
    there.names = ["bids", "bids-more"]
    there.answer = {
        "sales:bids": TopicInfo("sales:bids", "c", 2),
        "sales:bids-more": TopicInfo("sales:bids-more", "d", 1),
    }
    with pytest.raises(OutgrownError, match="sales:bids-more"):
        look(over)


class Two(Cluster):
    """Its app reads from cluster sales too, which does not answer."""

    def of(self, cluster: str) -> Cluster:
        assert cluster == "sales"
        there = Cluster()
        there.brokers = "there:9092 (cluster sales)"
        return there

    def ask(self, names: Iterable[str], timeout: float) -> Cluster:
        if set(names) == {"sales:bids"}:
            away = Cluster()
            away.answer = UnreachableError("no broker answers: timed out")
            return away
        return super().ask(names, timeout)


def test_a_silent_cluster_is_named_and_what_is_wrong_in_the_other_is_seen_all_the_same(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    topics = {**LAYOUT.topics, "sales:bids": TopicRecord("c", 2, "source")}
    two = Two()
    own, there = topic_watches(msgspec.structs.replace(LAYOUT, topics=topics), two, [], "falkirk")  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING, "falkirk.kafka"):
        look(own)
        look(there)
    [silence] = caplog.messages
    assert silence.startswith("there:9092 (cluster sales) has not answered for")
    two.answer = {**AS_EVER, "bids": TopicInfo("bids", "z", 2)}
    with pytest.raises(SourceError, match="topic 'bids' was deleted and recreated"):
        look(own)
