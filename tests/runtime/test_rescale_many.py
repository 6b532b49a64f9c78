"""A rescaling of thousands of tasks: what is recorded of it fits into one record, and their states into one process."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock, patch

import msgspec
import pytest

from falkirk.checkpoint.ids import InputPartition, Millis, Nonce, Offset, OwnerId, Step
from falkirk.checkpoint.records import Range, StepRecord
from falkirk.errors import StateError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout.layout import LayoutRecord, StageRecord, TopicRecord
from falkirk.runtime.rescale.ends import check_new, ends_of
from falkirk.runtime.rescale.record import Rescaling, StageEnd
from falkirk.runtime.rescale.states import old_states
from falkirk.state.engine import Memory, files_each

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
    found = Rescaling(before, ends, {s.id: 7 for s in before.stages}, {s.id: "eager" for s in before.stages})
    assert len(msgspec.json.encode(found)) < 500_000
    assert found.first("stage 3") == (TASKS - 1, TASKS - 2)
    assert found.ended("stage 3") == {TABLE._replace(partition=p): 1_000_000 + TASKS - 2 for p in range(PARTITIONS)}
    assert found.ends["stage 3"].steps[-2:] == (TASKS - 2, -1)


def test_a_new_stage_reads_on_where_all_have_ended() -> None:
    """Else it would skip what one stage has not read, or read again what another has."""
    known = LayoutRecord(1, "app", (), {})
    new = [cast(Any, SimpleNamespace(id="reads", inputs=(SimpleNamespace(topic="names"),)))]

    def ends(*offsets: int) -> dict[str, StageEnd]:
        ranges = [Range(TABLE, Offset(offset), Offset(offset)) for offset in offsets]
        return {f"stage {n}": StageEnd((Step(0),), Millis(0), (r,)) for n, r in enumerate(ranges)}

    check_new(new, known, ends(7, 7))
    check_new([], known, ends(7, 8))
    with pytest.raises(
        StateError, match="several stages read topic 'names', and have not read it up to the same record"
    ):
        check_new(new, known, ends(7, 8))


@contextmanager
def few_files() -> Iterator[None]:
    """As a shell gives them to its programs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1_024, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_all_states_are_open_at_once(tmp_path: Path) -> None:
    """They share one cache, and keep no more files open than the process may."""
    before = LayoutRecord(1, "app", (stage(0),), {})
    rescaling = Rescaling(
        before,
        {"stage 0": StageEnd(tuple(map(Step, range(TASKS))), Millis(0), ())},
        {"stage 0": 7},
        {"stage 0": "lazy"},
    )
    shared: list[Memory] = []

    def opened(*arguments: Any) -> MagicMock:
        shared.append(arguments[3])
        return MagicMock()

    states = "falkirk.runtime.rescale.states"
    with few_files(), patch(f"{states}.opened", opened), patch(f"{states}.copies_of"), ExitStack() as stack:
        of = cast(Any, SimpleNamespace(id="stage 0", inputs=()))
        assert len([*old_states(rescaling, of, Settings("", str(tmp_path)), tmp_path, stack)]) == TASKS
        limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    (memory,) = set(shared)
    assert limit > 1_024 or most == 1_024
    assert memory.open_files == files_each(limit, TASKS)
