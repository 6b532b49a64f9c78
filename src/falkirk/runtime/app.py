"""An app on a cluster: its flow's stages bound to topics, and from that its tasks.

tasks         stage 0: partitions 0..P₀−1, stage 1: partitions 0..P₁−1, …
steps topic   one partition for each task, in that order
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from falkirk.checkpoint.ids import InputPartition, Millis, Offset, TaskId, TopicPartition
from falkirk.checkpoint.tasks import Task
from falkirk.connectors.kafka.control import CONTROL, PARTITIONS, ControlTopic
from falkirk.connectors.kafka.topics import TopicInfo, Topics
from falkirk.errors import SourceError
from falkirk.runtime import layout
from falkirk.runtime.batch.binding import BoundBatch, bind
from falkirk.runtime.continuity import check_stages, differ_in_topics, keep
from falkirk.runtime.layout import LayoutRecord, ShadowRecord, Start
from falkirk.runtime.rebuild.checks import check_rebuilds
from falkirk.runtime.rebuild.shadows import with_shadows
from falkirk.runtime.registries import meet_registries
from falkirk.runtime.settings import Settings
from falkirk.runtime.survey import Survey, has_changelog, parts, survey
from falkirk.stream.names import backfill_topic, changelog_topic, control_topic, epochs_topic, steps_topic
from falkirk.stream.plan import Input, Layout, Plan, Stage


@dataclass(frozen=True, slots=True)
class BoundInput:
    """One partition that a task reads."""

    input: Input
    place: TopicPartition
    partition: InputPartition


@dataclass(frozen=True, slots=True)
class BoundTask:
    """A task with its stage and its inputs."""

    task: Task
    stage: Stage
    inputs: tuple[BoundInput, ...]
    shared: tuple[BoundInput, ...] = ()
    """What its worker reads for it, of broadcast tables: part of its divisions, but no input of its own."""
    shadow: tuple[TopicPartition, Offset] | None = None
    """The changelog, and where it ends, that operators begin with which were rebuilt beside the version before."""
    until: Until | None = None
    """Of a shadow's task: how far the app is that it is beside."""


@dataclass(frozen=True, slots=True)
class Until:
    """How far a task has read, and the clock of the step that read last."""

    ends: Mapping[TopicPartition, Offset]
    clock: Millis


@dataclass(frozen=True, slots=True)
class App:
    """A flow as it runs on one cluster. `tasks[i]` is owned through partition i of the steps topic."""

    name: str
    plan: Plan
    steps: str
    control: str
    layout: Layout
    topics: Mapping[str, TopicInfo]
    tasks: tuple[BoundTask, ...]
    limits: Mapping[str, int]
    """Bytes of the largest record that each topic accepts, of those that the app writes."""
    recorded: LayoutRecord
    batches: tuple[BoundBatch, ...] = ()
    backfill: str | None = None
    """The topic that records the app's backfill, if there was one by the time that the layout was read."""
    starts: Mapping[str, Start] = field(default_factory=dict)
    """Where a reset lets sources begin, by topic."""

    @property
    def group(self) -> str:
        """The consumer group: its members are the workers, its partitions the tasks."""
        return self.name

    @property
    def until(self) -> Mapping[TopicPartition, Offset] | None:
        """Of a shadow: up to where it reads; None: it reads whatever comes."""
        untils = [bound.until for bound in self.tasks if bound.until is not None]
        return {place: at for until in untils for place, at in until.ends.items()} if untils else None

    @property
    def incarnation(self) -> str:
        """What tells this app from an earlier one of its name, that was deleted or reset: the id of its steps topic."""
        return layout.incarnation_of(self.topics[self.steps].id)


