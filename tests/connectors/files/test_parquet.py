"""Files of chunks: the outlet's contract on a folder, in memory and on S3, and how records are cut into chunks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from obstore.store import MemoryStore
from tests.s3 import BUCKET, S3

from falkirk.checkpoint import driver
from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.outlets import Chunk
from falkirk.connectors.files.parquet import ParquetOutlet, StepRows, made_of
from falkirk.connectors.files.places import CHECK, Bucket, Folder, Place, place_at
from falkirk.connectors.kafka.reading.outbox import chunk_of
from falkirk.errors import AwayError, StateError
from falkirk.stream.dataflow.batch import TS
from falkirk.stream.dataflow.packing import Packer

PLACE = TopicPartition("falkirk.app.files.archive", 3)


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    server = S3()
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    yield server
    server.close()


@pytest.fixture(params=["folder", "memory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "folder":
        return Folder(tmp_path / "files")
    if request.param == "memory":
        return Bucket(MemoryStore(), "memory:///")
    request.getfixturevalue("s3")
    return place_at(f"s3://{BUCKET}/some/where")


def outlet_at(place: Place, topic_id: str = "id") -> ParquetOutlet:
    return ParquetOutlet(place, "app", "archive", topic_id)


def chunk(start: int, end: int, *numbers: int, partition: int = 3) -> Chunk[Sequence[StepRows]]:
    rows = [StepRows("stage/3", start + i, pl.DataFrame({"n": [n, n]})) for i, n in enumerate(numbers)]
    return Chunk(PLACE._replace(partition=partition), Offset(start), Offset(end), rows)


def append(outlet: ParquetOutlet, chunk: Chunk[Sequence[StepRows]]) -> bool:
    return driver.run(outlet.append(chunk))


def end(outlet: ParquetOutlet, begin: int = 0) -> int:
    return driver.run(outlet.end(PLACE, Offset(begin)))


def test_a_chunk_is_appended_where_none_starts_and_refused_elsewhere(place: Place) -> None:
    ours, theirs = outlet_at(place), outlet_at(place)
    assert end(ours) == 0
    assert append(ours, chunk(0, 7, 1, 2))
    assert not append(theirs, chunk(0, 4, 1)), "another cut at the same start"
    assert end(theirs) == 7
    assert append(theirs, chunk(7, 20, 3))
    assert (end(ours), end(ours, 7), end(ours, 20), end(ours, 30)) == (20, 20, 20, 30)
    names = place.names("part-", "part-")
    assert len(names) == 2
    made = made_of(place.tail(max(names), 1 << 20), "")
    assert (made.task, made.start, made.end, made.steps) == ("stage/3", 7, 20, ((7, 2),))


def test_each_partition_sink_and_incarnation_has_its_own_chain(place: Place) -> None:
    one = outlet_at(place)
    append(one, chunk(0, 7, 1))
    append(one, chunk(0, 90, 1, partition=4))
    assert append(outlet_at(place, "other"), chunk(0, 50, 1))
    assert append(ParquetOutlet(place, "app", "archive-2", "id"), chunk(0, 60, 1))
    assert end(one) == 7


def test_a_topic_id_with_slashes_is_part_of_a_name(place: Place) -> None:
    outlet = outlet_at(place, "h6Y56iehRSie/wFk+jrf6g")
    assert append(outlet, chunk(0, 7, 1))
    assert end(outlet) == 7
    assert place.names("part-", "part-") == ["part-archive-h6Y56iehRSie_wFk-jrf6g-00003-00000000000000000000.parquet"]


def test_a_long_list_of_steps_does_not_hide_where_a_file_ends(tmp_path: Path) -> None:
    outlet = outlet_at(Folder(tmp_path))
    append(outlet, chunk(0, 99_999, *range(40_000)))
    assert end(outlet) == 99_999


def test_a_damaged_file_stops_its_sink_and_is_named(tmp_path: Path) -> None:
    outlet = outlet_at(Folder(tmp_path))
    append(outlet, chunk(0, 7, 1))
    (file,) = tmp_path.glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(StateError, match="cannot be read") as caught:
        end(outlet)
    assert caught.value.where == file.name


def test_a_request_whose_answer_is_lost_is_not_made_twice(s3: S3) -> None:
    outlet = outlet_at(place_at(f"s3://{BUCKET}/x"))
    with s3.behaving("loses"), pytest.raises(AwayError, match="cannot be written"):
        append(outlet, chunk(0, 7, 1))
    assert not append(outlet, chunk(0, 7, 1))
    assert end(outlet) == 7


def test_a_bucket_that_refuses_is_away(s3: S3) -> None:
    outlet = outlet_at(place_at(f"s3://{BUCKET}/x"))
    with s3.behaving("refuses"):
        for call in (lambda: append(outlet, chunk(0, 7, 1)), lambda: end(outlet)):
            with pytest.raises(AwayError) as caught:
                call()
            assert caught.value.where == f"s3://{BUCKET}/x"
    assert append(outlet, chunk(0, 7, 1))


def test_a_place_that_is_tried_out_stays_empty(place: Place) -> None:
    place.try_out()
    assert place.names("", CHECK) == []


WRITE = """
import sys
from pathlib import Path
from falkirk.connectors.files.places import Folder
folder, n = Folder(Path(sys.argv[1])), 0
print("ready", flush=True)
while True:
    folder.create(f"part-{n:06}.parquet", b"x" * 5_000_000)
    n += 1
