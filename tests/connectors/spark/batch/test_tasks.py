"""What tasks do, in processes of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from tests.connectors.spark.batch.jobs import Totals
from tests.connectors.spark.topics import Topic
from tests.waiting import PATIENCE_S

from falkirk.checkpoint.ids import Epoch, Offset, TopicPartition
from falkirk.checkpoint.ports import Writes
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.client.errors import Words
from falkirk.connectors.spark import ranges
from falkirk.connectors.spark.epochs import results, tasks
from falkirk.connectors.spark.epochs.work import ARROW, Publishing, ReplacedRange, Target, TombstoneRange, Work, table
from falkirk.connectors.spark.workers import shipped

pytestmark = pytest.mark.kafka

ORDER = ("bucket", "exchange", "key", "order")

PUBLISH = """
import sys
from pathlib import Path
import pyarrow as pa
from falkirk.connectors.spark.epochs import tasks
work, rows = map(Path, sys.argv[1:])
print(*tasks.publication(work.read_bytes(), iter(pa.ipc.open_stream(rows))))
"""


@pytest.mark.slow
def test_copies_that_publish_at_once_publish_once_though_one_is_killed(
    topic: Callable[..., Topic], tmp_path: Path
) -> None:
    sink, progress = topic("sink", 2), topic("progress", 3)
    count, job = 120_000, Totals()
    values = [b"%06d" % n for n in range(count)]
    frame = job.results(0, 0, [(None, value) for value in values]).with_columns(bucket=0, key="value")
    names = Publishing(Epoch(4), Offset(9), progress.name, progress.name, "totals", (Target(sink.name, 2, keyed=True),))
    (tmp_path / "work").write_bytes(shipped(Work(job, Cluster(sink.brokers), [], {}, [], names)))
    with pa.ipc.new_stream(tmp_path / "rows", ARROW) as out:
        for batch in table(frame):
            out.write_batch(batch)

    def publishing() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", PUBLISH, str(tmp_path / "work"), str(tmp_path / "rows")],
            env={**os.environ, "SPARK_LOCAL_DIRS": str(tmp_path)},
            stdout=subprocess.PIPE,
            text=True,
        )

    first = publishing()
    while not sink.ends()[0] and first.poll() is None:
        time.sleep(0.02)
    copies = [publishing(), publishing()]
    first.kill()
    for copy in copies:
        said, _ = copy.communicate(timeout=PATIENCE_S)
        assert copy.returncode == 0
        assert "published" in said
    first.communicate()
    assert sorted(f.value for f in sink.committed() if f.value is not None) == values


def test_what_is_published_is_computed_again_though_what_it_buried_is_gone(
    topic: Callable[..., Topic], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, progress = topic("sink"), topic("progress", 2)
    keys = [f"k{n:02}" for n in range(40)]
    sink.send([(key, "v") for key in keys], headers=[("falkirk-epoch", b"0")])
    ghosts = ReplacedRange(0, sink.name, 0, Offset(0), Offset(40))
    shares = [ghosts, TombstoneRange(0, sink.name, 0, ghosts.end), None]
    job = Totals(levels=0, result_partitions=1)
    names = Publishing(Epoch(1), Offset(1), progress.name, progress.name, "totals", (Target(sink.name, 1, keyed=True),))
    work = shipped(Work(job, Cluster(sink.brokers), shares, {}, [], names))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setattr(results, "slices", partial(results.slices, rows=5))

    def attempt() -> list[dict[str, object]]:
        numbers = pa.RecordBatch.from_pydict({"id": range(len(shares))})
        rows = pa.Table.from_batches(tasks.head(work, iter([numbers])))
        return [
            found
            for batch in tasks.publication(work, iter(rows.sort_by([(n, "ascending") for n in ORDER]).to_batches()))
            for found in batch.to_pylist()
        ]

    whole = results.Spooled.slice

    async def broken(spooled: results.Spooled, number: int) -> list[Writes]:
        if number == 3:
            raise MemoryError
        return await whole(spooled, number)

    monkeypatch.setattr(results.Spooled, "slice", broken)
    with pytest.raises(MemoryError):
        attempt()
    monkeypatch.setattr(results.Spooled, "slice", whole)
    sink.settled()
    sink.trim(0, 40)
    (found,) = attempt()
    assert (found["outcome"], found["tombstones"]) == ("published", 15)
    assert [f.key.decode() for f in sink.committed() if f.key and f.value is None] == keys[:15]


def test_chunks_are_as_large_as_their_records_allow(
    topic: Callable[..., Topic], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "FIRST", 4)
    monkeypatch.setattr(ranges, "SIZE", 1000)
    mixed = topic()
    mixed.send([b"x" * 100] * 40)
    mixed.send([b"y" * 2000] * 3)
    mixed.send([b"", None] * 30)
    place, info = TopicPartition(mixed.name, 0), mixed.topics.describe([mixed.name])[mixed.name]
    lost = Words("gone", "")
    found = list(ranges.chunks(Cluster(mixed.brokers), place, info.id, 2, 103, lost=lost, patience=20))
    assert [m.offset() for chunk in found for m in chunk] == list(range(2, 103))
    assert list(map(len, found))[:5] == [4, 10, 10, 10, 10]
    assert sum(map(len, found[5:-1])) < 50, "few large records at a time"