def prepare(
    plan: Plan,
    settings: Settings,
    topics: Topics,
    *,
    backfill: bool = False,
    losing: Collection[str] = (),
    beside: str = "",
) -> App:
    """Bind a flow to a cluster: check it against its sources and its recorded layout, make its topics, lay its tasks out.
    With `backfill`, the layout says from then on that there is one: a worker finds it there (`runtime.backfill.look`).
    The state of the operators `losing` need not be kept. `beside`: of a shadow, which app it is beside.

    Safe to call from any number of workers at once. Raises ClusterError, SourceError and StateError: nothing is made then.
    """
    steps, control = steps_topic(settings.prefix, plan.app), control_topic(settings.prefix, plan.app)
    record = ControlTopic(settings.cluster(), control)
    try:
        found = survey(plan, settings, topics, record, backfill=backfill)
        plan, roles, counts = found.plan, found.roles, dict(found.counts)
        check_fit(found, steps, losing)
        check_rebuilds(found, settings, topics)
        meet_registries(plan)
        for name, (partitions, config) in found.missing.items():
            topics.create(name, partitions, settings.replication, config)
        if counts.get(steps, found.tasks) < found.tasks:
            topics.grow(steps, found.tasks)
            counts[steps] = found.tasks
        if not topics.describe([control]):
            topics.create(control, PARTITIONS, settings.replication, CONTROL)
        infos = topics.describe(roles)
        counts = {name: info.partitions for name, info in infos.items()} | counts
        firsts = _firsts(found, counts, topics)
        kept = {n: layout.TopicRecord(infos[n].id, counts[n], roles[n], firsts.get(n, ())) for n in sorted(roles)}
        stages = with_shadows(found, settings, topics)
        known = keep(record, found.past, plan.app, stages, kept, beside)
    finally:
        record.close()
    if differ_in_topics(known.stages, stages):
        # Another has seen other topics: look again.
        return prepare(plan, settings, topics, backfill=backfill, losing=losing, beside=beside)
    shadows = {stage.id: stage.shadow for stage in known.stages if stage.shadow is not None}
    tasks = lay_out(plan, settings, known.number, found.sizes, infos, shadows)
    written = {name for name, role in roles.items() if role != "source"} | {
        o.topic for p in parts(plan) for o in p.outputs
    }
    limits = {name: int(config["max.message.bytes"]) for name, config in topics.configs(written).items()}
    epochs = {batch.id: epochs_topic(settings.prefix, plan.app, batch.id) for batch in plan.batches}
    batches = bind(plan.batches, epochs, {name: replace(info, partitions=counts[name]) for name, info in infos.items()})
    fills = backfill_topic(settings.prefix, plan.app)
    filled = fills if fills in known.topics else None
    begins = found.past.begins
    starts = {} if begins is None else begins.starts
    return App(plan.app, plan, steps, control, Layout(counts), infos, tasks, limits, known, batches, filled, starts)


def _firsts(found: Survey, counts: Mapping[str, int], topics: Topics) -> dict[str, tuple[int, ...]]:
    """Where the partitions of sources began when the app first ran."""
    known = {} if found.past.layout is None else found.past.layout.topics
    sources = [name for name, role in found.roles.items() if role == "source"]
    places = [TopicPartition(name, p) for name in sources if name not in known for p in range(counts[name])]
    now = topics.offsets(places, "earliest") if places else {}
    return {
        name: known[name].first
        if name in known
        else tuple(int(now[TopicPartition(name, p)]) for p in range(counts[name]))
        for name in sources
    }


def check_fit(found: Survey, steps: str, losing: Collection[str] = ()) -> None:
    """Raises StateError and SourceError where a flow is not the app that ran here before under its name."""
    if found.past.layout is not None:
        check_stages(found.past.layout, found.stages, losing)
    elif (have := found.counts.get(steps, found.tasks)) != found.tasks:
        raise SourceError(
            f"another flow ran under the name {found.plan.app!r}: it had {have} tasks, and this one has {found.tasks}",
            where=f"topic {steps}",
            hint="give this flow a name of its own",
        )


def lay_out(
    plan: Plan,
    settings: Settings,
    number: int,
    sizes: Mapping[str, int],
    infos: Mapping[str, TopicInfo],
    shadows: Mapping[str, ShadowRecord] = MappingProxyType({}),
) -> tuple[BoundTask, ...]:
    """Number the tasks, stage by stage, in the order given: that of the layout, which is called `number`."""
    steps = steps_topic(settings.prefix, plan.app)
    tasks: list[BoundTask] = []
    for stage in plan.stages:
        changelog = changelog_topic(settings.prefix, plan.app, stage.id)
        for p in range(sizes[stage.id]):
            task = Task(
                TaskId(stage.id, p),
                TopicPartition(steps, len(tasks)),
                TopicPartition(changelog, p) if has_changelog(stage) else None,
                stage.stateful,
                number,
            )
            inputs = tuple(
                BoundInput(i, place, InputPartition.at(place, infos[i.topic].id))
                for i in stage.inputs
                for q in (range(p, infos[i.topic].partitions, sizes[stage.id]) if i.loose else (p,))
                for place in [TopicPartition(i.topic, q)]
            )
            made = shadows.get(stage.id)
            shadow = None if made is None else (TopicPartition(made.topic, p), Offset(made.ends[p]))
            tasks.append(BoundTask(task, stage, inputs, shared_inputs(stage, infos), shadow))
    return tuple(tasks)


def shared_inputs(stage: Stage, infos: Mapping[str, TopicInfo]) -> tuple[BoundInput, ...]:
    """All partitions of the broadcast tables that a stage looks up, and where it is said which epochs are complete."""
    places = [
        (t, TopicPartition(t.source.topic, p)) for t in stage.shared for p in range(infos[t.source.topic].partitions)
    ]
    places += [(t, TopicPartition(t.epochs, 0)) for t in stage.shared if t.epochs is not None]
    return tuple(BoundInput(t.input, place, InputPartition.at(place, infos[place.topic].id)) for t, place in places)