"""


def test_a_killed_writer_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    for _ in range(5):
        with subprocess.Popen([sys.executable, "-c", WRITE, str(folder)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(0.05)
            os.kill(writer.pid, signal.SIGKILL)
    assert {file.stat().st_size for file in folder.iterdir()} == {5_000_000}


class Message:
    """What `chunk_of` asks of a record."""

    def __init__(self, offset: int, step: int, frame: pl.DataFrame) -> None:
        ((value, _),) = Packer(frame.with_columns(pl.lit(7, pl.Int64).alias(TS))).pack(0, frame.height)
        self._offset, self._value = offset, value
        self._headers = [("falkirk", f"stage/3 {step} 0".encode())]

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes:
        return self._value

    def headers(self) -> list[tuple[str, bytes]]:
        return self._headers

    def topic(self) -> str:
        return PLACE.topic

    def partition(self) -> int:
        return PLACE.partition


def cut(messages: Sequence[Message], end: int, most: int) -> list[tuple[int, int, list[int]]]:
    """The chunks of a log, one after the other: start, end, steps."""

    def read(start: Offset, upto: Offset) -> Any:
        return [m for m in messages if start <= m.offset() < upto]

    found, at = [], Offset(0)
    while (one := chunk_of(PLACE, at, Offset(end), read, most)) is not None:
        found.append((int(one.start), int(one.end), [step.step for step in one.rows]))
        at = one.end
        if not one.more:
            break
    return found


def test_a_chunk_ends_with_a_step_when_it_is_large_enough() -> None:
    rows = pl.DataFrame({"n": [1]})
    log = [Message(offset, step, rows) for offset, step in ((2, 1), (3, 1), (5, 2), (600, 9), (601, 9), (1200, 10))]
    assert cut(log, 1300, most=1) == [(0, 5, [1, 1]), (5, 600, [2]), (600, 1200, [9, 9]), (1200, 1300, [10])]
    assert cut(log, 1300, most=1 << 20) == [(0, 1300, [1, 1, 2, 9, 9, 10])]


def test_a_chunk_ends_where_the_columns_change() -> None:
    log = [Message(0, 1, pl.DataFrame({"n": [1]})), Message(1, 2, pl.DataFrame({"m": [1]}))]
    assert cut(log, 5, most=1 << 20) == [(0, 1, [1]), (1, 5, [2])]


def test_markers_alone_are_no_chunk() -> None:
    assert cut([], 9, most=1) == []
