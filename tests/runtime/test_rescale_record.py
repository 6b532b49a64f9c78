"""What is recorded of a rescaling: it has to fit into one record, however many tasks there are."""

from __future__ import annotations

import msgspec

from falkirk.checkpoint.ids import InputPartition, Millis, Nonce, Offset, OwnerId, Step
from falkirk.checkpoint.records import Range, StepRecord
from falkirk.runtime.layout.layout import LayoutRecord, StageRecord, TopicRecord
from falkirk.runtime.rescale.ends import ends_of
from falkirk.runtime.rescale.record import Rescaling

TASKS, PARTITIONS = 1_000, 100
EDGE, TABLE = (InputPartition("", topic, f"{topic}-id", 0) for topic in ("edge", "names"))


def stage(number: int) -> StageRecord:
    return StageRecord(f"stage {number}", TASKS, "eager", True, "f00", "1: a v1", ("edge", "names"), ("out",))


def last(task: int) -> StepRecord:
    """Of a task that reads its partition of an edge, and looks up in a table."""
    read = [EDGE._replace(partition=task), *(TABLE._replace(partition=p) for p in range(PARTITIONS))]
    division = tuple(Range(place, Offset(0), Offset(1_000_000 + task)) for place in read)
    return StepRecord(f"s/{task}", Step(task), Nonce("n"), OwnerId("w"), Millis(task), division, (), "")


def test_it_fits_into_one_record() -> None:
    topics = {"edge": TopicRecord("edge-id", TASKS, "edge"), "names": TopicRecord("names-id", PARTITIONS, "source")}
    before = LayoutRecord(1, "app", tuple(map(stage, range(20))), topics)
    steps = [last(task) for task in range(TASKS - 1)]
    ends = ends_of(before, {s.id: [*steps, None] for s in before.stages})
    found = Rescaling(before, ends, {s.id: 7 for s in before.stages})
    assert len(msgspec.json.encode(found)) < 500_000
    assert found.first("stage 3") == (TASKS - 1, TASKS - 2)
    assert found.ended("stage 3") == {TABLE._replace(partition=p): 1_000_000 + TASKS - 2 for p in range(PARTITIONS)}
    assert found.ends["stage 3"].steps[-2:] == (TASKS - 2, -1)
