"""An app on a cluster: its flow's stages bound to topics, and from that its tasks.

tasks         stage 0: partitions 0..P₀−1, stage 1: partitions 0..P₁−1, …
steps topic   one partition for each task, in that order
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from falkirk.checkpoint.ids import InputPartition, TaskId, TopicPartition
from falkirk.checkpoint.tasks import Task
from falkirk.connectors.kafka.control import CONTROL, PARTITIONS, ControlTopic
from falkirk.connectors.kafka.topics import COMPACTED, FOREVER, TABLE, TopicInfo, Topics
from falkirk.errors import ClusterError, SourceError
from falkirk.runtime import layout
from falkirk.runtime.batch.binding import BoundBatch, bind
from falkirk.runtime.layout import LayoutRecord, Start
from falkirk.runtime.registries import meet_registries
from falkirk.runtime.settings import Settings
from falkirk.stream.batch import BatchStage
from falkirk.stream.plan import (
    Input,
    Layout,
    Plan,
    Stage,
    backfill_topic,
    changelog_topic,
    control_topic,
    epochs_topic,
    steps_topic,
)


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
    def incarnation(self) -> str:
        """What tells this app from an earlier one of its name, that was deleted or reset: the id of its steps topic."""
        return layout.incarnation_of(self.topics[self.steps].id)


def prepare(plan: Plan, settings: Settings, topics: Topics, *, backfill: bool = False) -> App:
    """Bind a flow to a cluster: check it against its sources and its recorded layout, make its topics, lay its tasks out.
    With `backfill`, the layout says from then on that there is one: a worker finds it there (`runtime.backfill.look`).

    Safe to call from any number of workers at once. Raises ClusterError, SourceError and StateError: nothing is made then.
    """
    topics.check_reachable()
    roles, fills = roles_of(plan, settings), backfill_topic(settings.prefix, plan.app)
    steps, control = steps_topic(settings.prefix, plan.app), control_topic(settings.prefix, plan.app)
    record = ControlTopic(settings.cluster(), control)
    try:
        recorded = control in topics.describe([control])
        past = layout.read_known(record) if recorded else layout.Known()
        layout.check_not_ending(plan.app, past)
        known = past.layout
        if backfill or (known is not None and fills in known.topics):
            roles[fills] = "epochs"
        found = topics.describe([*roles, *(known.topics if known else ())])
        if known is not None:
            layout.check_topics(known, found)
        check_sources(plan, found, topics)
        meet_registries(plan)
        counts = {name: info.partitions for name, info in found.items() if name in roles}
        if known is not None:
            # A sink that was given more partitions is written as before: a key must not have its records in two of them.
            counts |= {name: topic.partitions for name, topic in known.topics.items() if name in counts}
        sizes, missing = topics_to_make(plan, settings, counts, room_for(plan, topics))
        if fills in roles and fills not in counts:
            missing[fills] = (
                1 + result_partitions(plan, {**counts, **{n: p for n, (p, _) in missing.items()}}),
                FOREVER,
            )
        now = layout.stage_records(layout.in_order(known, plan.stages), sizes)
        if known is not None:
            layout.check_stages(known, now)
        elif (have := counts.get(steps, total := sum(sizes.values()))) != total:
            raise SourceError(
                f"another flow ran under the name {plan.app!r}: it had {have} tasks, and this one has {total}",
                where=f"topic {steps}",
                hint="give this flow a name of its own",
            )
        for name, (partitions, config) in missing.items():
            topics.create(name, partitions, settings.replication, config)
        if not recorded:
            topics.create(control, PARTITIONS, settings.replication, CONTROL)
        infos = topics.describe(roles)
        counts = {name: info.partitions for name, info in infos.items()} | counts
        kept = {name: layout.TopicRecord(infos[name].id, counts[name], roles[name]) for name in sorted(roles)}
        known = layout.keep(record, past, plan.app, now, kept)
    finally:
        record.close()
    tasks = lay_out(layout.in_order(known, plan.stages), plan.app, settings, sizes, infos)
    written = {name for name, role in roles.items() if role != "source"} | {
        o.topic for p in parts(plan) for o in p.outputs
    }
    limits = {name: int(config["max.message.bytes"]) for name, config in topics.configs(written).items()}
    epochs = {batch.id: epochs_topic(settings.prefix, plan.app, batch.id) for batch in plan.batches}
    batches = bind(plan.batches, epochs, {name: replace(info, partitions=counts[name]) for name, info in infos.items()})
    filled = fills if fills in known.topics else None
    starts = {} if past.begins is None else past.begins.starts
    return App(plan.app, plan, steps, control, Layout(counts), infos, tasks, limits, known, batches, filled, starts)


def parts(plan: Plan) -> tuple[Stage | BatchStage, ...]:
    """All of a flow, streamed or not."""
    return (*plan.stages, *plan.batches)


def roles_of(plan: Plan, settings: Settings) -> dict[str, layout.Role]:
    """The topics of a flow, and what each is to it; what is read counts for more than that it is written too."""
    roles: dict[str, layout.Role] = {o.topic: o.kind for part in parts(plan) for o in part.outputs}
    roles |= {i.topic: i.kind for part in parts(plan) for i in part.inputs}
    roles |= {table.source.topic: "source" for table in plan.shared}
    for stage in plan.stages:
        if has_changelog(stage):
            roles[changelog_topic(settings.prefix, plan.app, stage.id)] = "changelog"
    roles |= {epochs_topic(settings.prefix, plan.app, batch.id): "epochs" for batch in plan.batches}
    return {**roles, steps_topic(settings.prefix, plan.app): "steps"} if plan.stages else roles


def has_changelog(stage: Stage) -> bool:
    """Whether the stage logs its state changes."""
    return stage.regime.kind == "eager" and stage.stateful


def room_for(plan: Plan, topics: Topics) -> Mapping[str, str]:
    """The setting of topics that hold what sources hold, in other words: a record as large as its source allows must fit
    into the dead letters (in base64), into an edge (with its timestamp) and into the changelog."""
    sources = {i.topic for part in parts(plan) for i in part.inputs if i.kind == "source"}
    largest = max(int(config["max.message.bytes"]) for config in topics.configs(sources).values())
    return {"max.message.bytes": str(2 * largest)}


def topics_to_make(
    plan: Plan, settings: Settings, have: Mapping[str, int], room: Mapping[str, str]
) -> tuple[dict[str, int], dict[str, tuple[int, Mapping[str, str]]]]:
    """How many tasks each stage has; and the topics that are missing, with their partitions and settings."""
    counts, missing = dict(have), {}

    def want(name: str, partitions: int, config: Mapping[str, str]) -> None:
        if name not in counts:
            counts[name] = partitions
            missing[name] = (partitions, config)

    sizes: dict[str, int] = {}
    for stage in plan.stages:
        sizes[stage.id] = size = stage_size(stage, counts)
        for output in stage.outputs:
            config = {} if output.kind == "sink" else {**FOREVER, **room}
            want(output.topic, 1 if output.kind == "dead_letters" else size, config)
        if has_changelog(stage):
            want(changelog_topic(settings.prefix, plan.app, stage.id), size, {**COMPACTED, **room})
    for batch in plan.batches:
        size = max(counts[i.topic] for i in batch.inputs)
        for output in batch.outputs:
            letters = output.kind == "dead_letters"
            config = TABLE if any(table.source.topic == output.topic for table in plan.shared) else {}
            want(output.topic, 1 if letters else size, {**FOREVER, **room} if letters else config)
        results = max(counts[o.topic] for o in batch.outputs)
        want(epochs_topic(settings.prefix, plan.app, batch.id), 1 + results, FOREVER)
    if plan.stages:
        want(steps_topic(settings.prefix, plan.app), sum(sizes.values()), FOREVER)
    return sizes, missing


def result_partitions(plan: Plan, counts: Mapping[str, int]) -> int:
    """Of a backfill: as many as the largest of the topics has that streams end in."""
    return max((counts[o.topic] for s in plan.stages for o in s.outputs if o.kind != "edge"), default=1)


def lay_out(
    stages: Sequence[Stage], app: str, settings: Settings, sizes: Mapping[str, int], infos: Mapping[str, TopicInfo]
) -> tuple[BoundTask, ...]:
    """Number the tasks, stage by stage, in the order given: that of the layout."""
    steps = steps_topic(settings.prefix, app)
    tasks: list[BoundTask] = []
    for stage in stages:
        changelog = changelog_topic(settings.prefix, app, stage.id)
        for p in range(sizes[stage.id]):
            task = Task(
                TaskId(stage.id, p),
                TopicPartition(steps, len(tasks)),
                TopicPartition(changelog, p) if has_changelog(stage) else None,
                stage.stateful,
            )
            inputs = tuple(
                BoundInput(i, TopicPartition(i.topic, p), InputPartition("", i.topic, infos[i.topic].id, p))
                for i in stage.inputs
            )
            tasks.append(BoundTask(task, stage, inputs, shared_inputs(stage, infos)))
    return tuple(tasks)


def shared_inputs(stage: Stage, infos: Mapping[str, TopicInfo]) -> tuple[BoundInput, ...]:
    """All partitions of the broadcast tables that a stage looks up, and where it is said which epochs are complete."""
    places = [
        (t, TopicPartition(t.source.topic, p)) for t in stage.shared for p in range(infos[t.source.topic].partitions)
    ]
    places += [(t, TopicPartition(t.epochs, 0)) for t in stage.shared if t.epochs is not None]
    return tuple(
        BoundInput(t.input, place, InputPartition("", place.topic, infos[place.topic].id, place.partition))
        for t, place in places
    )


def stage_size(stage: Stage, counts: Mapping[str, int]) -> int:
    """How many tasks a stage has: the partitions of its inputs, which must agree."""
    topics = [i.topic for i in stage.inputs]
    if twice := next((topic for topic in topics if topics.count(topic) > 1), None):
        raise SourceError(
            f"stage {stage.id!r} reads topic {twice!r} twice, and a division names each partition once",
            where=", ".join(f"source {i.id}" for i in stage.inputs if i.topic == twice),
            hint="read it as one source, and branch or concat that",
        )
    sizes = {i.topic: counts[i.topic] for i in stage.inputs}
    if len(set(sizes.values())) > 1:
        raise SourceError(
            f"stage {stage.id!r} reads topics with different numbers of partitions, so equal keys do not meet",
            where=", ".join(f"{t}: {n}" for t, n in sizes.items()),
            hint="give them the same number, or pass repartition=True to the sources",
        )
    return next(iter(sizes.values()))


def check_sources(plan: Plan, found: Mapping[str, TopicInfo], topics: Topics) -> None:
    """Sources exist, with the partitions that `start=` names, and what may read a division again reads no compacted topic:
    the division would differ."""
    sources = [(part, i) for part in parts(plan) for i in part.inputs if i.kind == "source"]
    for stage, i in sources:
        if i.topic not in found:
            raise ClusterError(
                f"topic {i.topic!r} does not exist",
                where=f"source {i.id}, read by stage {stage.id}",
                hint="create it, or pass topic= to the source if it has another name",
            )
        count = found[i.topic].partitions
        if isinstance(i.start, Mapping) and (last := max(i.start)) >= count:
            raise SourceError(
                f"start= names partition {last} of topic {i.topic!r}, which has {count}",
                where=f"source {i.id}, read by stage {stage.id}",
                hint="partitions are numbered from 0",
            )
    check_tables(plan, found, topics)
    again = [(part, i) for part, i in sources if part.regime.kind in ("lazy", "batch")]
    configs = topics.configs(i.topic for _, i in again)
    for part, i in again:
        if "compact" in configs[i.topic].get("cleanup.policy", ""):
            raise SourceError(
                f"the {part.regime.kind} regime cannot read topic {i.topic!r}: it is compacted, so a division read again "
                "would differ",
                where=f"source {i.id}, read by stage {part.id}",
                hint="use the eager regime for this part, or put .repartition(...) before it: the edge it makes is a log"
                if part.regime.kind == "lazy"
                else "use the eager regime for this part, or read a topic that keeps every record",
            )


def check_tables(plan: Plan, found: Mapping[str, TopicInfo], topics: Topics) -> None:
    """The topics of broadcast tables exist, unless the flow itself writes them, and keep the last record of each key."""
    made = {o.topic for part in parts(plan) for o in part.outputs}
    names = [table.source.topic for table in plan.shared]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise SourceError(f"two broadcast tables are of topic {twice!r}", hint="make one, and look it up twice")
    if missing := next((name for name in names if name not in found and name not in made), None):
        raise ClusterError(f"topic {missing!r} does not exist", where=f"table {missing}", hint="create it")
    for name, config in topics.configs(name for name in names if name in found).items():
        kept = config.get("retention.ms") == config.get("retention.bytes") == "-1"
        if "compact" not in config.get("cleanup.policy", "") and not kept:
            raise SourceError(
                f"topic {name!r} forgets its older records, and a worker that reads it anew would miss rows of the table",
                where=f"table {name}, cleanup.policy={config.get('cleanup.policy')}",
                hint="set the topic's cleanup.policy to compact",
            )
