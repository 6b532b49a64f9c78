"""A flow's output as of a step: the records that the steps up to it wrote, and no others.

    as of {task: n}  =  records whose header names one of these tasks and a step ≤ n

Each output record says which step of which task made it. Each task steps at its own pace, so "as of step 17" is all
that they wrote in steps 0 to 17, at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import Message

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.reading import decoded
from falkirk.checkpoint.records import StepRecord
from falkirk.checkpoint.steps import HEADER, maker
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.reading.reader import BoundedReader
from falkirk.connectors.spark.ranges import headers
from falkirk.errors import ConfigError, SourceError

Steps = int | Mapping[str, int]
"""The last step of each task, or of all."""

TAIL = 100
"""So many records at the end of a steps partition are read first: names and releases may follow the last step."""


def until(steps: Steps, messages: Sequence[Message]) -> list[Message]:
    """The messages that steps up to these wrote."""
    makers = [next(map(maker, headers(m, HEADER)), None) for m in messages]
    return [m for m, made in zip(messages, makers, strict=True) if made and made.step <= _last(steps, made.task)]


def check_reached(cluster: Cluster, topics: Topics, steps_topic: str, steps: Steps) -> None:
    """Raises SourceError unless the tasks have committed these steps: the output of a future step is not known yet."""
    info = topics.describe([steps_topic]).get(steps_topic)
    if info is None:
        raise ConfigError(
            f"there is no topic {steps_topic!r}: no app of that name has run here",
            where=f"brokers {topics.brokers}",
            hint="check the options 'app' and 'prefix'",
        )
    done = _last_steps(cluster, [TopicPartition(steps_topic, p) for p in range(info.partitions)])
    wanted = dict.fromkeys(done, steps) if isinstance(steps, int) else steps
    for task, step in wanted.items():
        if done.get(task, -1) < step:
            raise SourceError(
                f"task {task} has not committed step {step} yet: its last is {done.get(task, 'none')}",
                where=f"topic {steps_topic}",
                hint=f"ask for a step that is done; the tasks' last are {done}",
            )


def _last_steps(cluster: Cluster, partitions: Sequence[TopicPartition]) -> dict[str, int]:
    reader = BoundedReader(cluster)
    try:
        first, end = reader.watermarks(partitions, end=False), reader.watermarks(partitions, end=True)
        found: dict[str, int] = {}
        for place in partitions:
            start = max(first[place], Offset(end[place] - TAIL))
            for begin in dict.fromkeys((start, first[place])):  # all of it, if the tail holds no step
                read = reader.read({place: (begin, end[place])}, committed=True)[place]
                steps = [s for _, s in decoded(read) if isinstance(s, StepRecord)]
                if steps:
                    found[steps[-1].task] = steps[-1].step
                    break
        return found
    finally:
        reader.close()


def _last(steps: Steps, task: str) -> int:
    return steps if isinstance(steps, int) else steps.get(task, -1)
