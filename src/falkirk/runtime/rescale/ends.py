"""Where the tasks of an app have ended: the new tasks go on from there.

nothing is on its way    every record of an edge is read; every row for a place outside Kafka is written there
nothing is half done     no migration or rebuild
the state is at hand     the checkpoint store has a version of the last step of each task
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing

from falkirk.checkpoint.ids import InputPartition, Millis, Offset, Step, TopicPartition
from falkirk.checkpoint.records import Range, StepRecord
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.reading.committed import CommittedReader
from falkirk.errors import StateError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout.layout import LayoutRecord, StageRecord
from falkirk.runtime.layout.progress import is_moving, last_records, last_step
from falkirk.runtime.rescale.record import StageEnd
from falkirk.state.checkpoints import CheckpointStore
from falkirk.state.objects import connect
from falkirk.state.store import Identity
from falkirk.stream.definition.names import steps_topic
from falkirk.stream.stages.plan import Stage
from falkirk.wording import listed

Last = Mapping[str, Sequence[StepRecord | None]]
"""The last step of each task of each stage; None: it has made none."""


def last_steps(known: LayoutRecord, settings: Settings) -> Last:
    """Those of all tasks. Raises StateError while something is half done."""
    steps = steps_topic(settings.prefix, known.app)
    last: dict[str, Sequence[StepRecord | None]] = {}
    for stage in known.stages:
        places = [TopicPartition(steps, n) for n in known.numbers[stage.id]]
        last[stage.id] = found = [last_step(records) for records in last_records(settings, places)]
        if any(step is not None and is_moving(stage, step) for step in found):
            raise StateError(
                f"the state of stage {stage.id!r} is being migrated or rebuilt",
                where=f"app {known.app}",
                hint=f"run the app until falkirk status {known.app} shows no task that does so; then falkirk drain it",
            )
    return last


def ends_of(known: LayoutRecord, last: Last) -> dict[str, StageEnd]:
    """What the new tasks of each stage go on from."""
    edges = {name for name, topic in known.topics.items() if topic.role == "edge"}
    ends: dict[str, StageEnd] = {}
    for stage, steps in last.items():
        read: dict[InputPartition, Offset] = {}
        for r in (r for step in steps if step is not None for r in step.division):
            if r.partition.place.topic not in edges:
                read[r.partition] = max(read.get(r.partition, r.end), r.end)
        ends[stage] = StageEnd(
            tuple(Step(-1) if step is None else step.step for step in steps),
            max(Millis(0) if step is None else step.clock for step in steps),
            tuple(Range(partition, end, end) for partition, end in sorted(read.items())),
        )
    return ends


def check_new(new: Sequence[Stage], known: LayoutRecord, ends: Mapping[str, StageEnd]) -> None:
    """New stages read on where the stages have ended that have read their sources: all at one place. Raises StateError."""
    topics = {i.topic for stage in new for i in stage.inputs}
    at: dict[InputPartition, set[Offset]] = {}
    for r in (r for end in ends.values() for r in end.read if r.partition.place.topic in topics):
        at.setdefault(r.partition, set()).add(r.end)
    if apart := sorted({partition.place.topic for partition, found in at.items() if len(found) > 1}):
        raise StateError(
            f"several stages read topic {apart[0]!r}, and have not read it up to the same record",
            where=f"app {known.app}",
            hint=f"start the app, and end it with falkirk drain {known.app}",
        )


def check_drained(
    known: LayoutRecord, stages: Mapping[str, Stage], last: Last, settings: Settings, topics: Topics
) -> None:
    """Nothing is on its way from one task to another, or to a place outside Kafka. Raises StateError."""
    done = [step for steps in last.values() for step in steps if step is not None]
    read = {r.partition.place: r.end for step in done for r in step.division}
    edges = [
        TopicPartition(name, p) for name, topic in known.topics.items() if topic.role == "edge"
        for p in range(topic.partitions)
    ]  # fmt: skip
    first, end = topics.offsets(edges, "earliest"), topics.offsets(edges, "latest")
    behind = {p: (max(first[p], read.get(p, Offset(0))), end[p]) for p in edges}
    behind = {p: bounds for p, bounds in behind.items() if bounds[0] < bounds[1]}
    with closing(CommittedReader(settings.cluster())) as reader:
        # Markers of transactions count in offsets, and are no records.
        found = reader.read(behind, most=1) if behind else {}
    left = [f"{p.topic}[{p.partition}]" for p, one in sorted(found.items()) if one.records]
    outside = {o.topic for stage in stages.values() for o in stage.outputs if o.outlet is not None}
    if left:
        what = "places outside Kafka have not got all rows" if left[0].partition("[")[0] in outside else (
            "rows are on their way between tasks"
        )  # fmt: skip
        raise StateError(
            f"{what}: {listed(left)}",
            where=f"app {known.app}",
            hint=f"start the app, and end it with falkirk drain {known.app}: then they are processed",
        )
    begun = [s.id for s in known.stages if reads_sources(s, known) and None in last[s.id]]
    if begun:
        raise StateError(
            f"stage {begun[0]!r} has tasks that have made no step: where they begin to read is not recorded yet",
            where=f"app {known.app}",
            hint=f"start the app, and end it with falkirk drain {known.app}",
        )


def reads_sources(stage: StageRecord, known: LayoutRecord) -> bool:
    """Whether the tasks of a stage were the partitions of its topics."""
    return any(known.topics[topic].role == "source" for topic in stage.inputs)


def check_versions(known: LayoutRecord, last: Last, settings: Settings) -> None:
    """The checkpoint store has the last state of each task. Raises StateError and DiskError."""
    missing = [
        f"{stage.id}/{n} (step {step.step})"
        for stage in known.stages
        if stage.stateful
        for n, step in enumerate(last[stage.id])
        if step is not None and step.step not in copies_of(known, stage, n, settings).versions()
    ]
    if missing:
        raise StateError(
            f"the checkpoint store does not have the last state of {listed(missing)}",
            where=settings.checkpoint_url(),
            hint="give --checkpoints, or --state-dir, as falkirk run has it; and end the app with falkirk drain, not by "
            "killing it: then each task copies its last state there",
        )


def copies_of(known: LayoutRecord, stage: StageRecord, task: int, settings: Settings) -> CheckpointStore:
    """The versions of one task."""
    identity = Identity(known.app, f"{stage.id}/{task}", stage.fingerprint, stage.state, known.incarnation)
    return CheckpointStore(connect(settings.checkpoint_url()), identity)
