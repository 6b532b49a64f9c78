"""Whether a drain has come to its end, or the workers have stopped before that."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.reading.committed import CommittedReader
from falkirk.runtime.inspect.status import Status, TaskStatus


def not_drained(
    status: Status, ends: Mapping[str, tuple[int, ...]], cluster: Cluster, topics: Topics, *, alone: bool
) -> list[str]:
    """The tasks that have not processed what the sources held up to `ends`, and the partitions that no task has read.
    `alone`: no worker runs, so an edge with records was left unread."""
    ranges = {TopicPartition(t, p): Offset(end) for t, some in ends.items() for p, end in enumerate(some)}
    read = {TopicPartition(i.topic, i.partition) for task in status.tasks for i in task.inputs}
    first = topics.offsets(ranges.keys() - read, "earliest")
    unread = [f"{place.topic}[{place.partition}]" for place in sorted(first) if first[place] < ranges[place]]
    with closing(CommittedReader(cluster)) as reader:
        return [task.task for task in status.tasks if _left(task, ranges, reader, alone=alone)] + unread


def _left(task: TaskStatus, ranges: Mapping[TopicPartition, Offset], reader: CommittedReader, *, alone: bool) -> bool:
    if task.step is None:
        return True
    inputs = {TopicPartition(i.topic, i.partition): i for i in task.inputs}
    if alone and any(i.lag for place, i in inputs.items() if place not in ranges):
        return True
    behind = {p: (Offset(i.position), ranges[p]) for p, i in inputs.items() if p in ranges and i.position < ranges[p]}
    # Markers of transactions count in offsets, and are no records.
    found = reader.read(behind, most=1) if behind else {}
    return any(one.records or one.position < behind[place][1] for place, one in found.items())
