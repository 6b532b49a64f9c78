"""The low-watermark of each task and batch part, from what an app records: no failure takes it back behind that. And what
holds it back, so that what is above must be kept.

step     of a task with state       the older of its last two copied versions (`falkirk.state.store.low_watermark`), by its
                                    worker's report; without one, the first step that is left in the steps topic
         of a task without state    its last step
epoch    of a batch part            the newest that is complete

A task's rows on an edge stay until the low-watermark of their reader has passed them, and rows for a sink outside Kafka until
they are written there. Both hold back what a task has sent, and not the task: all edges are logged.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from falkirk.checkpoint.ids import TopicPartition
from falkirk.checkpoint.records import StepRecord
from falkirk.checkpoint.tasks import Phase
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.runtime.inspect.owners import TaskOwner
from falkirk.runtime.layout.layout import LayoutRecord, StageRecord
from falkirk.runtime.messages.epochs import EpochStatus
from falkirk.runtime.messages.protocol import REBUILDING
from falkirk.state.store import Progress, low_watermark


class Hold(msgspec.Struct, frozen=True):
    """What holds a low-watermark back, or rows that were sent."""

    what: Literal["version", "copy", "idle", "worker", "part", "epoch", "reader", "outlet"]
    """version: the next one must come · copy: the newest must be copied · idle: a step must come, and a version after it ·
    worker: the task must run again · part: it is stopped · epoch: it is open ·
    of rows, reader: of an edge, by its low-watermark · outlet: they must be written there."""
    by: str
    """The task, batch part or sink."""
    at: int | None = None
    """The step of the newest version or of the reader's low-watermark, or the epoch. Null: there is none."""
    age_s: float | None = None
    """The age of that."""
    why: str = ""
    """worker: the task's phase · reader: its regime · epoch: how much of it is published."""
    records: int = 0
    """outlet: how many wait in its log, at most."""


class LowWatermark(msgspec.Struct, frozen=True):
    """Of one task or batch part."""

    of: str
    at: int | None
    """The step, or the epoch. Null: it may begin with nothing."""
    age_s: float | None
    held_by: list[Hold]


class Facts(NamedTuple):
    """What is known of a task."""

    task: str
    stage: StageRecord
    last: StepRecord | None
    first: StepRecord | None
    """The first step that is left, if some are deleted."""
    owner: TaskOwner


def low_watermarks(
    layout: LayoutRecord,
    facts: Sequence[Facts],
    unwritten: Mapping[TopicPartition, int],
    batches: Iterable[EpochStatus],
    stopped: Collection[str],
    now: int,
) -> list[LowWatermark]:
    """Of all tasks, and then of all batch parts. `unwritten`: what waits in the logs of sinks outside Kafka. `stopped`: the
    parts that are. `now`: milliseconds since 1970."""
    own = {f.task: _of_task(f, f.stage.id in stopped, now) for f in facts}
    found = []
    for f in facts:
        low, number = own[f.task], int(f.task.rpartition("/")[2])
        waiting = [(sink, unwritten.get(TopicPartition(t, number), 0)) for t, sink in _logs(layout, f.stage).items()]
        outlets = [Hold("outlet", sink, records=n) for sink, n in waiting if n]
        held = [*low.held_by, *_readers(layout, f.stage, own), *outlets]
        found.append(LowWatermark(low.of, low.at, low.age_s, held))
    return found + [_of_batch(batch, batch.stage in stopped) for batch in batches]


def unwritten(layout: LayoutRecord, topics: Topics) -> dict[TopicPartition, int]:
    """How many records wait in the logs of sinks outside Kafka, which begin behind what is written. Raises ClusterError."""
    logs = {topic: stage.tasks for stage in layout.stages for topic in _logs(layout, stage)}
    places = [TopicPartition(topic, p) for topic, tasks in logs.items() for p in range(tasks)]
    first, end = topics.offsets(places, "earliest"), topics.offsets(places, "stable")
    return {place: max(0, end[place] - first[place]) for place in places}


def _logs(layout: LayoutRecord, stage: StageRecord) -> dict[str, str]:
    """The logs of a stage's sinks outside Kafka, and the sinks: they are written as edges are, and no stage reads them."""
    read = {topic for reader in layout.stages for topic in reader.inputs}
    logs = [t for t in stage.outputs if t in layout.topics and layout.topics[t].role == "edge" and t not in read]
    return {topic: topic.partition(f".{layout.app}.")[2].partition(".")[2] for topic in logs}


def _of_task(f: Facts, stopped: bool, now: int) -> LowWatermark:
    if f.last is None:
        return LowWatermark(f.task, None, None, [_held(f, stopped, now)])
    copies = () if f.owner.said is None else f.owner.said.copies
    low: Progress | StepRecord = low_watermark(Progress(step, 0, 0, clock) for step, clock in copies)
    if not f.stage.stateful:
        low = f.last
    elif low.step < 0 and f.first is not None:
        low = f.first
    held = [] if low.step == f.last.step else [_held(f, stopped, now)]
    if low.step < 0:
        return LowWatermark(f.task, None, None, held)
    return LowWatermark(f.task, low.step, _age(low.clock, now), held)


def _held(f: Facts, stopped: bool, now: int) -> Hold:
    """Why a task's low-watermark is not its last step. The first reason that applies."""
    if stopped:
        return Hold("part", f.task)
    if (said := f.owner.said) is None or said.phase not in (Phase.RUNNING.value, REBUILDING):
        return Hold("worker", f.task, why="" if said is None else said.phase)
    (step, clock), last = said.versioned, -1 if f.last is None else f.last.step
    newest = (None, None) if step < 0 else (step, _age(clock, now))
    if said.copies and step > said.copied:
        return Hold("copy", f.task, *newest)
    return Hold("idle" if 0 <= last == step else "version", f.task, *newest)


def _readers(layout: LayoutRecord, stage: StageRecord, own: Mapping[str, LowWatermark]) -> Iterator[Hold]:
    """Of each stage that reads the rows of this one: the task that may go back furthest."""
    for reader in layout.stages:
        if any(t in reader.inputs and layout.topics[t].role == "edge" for t in stage.outputs if t in layout.topics):
            low = furthest(own[f"{reader.id}/{p}"] for p in range(reader.tasks))
            if low.held_by:
                yield Hold("reader", low.of, low.at, low.age_s, why=reader.regime)


def furthest(lows: Iterable[LowWatermark]) -> LowWatermark:
    """The one that goes back furthest in time."""
    return max(lows, key=lambda low: math.inf if low.age_s is None else low.age_s)


def _of_batch(batch: EpochStatus, stopped: bool) -> LowWatermark:
    held = []
    if stopped:
        held = [Hold("part", batch.stage)]
    elif batch.state == "open":
        published = f"{batch.published} of {batch.partitions} partitions are published"
        held = [Hold("epoch", batch.stage, batch.epoch, batch.opened_s_ago, published)]
    return LowWatermark(batch.stage, batch.complete, batch.complete_s_ago, held)


def _age(clock: int, now: int) -> float:
    return max(0, now - clock) / 1000
