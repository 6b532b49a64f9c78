"""Why a record exists: the step or the epoch that wrote it, what that read, and so on back to the sources.

    record ──header──▶ task, step ──steps topic──▶ division ──┬─ sources: offset ranges, which are the answer
                                                              └─ edges: batches, each with its own header ──▶ …

Step records and edges are trimmed behind the versions of an app's state: the search goes back as far as they do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import msgspec

from falkirk.checkpoint import records as task_records
from falkirk.checkpoint.ids import TopicPartition
from falkirk.checkpoint.records import Division, Range, StepRecord
from falkirk.runtime.layout.layout import LayoutRecord
from falkirk.stream.dataflow.provenance import Provenance, provenances
from falkirk.stream.dataflow.records import Message
from falkirk.stream.definition.names import steps_topic


class CommittedRecords(Protocol):
    """Committed records of a cluster."""

    def begin(self, place: TopicPartition) -> int:
        """The first offset that still exists."""
        ...

    def between(self, place: TopicPartition, start: int, end: int | None) -> Sequence[Message]:
        """The existing records with start ≤ offset < end."""
        ...


class Read(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A range that a step or an epoch read, of one partition of an input."""

    topic: str
    partition: int
    start: int
    end: int
    kind: Literal["source", "edge"] = "source"
    kept_from: int | None = None
    """Where the topic begins now, if that is behind the range's start: earlier records are deleted."""
    by: list[LineageNode] = []
    """For an edge: the steps that wrote the records in the range."""


class LineageNode(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A step or an epoch, and what it read. Without `clock`, its record no longer exists."""

    task: str | None = None
    step: int | None = None
    epoch: int | None = None
    stage: str | None = None
    """For an epoch: the batch part."""
    clock: int | None = None
    """Milliseconds since 1970: when the step was closed, or the epoch opened."""
    owner: str | None = None
    rows: int | None = None
    dead: int | None = None
    corrects: tuple[int, int] | None = None
    """The first and the last of the steps that it corrects: it made the correction from what they read."""
    moved: bool = False
    """It migrated or rebuilt the state of an earlier version of the flow, from all that the task had read by then."""
    reads: list[Read] = []
    known: tuple[int, int] | None = None
    """If the step's record is gone: the first and the last step of its task that are recorded."""
    upto: list[Read] = []
    """Also then: what the task had read by the first of those. The step read a part of it."""


@dataclass(slots=True)
class Tracer:
    """Finds the steps of one app, each once."""

    app: str
    layout: LayoutRecord
    prefix: str
    topics: CommittedRecords
    _steps: dict[str, dict[int, StepRecord]] = field(default_factory=dict)
    _nodes: dict[tuple[str, int], LineageNode] = field(default_factory=dict)

    def trace(self, origin: Provenance) -> LineageNode:
        """The step that wrote a record, with all steps behind it."""
        assert origin.task is not None
        assert origin.step is not None
        known = (origin.task, origin.step)
        if known not in self._nodes:
            self._nodes[known] = self._step(*known)
        return self._nodes[known]

    def _step(self, task: str, number: int) -> LineageNode:
        steps = self._steps_of(task)
        if (record := steps.get(number)) is None:
            first = min(steps, default=None)
            if first is None:
                return LineageNode(task=task, step=number)
            upto = [self._range(r, 0, r.start) for r in steps[first].division]
            return LineageNode(task=task, step=number, known=(first, max(steps)), upto=upto if number < first else [])
        division = record.division if record.corrects < 0 else _corrected(steps, record)
        reads = [self._range(r, r.start, r.end) for r in division if r.start < r.end]
        for read in reads:
            if read.kind == "edge":
                self._follow(read)
        return LineageNode(
            task=task,
            step=number,
            clock=record.clock,
            owner=record.owner,
            rows=record.rows,
            dead=record.dead,
            corrects=(record.corrects, number - 1) if record.corrects >= 0 else None,
            moved=record.move is not None,
            reads=reads,
        )

    def _range(self, r: Range, start: int, end: int) -> Read:
        topic, partition = r.partition.place
        role = self.layout.topics[topic].role if topic in self.layout.topics else "source"
        return Read(topic=topic, partition=partition, start=start, end=end, kind="edge" if role == "edge" else "source")

    def _follow(self, read: Read) -> None:
        """The steps that wrote an edge's records."""
        place = TopicPartition(read.topic, read.partition)
        if (begin := self.topics.begin(place)) > read.start:
            read.kept_from = begin
        found = dict.fromkeys(p for m in self.topics.between(place, read.start, read.end) for p in provenances(m))
        steps = [self.trace(origin) for origin in found if origin.task is not None]
        read.by = list({id(step): step for step in steps}.values())  # a step may have written several records

    def _steps_of(self, task: str) -> Mapping[int, StepRecord]:
        if task not in self._steps:
            place = place_of(self.layout, steps_topic(self.prefix, self.app), task)
            found = self.topics.between(place, 0, None) if place is not None else ()
            decoded = [task_records.decode(value) for m in found if (value := m.value()) is not None]
            self._steps[task] = {r.step: r for r in decoded if isinstance(r, StepRecord)}
        return self._steps[task]


def trimmed(made: LineageNode) -> bool:
    """Whether the search ended at a step record or an edge that was deleted, though the app still exists."""
    if made.task is not None and made.clock is None:
        return made.known is None or (made.step or 0) < made.known[0]
    return any(read.kept_from is not None or any(map(trimmed, read.by)) for read in made.reads)


def _corrected(steps: Mapping[int, StepRecord], record: StepRecord) -> Division:
    """What the steps that a correction corrects have read, as far as they are recorded."""
    first = min(n for n in steps if n >= record.corrects)
    starts = {r.partition: r.start for r in steps[first].division}
    return tuple(Range(r.partition, starts.get(r.partition, r.start), r.end) for r in record.division)


def place_of(layout: LayoutRecord, topic: str, task: str) -> TopicPartition | None:
    """A task's partition of the steps topic; None if the app has no such task."""
    tasks = [f"{stage.id}/{n}" for stage in layout.stages for n in range(stage.tasks)]
    return TopicPartition(topic, tasks.index(task)) if task in tasks else None


def sources_of(made: LineageNode) -> list[Read]:
    """All ranges of sources behind a step, joined where they touch.

    >>> a, b = Read(topic="t", partition=0, start=0, end=3), Read(topic="t", partition=0, start=3, end=5)
    >>> [(r.start, r.end) for r in sources_of(LineageNode(reads=[b, Read(topic="e", partition=0, start=0, end=1, kind="edge",
    ...     by=[LineageNode(reads=[a])])]))]
    [(0, 5)]
    """
    found: list[Read] = []
    todo, seen = [made], set[int]()
    while todo:
        made = todo.pop()
        if id(made) in seen:
            continue
        seen.add(id(made))
        found += [r for r in made.reads if r.kind != "edge"]
        todo += [by for r in made.reads for by in r.by]
    joined: list[Read] = []
    for r in sorted(found, key=lambda r: (r.topic, r.partition, r.start)):
        last = joined[-1] if joined else None
        if last is not None and (last.topic, last.partition) == (r.topic, r.partition) and r.start <= last.end:
            last.end = max(last.end, r.end)
        else:
            joined.append(Read(topic=r.topic, partition=r.partition, start=r.start, end=r.end))
    return joined
