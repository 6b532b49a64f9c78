"""How far tasks are: the last records of their steps partitions, read by anybody."""

from __future__ import annotations

from collections.abc import Sequence

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.reading import Records, decoded
from falkirk.checkpoint.records import StepRecord
from falkirk.connectors.kafka.reader import BoundedReader
from falkirk.runtime.layout import StageRecord
from falkirk.runtime.settings import Settings

TAIL = 32
"""A task's last step and name are among so many of its last records, nearly always."""


def last_records(settings: Settings, partitions: Sequence[TopicPartition]) -> list[Records]:
    """The last committed records of each steps partition: a step among them, wherever there is one."""
    reader = BoundedReader(settings.cluster())
    try:
        first, end = reader.watermarks(partitions, end=False), reader.watermarks(partitions, end=True)
        begin = {p: max(first[p], Offset(end[p] - TAIL)) for p in partitions}
        found: dict[TopicPartition, Records] = {p: [] for p in partitions}
        while todo := {p: (begin[p], end[p]) for p in partitions if begin[p] < end[p] and last_step(found[p]) is None}:
            for p, read in reader.read(todo, committed=True).items():
                found[p] = decoded(read)
                # Nothing there, for there were many names or aborted steps: then all of it, and then no more.
                begin[p] = first[p] if begin[p] > first[p] else end[p]
        return [found[p] for p in partitions]
    finally:
        reader.close()


def is_moving(stage: StageRecord, last: StepRecord) -> bool:
    """Whether a task with this last step has yet to migrate or rebuild something, or to go on with it."""
    return last.layout < stage.moving or (last.move is not None and last.move.left)


def last_step(records: Records) -> StepRecord | None:
    """The last step among them."""
    return next((r for _, r in reversed(records) if isinstance(r, StepRecord)), None)
