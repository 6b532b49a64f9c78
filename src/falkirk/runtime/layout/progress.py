"""How far tasks are: the last records of their steps partitions, readable by anyone."""

from __future__ import annotations

from collections.abc import Sequence

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.reading import Records, decoded
from falkirk.checkpoint.records import StepRecord
from falkirk.connectors.kafka.reading.reader import BoundedReader
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout.layout import StageRecord

TAIL = 32
"""A task's last step and name are nearly always among this many of its last records."""


def last_records(settings: Settings, partitions: Sequence[TopicPartition]) -> list[Records]:
    """The last committed records of each steps partition: among them a step, if one exists."""
    reader = BoundedReader(settings.cluster())
    try:
        first, end = reader.watermarks(partitions, end=False), reader.watermarks(partitions, end=True)
        begin = {p: max(first[p], Offset(end[p] - TAIL)) for p in partitions}
        found: dict[TopicPartition, Records] = {p: [] for p in partitions}
        while todo := {p: (begin[p], end[p]) for p in partitions if begin[p] < end[p] and last_step(found[p]) is None}:
            for p, read in reader.read(todo, committed=True).items():
                found[p] = decoded(read)
                # No step there, because of many names or aborted steps: then read all of it, only once.
                begin[p] = first[p] if begin[p] > first[p] else end[p]
        return [found[p] for p in partitions]
    finally:
        reader.close()


def first_steps(settings: Settings, partitions: Sequence[TopicPartition]) -> list[StepRecord | None]:
    """The first step of each steps partition below which records were deleted: its task's low-watermark
    (`falkirk.checkpoint.regimes.floors.kept_from`), or an earlier one if records are kept for longer. None: all are there."""
    reader = BoundedReader(settings.cluster(), levels=(True,))
    try:
        first = reader.watermarks(partitions, end=False)
        read = reader.read({p: (at, Offset(at + 1)) for p, at in first.items() if at > 0}, committed=True)
        return [last_step(decoded(read[p])) if p in read else None for p in partitions]
    finally:
        reader.close()


def is_moving(stage: StageRecord, last: StepRecord) -> bool:
    """Whether a task with this last step must still migrate or rebuild something, or continue to."""
    return last.layout < stage.moving or (last.move is not None and last.move.left)


def last_step(records: Records) -> StepRecord | None:
    """The last step among them."""
    return next((r for _, r in reversed(records) if isinstance(r, StepRecord)), None)
