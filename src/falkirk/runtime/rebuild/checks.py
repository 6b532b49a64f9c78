"""Whether operators can be rebuilt: checked before the layout records it, for then there is no way back.

what their state is made of exists        their inputs, from where the app began
nothing is half done                      the stage's last migration or rebuild is complete, in all its tasks
no earlier step is run again              a lazy stage has ended cleanly: its newest versions are of its last steps
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TypeAlias

from falkirk.checkpoint.ids import InputPartition, TopicPartition
from falkirk.checkpoint.reading import Records
from falkirk.checkpoint.records import Named, Released
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.reading.reader import BoundedReader
from falkirk.errors import StateError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout.layout import StageRecord
from falkirk.runtime.layout.preflight import Preflight
from falkirk.runtime.layout.progress import is_moving, last_records, last_step
from falkirk.runtime.rebuild.beginnings import beginnings
from falkirk.state import schema
from falkirk.stream.circuit.edges import EdgeReader
from falkirk.stream.definition.names import backfill_topic, steps_topic
from falkirk.stream.evolution.rebuild_plan import RebuildPlan, cannot_be_sent_again, check_rebuilt
from falkirk.stream.stages.plan import Stage
from falkirk.stream.stages.stage import Edge

Sent: TypeAlias = tuple[TopicPartition, bytes | None]
"""A record of an edge: where it is, and its value."""


def check_rebuilds(found: Preflight, settings: Settings, topics: Topics) -> None:
    """Everything that a flow would rebuild can be rebuilt. Raises StateError and SourceError."""
    known = found.past.layout
    if known is None:
        return
    before, numbers = {stage.id: stage for stage in known.stages}, known.numbers
    steps = steps_topic(settings.prefix, found.plan.app)
    starts = {} if found.past.begins is None else found.past.begins.starts
    for stage, now in zip(found.plan.stages, found.stages, strict=True):
        if now.id not in before:
            continue
        was = before[now.id]
        needed = check_stage(was, now, stage)
        if needed is None:
            continue
        if backfill_topic(settings.prefix, found.plan.app) in known.topics:
            raise StateError(
                f"the state of stage {now.id!r} began with a backfill, and cannot be rebuilt from its inputs",
                where="--rebuild",
                hint="give the flow another name, and backfill that",
            )
        partitions = [TopicPartition(steps, n) for n in numbers[was.id]]
        check_ended(was, now, last_records(settings, partitions), running=bool(topics.group(found.plan.app).members))
        if now.rescaled and any(isinstance(reader, Edge) for reader in needed.readers):
            raise StateError(
                f"the edges into stage {now.id!r} hold only what came since its state was divided among other tasks",
                where="--rebuild",
                hint="give the flow another name: it then starts from scratch, beside this one",
            )
        inputs = {
            InputPartition.at(TopicPartition(i.topic, p), known.topics[i.topic].id): i
            for i in stage.inputs
            if i.id in needed.inputs and i.topic in known.topics
            for p in range(known.topics[i.topic].partitions)
        }
        beginnings(inputs, topics, known.topics, starts)
        check_sent(needed, partial(_first_of, settings, was.tasks))


def check_sent(needed: RebuildPlan, records: Callable[[str], Iterable[Sent]]) -> None:
    """The rows that came over an edge have the columns that the operators need now, as far as `records` of its topic show.
    Raises StateError."""
    for edge in needed.readers:
        if isinstance(edge, Edge):
            reader = EdgeReader(edge)
            try:
                for place, value in records(edge.topic):
                    reader.check(value, f"topic {place.topic}, partition {place.partition}")
            except StateError as error:
                raise cannot_be_sent_again(needed.rebuilt, error) from error


def _first_of(settings: Settings, tasks: int, edge: str) -> Iterator[Sent]:
    """The first records of an edge: of the flow that the app began with, which differs most from that of now."""
    with closing(BoundedReader(settings.cluster(), levels=(True,))) as reader:
        places = [TopicPartition(edge, p) for p in range(tasks)]
        first, end = (reader.watermarks(places, end=end) for end in (False, True))
        for place in places:
            if first[place] < end[place]:
                read = reader.read({place: (first[place], end[place])}, committed=True, most=1)[place]
                yield from ((place, record.value) for record in read.records)


def check_stage(was: StageRecord, now: StageRecord, stage: Stage) -> RebuildPlan | None:
    """What the stage's rebuild needs; None: nothing is to be rebuilt. Raises StateError."""
    return check_rebuilt(stage, schema.change(was.state, now.state).rebuilt)


def check_ended(was: StageRecord, now: StageRecord, last: Sequence[Records], *, running: bool) -> None:
    """In the tasks with these last records, nothing is in progress that a rebuild would begin from. Raises StateError.
    `running`: the app has workers."""
    steps = [last_step(records) for records in last]
    if left := [str(p) for p, step in enumerate(steps) if step is not None and is_moving(was, step)]:
        raise StateError(
            f"what layout {was.moving} is to migrate or rebuild in stage {was.id!r} is not done yet in its tasks "
            f"{', '.join(left)}",
            where="--rebuild",
            hint="run the flow that the app ran last until it is: falkirk status shows when",
        )
    clean = all(ended(records, running=running) for records, step in zip(last, steps, strict=True) if step)
    if now.recovery.requires.same_outputs and not clean:
        raise StateError(
            f"stage {was.id!r} is lazy and still runs, or has not ended cleanly: steps of the flow of before may have to be "
            "run again, which the new one cannot",
            where="--rebuild",
            hint="run the flow of before, and end it with Ctrl-C, SIGTERM or falkirk drain; then rebuild",
        )


def ended(records: Records, *, running: bool) -> bool:
    """Whether the worker that ran a task released it after its last step. While no worker runs, a name behind that is of one
    that was about to take the task over and left: it ran nothing."""
    if running:
        return isinstance(records[-1][1], Released)
    return isinstance(next((r for _, r in reversed(records) if not isinstance(r, Named)), None), Released)
