"""An epoch in a real Spark, from topics to topics."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.connectors.spark.batch import jobs
from tests.connectors.spark.batch.jobs import Totals, totals
from tests.connectors.spark.topics import Topic

from falkirk.checkpoint.ids import Epoch, Offset
from falkirk.checkpoint.publishing import Outcome
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.spark.epochs.epoch import run_epoch
from falkirk.connectors.spark.epochs.watching import Progress
from falkirk.connectors.spark.epochs.work import Published, Publishing, ReplacedRange, Target
from falkirk.errors import FalkirkError, SourceError, UserCodeError
from falkirk.stream.batch import Piece

pytestmark = pytest.mark.kafka

MakeTopic = Callable[..., Topic]
TOTALS = Totals()


@dataclass
class Bench:
    """Topics to read, to write and to keep progress in; and epochs over them."""

    spark: SparkSession
    source: Topic
    sums: Topic
    lengths: Topic
    progress: Topic
    told: list[Progress] = field(default_factory=list)

    def pieces(self, most: int = 10**6) -> list[Piece]:
        return [
            Piece(0, self.source.name, p, start, min(start + most, end))
            for p, end in self.source.ends().items()
            for start in range(0, end, most)
        ]

    def epoch(
        self,
        job: Any = TOTALS,
        number: int = 0,
        ghosts: tuple[ReplacedRange, ...] = (),
        pieces: list[Piece] | None = None,
    ) -> list[Published]:
        targets = Target(self.sums.name, self.sums.partitions, keyed=True), Target(self.lengths.name, 2, keyed=False)
        return run_epoch(
            self.spark,
            job,
            cluster=Cluster(self.source.brokers),
            pieces=self.pieces() if pieces is None else pieces,
            topic_ids={self.source.name: self.source.topics.describe([self.source.name])[self.source.name].id},
            headers=[False],
            ghosts=ghosts,
            publishing=Publishing(
                Epoch(number), Offset(number), self.progress.name, self.progress.name, "totals", targets
            ),
            on_progress=self.told.append,
        )

    def written(self) -> tuple[dict[bytes | None, bytes | None], Counter[bytes | None]]:
        """The last record of each key, and the records without one."""
        return {f.key: f.value for f in self.sums.committed()}, Counter(f.value for f in self.lengths.committed())


@pytest.fixture
def bench(spark: SparkSession, topic: MakeTopic) -> Bench:
    return Bench(spark, topic("in", 2), topic("sums", 3), topic("lengths", 2), topic("progress", 5))


def fill(bench: Bench, count: int, keys: int = 50) -> list[bytes]:
    """Records in both partitions, some of them in transactions that come to nothing."""
    values = [b"%s=%d" % (bytes([n % keys]) * (1 + n % 3), n) for n in range(count)]
    bench.source.transaction({0: values[::2], 1: values[1::2]})
    bench.source.transaction({0: [b"never=1"], 1: [b"never=1"]}, commit=False)
    return values


@pytest.mark.slow
def test_an_epoch_writes_what_its_job_makes_of_the_division_and_nothing_when_it_is_run_again(bench: Bench) -> None:
    values = fill(bench, 900)
    found = bench.epoch(pieces=bench.pieces(100))
    assert [(f.result_partition, f.outcome, f.tombstones) for f in found] == [
        (n, Outcome.PUBLISHED, 0) for n in range(4)
    ]
    sums, lengths = totals(values)
    assert bench.written() == (sums, lengths)
    assert sum(f.records for f in found) == len(sums) + lengths.total()
    ends = bench.sums.ends(), bench.lengths.ends(), bench.progress.ends()
    assert bench.epoch(pieces=bench.pieces(70)) == found
    assert (bench.sums.ends(), bench.lengths.ends(), bench.progress.ends()) == ends


@pytest.mark.slow
def test_an_epoch_of_nothing_is_complete_too(bench: Bench) -> None:
    assert [f.outcome for f in bench.epoch(pieces=[])] == [Outcome.PUBLISHED] * 4
    assert bench.written() == ({}, Counter())
    assert all(end > 0 for p, end in bench.progress.ends().items() if p)


@pytest.mark.slow
def test_keys_that_are_gone_get_tombstones_and_no_others(bench: Bench) -> None:
    fill(bench, 300)
    pieces = bench.pieces()
    bench.epoch(pieces=pieces)
    before = bench.sums.committed()
    bench.sums.send([("somebody's", "else")])
    ghosts = tuple(ReplacedRange(0, bench.sums.name, p, Offset(0), Offset(end)) for p, end in bench.sums.ends().items())
    fewer = [piece._replace(end=5) for piece in pieces]
    found = bench.epoch(Totals(clock=2_000), 1, ghosts, fewer)
    later = [f for f in bench.sums.committed() if f not in before]
    left = {f.key for f in later if f.value is not None and f.key != b"somebody's"}
    dead = [f for f in later if f.value is None]
    assert {f.key for f in dead} == {f.key for f in before} - left
    assert len(dead) == len({f.key for f in dead}) == sum(f.tombstones for f in found)
    assert {f.timestamp for f in dead} == {2_000}
    at = {f.key: f.partition for f in before}
    assert all(at[f.key] == f.partition for f in dead)


@pytest.mark.slow
def test_ghosts_that_retention_took_or_whose_topic_is_another_now_are_no_more(bench: Bench) -> None:
    fill(bench, 300)
    bench.epoch()
    ghosts = tuple(ReplacedRange(0, bench.sums.name, p, Offset(0), Offset(end)) for p, end in bench.sums.ends().items())
    for place, end in bench.sums.ends().items():
        bench.sums.trim(place, end)
    assert sum(f.tombstones for f in bench.epoch(Totals(), 1, ghosts, [])) == 0
    bench.sums.again()
    assert sum(f.tombstones for f in bench.epoch(Totals(), 2, ghosts, [])) == 0


@pytest.mark.slow
def test_a_worker_that_is_killed_in_the_middle_costs_nothing_but_time(bench: Bench, tmp_path: Path) -> None:
    values = fill(bench, 300)
    bench.epoch(Totals(mark=jobs.killing_once(tmp_path)))
    assert (tmp_path / "killed").exists()
    assert bench.written() == totals(values)
    assert len(bench.sums.committed()) == len(totals(values)[0])


@pytest.mark.slow
def test_what_a_task_raises_is_raised_here(bench: Bench) -> None:
    fill(bench, 10)
    with pytest.raises(UserCodeError) as caught:
        bench.epoch(Totals(mark=jobs.refusing))
    assert str(caught.value) == "map() raised ZeroDivisionError\n  where: app.py:7\n  to do: fix it"
    pieces = bench.pieces()
    bench.source.trim(0, 3)
    with pytest.raises(SourceError, match="records that the epoch is to read were deleted"):
        bench.epoch(pieces=pieces)


@pytest.mark.slow
def test_what_nobody_foresaw_is_told_in_a_line(bench: Bench) -> None:
    fill(bench, 10)
    with pytest.raises(FalkirkError, match=r"^Spark .*: ZeroDivisionError: nobody foresaw this\n") as caught:
        bench.epoch(Totals(mark=jobs.failing))
    assert type(caught.value) is FalkirkError
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.slow
def test_what_a_task_holds_at_once_is_bounded_by_bytes(bench: Bench) -> None:
    bench.source.send([b"."] * 60)
    bench.epoch(jobs.Heavy())
    (most,) = map(int, filter(None, bench.written()[1]))
    assert 1 << 20 < most < 10 << 20


@pytest.mark.slow
def test_progress_is_told_and_what_it_raises_ends_the_job(bench: Bench) -> None:
    fill(bench, 10)

    def slow(key: bytes) -> bytes:
        time.sleep(0.4)
        return key

    bench.epoch(Totals(mark=slow))
    assert Progress("read", 0, 3) in bench.told
    assert {p.what for p in bench.told} <= {"read", "level 1 of 2", "level 2 of 2", "publish"}

    def stop(progress: Progress) -> None:
        raise KeyboardInterrupt

    bench.told = type("Stop", (), {"append": staticmethod(stop)})()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        bench.epoch(Totals(mark=lambda key: time.sleep(60) or key), 1)
    assert time.monotonic() - began < 30
    assert not bench.spark.sparkContext.statusTracker().getActiveStageIds()


@pytest.mark.slow
def test_a_users_module_need_not_be_where_tasks_run(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "helping.py").write_text("def shout(key):\n    return key.upper()\n")
    (tmp_path / "users_app.py").write_text("import helping\n\ndef mark(key):\n    return helping.shout(key)\n")
    monkeypatch.syspath_prepend(tmp_path)
    import users_app  # type: ignore[import-not-found]

    (tmp_path / "helping.py").unlink()
    (tmp_path / "users_app.py").unlink()
    bench.source.send([b"a=1", b"b=2"])
    bench.epoch(Totals(mark=users_app.mark))
    assert bench.written()[0] == {b"A": b"1", b"B": b"2"}
    del sys.modules["users_app"], sys.modules["helping"]
