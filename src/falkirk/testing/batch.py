"""An epoch of a batch stage in memory: over the topics of a `MemoryApp`, cut anywhere, and sorted as an engine would.

>>> import falkirk as fk
>>> flow = fk.Flow("words", regime=fk.Batch())
>>> words = flow.source("words", key="word", value=fk.Json({"word": fk.String}))
>>> words.group_by("word").agg(n=fk.len()).sink("counts", key="word", value=fk.Json())
>>> from falkirk.testing.memory import MemoryApp
>>> app = MemoryApp(flow)
>>> app.append("words", b"a", b'{"word":"a"}')
>>> [r.value() for r in epoch(app)["counts"]]
[b'{"word":"a","n":1}']
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import polars as pl

from falkirk.stream.batch import PARCELS, BatchStage, Piece
from falkirk.stream.dataflow.records import Message, Records
from falkirk.stream.stages.plan import Plan
from falkirk.testing.memory import Record

SORTED = ["level", "exchange", "bucket", "order"]

Division = Mapping[tuple[str, int], tuple[int, int]]
"""By topic and partition: start ≤ offset < end."""


class AppTopics(Protocol):
    """An app's plan, and the contents of its topics, partition by partition: for example a `MemoryApp`."""

    @property
    def plan(self) -> Plan: ...
    @property
    def topics(self) -> Mapping[str, Sequence[Sequence[Message]]]: ...


def epoch(
    app: AppTopics,
    rng: random.Random | None = None,
    *,
    tasks: random.Random | None = None,
    stage: str | None = None,
    division: Division | None = None,
    dead_letters_from: Mapping[tuple[str, int], int] | None = None,
    clock: int = 0,
    buckets: int | None = None,
    result_partitions: int = 3,
) -> dict[str, list[Record]]:
    """What a batch stage writes, by the output's id: partitions are result partitions. Without a division, it reads all that
    is in the topics. `rng` cuts pieces and chunks, which are constant for an epoch elsewhere; `tasks`, or else `rng`, cuts
    what is not: frames, and which task gets which bucket. Without them nothing is cut."""
    (found,) = [batch for batch in app.plan.batches if stage in (None, batch.id)]
    whole = {(t, p): (0, len(part)) for t, parts in app.topics.items() for p, part in enumerate(parts)}
    ranges = whole if division is None else division
    pieces = [(piece, list(_chunks(app, found, piece, rng))) for piece in _pieces(found, ranges, rng)]
    job = found.job(
        clock=clock,
        records=250_000 * (buckets or 0),
        result_partitions=result_partitions,
        dead_letters_from=dead_letters_from or {},
    )
    tasks = tasks or rng
    if tasks:
        tasks.shuffle(pieces)
    frames = [frame for piece, chunks in pieces for frame in job.head(piece, chunks)]
    for n in range(1, job.levels + 1):
        frames = [frame for task in tasks_of(frames, tasks) for frame in job.level(n, cut(task, tasks))]
    written: dict[str, list[Record]] = {output.id: [] for output in found.outputs}
    for row in sorted_rows(frames).iter_rows(named=True):
        assert row["level"] == job.levels + 1
        records = written[found.outputs[row["exchange"]].id]
        records.append(Record(row["bucket"], len(records), row["key"], row["value"], row["timestamp"]))
    return written


def _pieces(stage: BatchStage, division: Division, rng: random.Random | None) -> Iterator[Piece]:
    size = rng.randint(1, 20) if rng else 250_000
    for number, source in enumerate(stage.inputs):
        for (topic, partition), (start, end) in division.items():
            if topic == source.topic:
                for at in range(start, end, size):
                    yield Piece(number, topic, partition, at, min(at + size, end))


def _chunks(app: AppTopics, stage: BatchStage, piece: Piece, rng: random.Random | None) -> Iterator[Records]:
    part = app.topics[piece.topic][piece.partition]
    at = piece.start
    while at < piece.end:
        end = rng.randint(at, piece.end) if rng else piece.end
        yield Records.of(part[at:end], headers=stage.inputs[piece.source].headers)
        at = end


def tasks_of(frames: Sequence[pl.DataFrame], rng: random.Random | None) -> Iterator[pl.DataFrame]:
    """The rows of each task: all rows of a bucket go to one task, and nothing else is guaranteed."""
    count = rng.randint(1, 3) if rng else 1
    tasks: defaultdict[int, list[pl.DataFrame]] = defaultdict(list)
    for _, rows in sorted_rows(frames).group_by(SORTED[:3], maintain_order=True):
        tasks[rng.randrange(count) if rng else 0].append(rows)
    for of_one in tasks.values():
        yield pl.concat(of_one)


def cut(frame: pl.DataFrame, rng: random.Random | None) -> Iterator[pl.DataFrame]:
    """The same rows in frames."""
    at = 0
    while at < frame.height:
        end = rng.randint(at + 1, frame.height) if rng else frame.height
        yield frame[at:end]
        at = end


def sorted_rows(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """All rows of some frames, in the order of levels, exchanges, buckets and places."""
    whole = pl.concat([PARCELS.to_frame(), *frames])
    assert not whole.unique().select(SORTED).is_duplicated().any()
    return whole.sort(SORTED)
