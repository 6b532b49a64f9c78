"""Where a task's inputs begin, and whether they are still the same: the offsets of step 0, and of the last step."""

from __future__ import annotations

from collections.abc import Mapping

from falkirk.checkpoint.ids import InputPartition, Offset
from falkirk.checkpoint.records import Division
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import SourceError
from falkirk.runtime.app.app import BoundInput, BoundTask
from falkirk.runtime.layout.compatibility import FROM_SCRATCH
from falkirk.runtime.layout.layout import Start

ANOTHER_NAME = "give the flow another name"


def check_division(task: BoundTask, ends: Mapping[InputPartition, Offset]) -> None:
    """The inputs of the last step still exist: same topics, same partitions, except for those that have joined. Raises
    SourceError."""
    own = {i.partition for i in task.inputs}
    now = own | {i.partition for i in task.shared}
    _check_same(task, ends)
    for gone in ends.keys() - now:
        raise SourceError(
            f"task {task.task.id} read {gone.place.topic}[{gone.partition}], and does not read it now",
            hint="partitions or sources were removed; undo that, or give the flow another name",
        )
    fixed = {i.partition for i in task.inputs if i.input.among is None and not i.input.grows}
    if ends and (new := fixed - ends.keys()):
        places = ", ".join(f"{p.place.topic}[{p.partition}]" for p in sorted(new))
        raise SourceError(
            f"task {task.task.id} has new input partitions: {places}",
            hint="partitions or sources were added; undo that, or give the flow another name",
        )


def _check_same(task: BoundTask, ends: Mapping[InputPartition, Offset]) -> None:
    """No topic was deleted and made again. Raises SourceError."""
    now = {i.partition for i in (*task.inputs, *task.shared)}
    for gone in ends.keys() - now:
        if any(p.place == gone.place for p in now):
            raise SourceError(
                f"topic {gone.place.topic!r} was deleted and recreated: its offsets now mean other records",
                where=f"task {task.task.id}, which had read {gone.place.topic}[{gone.partition}] up to {ends[gone]}",
                hint=FROM_SCRATCH,
            )


def start_offsets(
    task: BoundTask, topics: Topics, read: Division = (), starts: Mapping[str, Start] | None = None
) -> dict[InputPartition, Offset]:
    """Where a task without any step begins. In its sources: where `read` by a backfill ends, if there was one; else where a
    reset lets it start; else where the flow says."""
    found: dict[InputPartition, Offset] = {}
    behind = ends_of(read)
    if behind:
        own = {i.place for i in task.inputs if i.input.kind == "source"}
        _check_same(task, {p: end for p, end in behind.items() if p.place in own})
    for i in task.inputs:
        if i.partition in behind:
            found[i.partition] = _still_there(i, behind[i.partition], topics, "the backfill read up to", ANOTHER_NAME)
            continue
        reset = (starts or {}).get(i.place.topic)
        if i.input.kind == "source" and reset is not None and reset.chose(i.partition):
            offset = Offset(reset.offsets[i.place.partition])
            found[i.partition] = _still_there(i, offset, topics, "the app was reset to", "reset it again")
            continue
        if behind or (reset is not None and reset.id == i.partition.topic_id):  # it was added after that
            found[i.partition] = topics.offsets([i.place], _joins_at(i))[i.place]
            continue
        if isinstance(i.input.start, Mapping):
            if i.place.partition in i.input.start:
                found[i.partition] = _chosen(i, Offset(i.input.start[i.place.partition]), topics)
                continue
            at: str | int = "earliest"
        else:
            at = i.input.start
        found[i.partition] = topics.offsets([i.place], at)[i.place]
    return found


def joining_offsets(
    task: BoundTask, ends: Mapping[InputPartition, Offset], topics: Topics
) -> dict[InputPartition, Offset]:
    """Where the partitions begin that have joined the task's sources since its last step, with their topic or after it: where
    the flow says; if that is "latest", at their first record, as all of it has come since the app began."""
    new = [i for i in task.inputs if ends and i.partition not in ends]
    return {i.partition: topics.offsets([i.place], _joins_at(i))[i.place] for i in new}


def _joins_at(i: BoundInput) -> str | int:
    return i.input.start if isinstance(i.input.start, int) else "earliest"


def ends_of(division: Division) -> dict[InputPartition, Offset]:
    """Its ends, partition by partition."""
    return {r.partition: r.end for r in division}


def _still_there(i: BoundInput, offset: Offset, topics: Topics, who: str, hint: str) -> Offset:
    """An offset chosen earlier, if what follows it still exists: nothing is skipped."""
    first = topics.offsets([i.place], "earliest")[i.place]
    if first <= offset:
        return offset
    raise SourceError(
        f"{who} offset {offset} of topic {i.place.topic!r}, and what follows is deleted up to {first}",
        where=f"source {i.input.id}, partition {i.place.partition}",
        hint=f"let the topic's retention outlast the time until the run that follows; to begin again, {hint}",
    )


def _chosen(i: BoundInput, offset: Offset, topics: Topics) -> Offset:
    """The offset that `start=` names, if it exists: otherwise it would look like lost data later."""
    first, end = (topics.offsets([i.place], at)[i.place] for at in ("earliest", "latest"))
    if first <= offset <= end:
        return offset
    raise SourceError(
        f"start= names offset {offset}, and the partition has those from {first} to {end - 1}",
        where=f"source {i.input.id}, topic {i.place.topic}, partition {i.place.partition}",
        hint=f"name one of them, {end} to begin with what comes next, or another start",
    )
