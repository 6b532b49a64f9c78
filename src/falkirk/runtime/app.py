"""An app on a cluster: its flow's stages bound to topics, and from that its tasks.

tasks         stage 0: partitions 0..P₀−1, stage 1: partitions 0..P₁−1, …
steps topic   one partition for each task, in that order
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from falkirk.checkpoint.ids import InputPartition, Offset, TaskId, TopicPartition
from falkirk.checkpoint.tasks import Task
from falkirk.connectors.kafka.topics import COMPACTED, FOREVER, TopicInfo, Topics
from falkirk.errors import ClusterError, SourceError
from falkirk.runtime.settings import Settings, changelog_topic, control_topic, steps_topic
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

    @property
    def group(self) -> str:
        """The consumer group: its members are the workers, its partitions the tasks."""
        return self.name


def prepare(plan: Plan, settings: Settings, topics: Topics) -> App:
    """Bind a flow to a cluster: check its sources, make the topics that it owns, lay its tasks out.

    Safe to call from any number of workers at once. Raises ClusterError and SourceError.
    """
    topics.check_reachable()
    found = topics.describe(t for stage in plan.stages for t in (*_inputs(stage), *_outputs(stage)))
    check_sources(plan, found, topics)
    counts: dict[str, int] = {name: info.partitions for name, info in found.items()}
    sizes: dict[str, int] = {}
    for stage in plan.stages:
        sizes[stage.id] = size = stage_size(stage, counts)
        for output in stage.outputs:
            if output.topic not in counts:
                partitions = 1 if output.kind == "dead_letters" else size
                config = {} if output.kind == "sink" else FOREVER
                topics.create(output.topic, partitions, settings.replication, config)
                counts[output.topic] = partitions
        if stage.regime.kind == "eager" and stage.stateful:
            name = changelog_topic(settings.prefix, plan.app, stage.id)
            if name not in topics.describe([name]):
                topics.create(name, size, settings.replication, COMPACTED)

    steps, control = steps_topic(settings.prefix, plan.app), control_topic(settings.prefix, plan.app)
    total = sum(sizes.values())
    have = topics.describe([steps, control])
    if steps not in have:
        topics.create(steps, total, settings.replication, FOREVER)
    elif have[steps].partitions != total:
        raise SourceError(
            f"app {plan.app!r} ran with {have[steps].partitions} tasks, but the flow now has {total}",
            where=", ".join(f"stage {s}: {n} tasks" for s, n in sizes.items()),
            hint="partitions were added to or removed from a source, the flow was changed, or another flow has this name; "
            "undo that, or give the flow another name",
        )
    if control not in have:
        topics.create(control, 1, settings.replication, {**COMPACTED, "segment.bytes": str(16 << 20)})
    infos = topics.describe(counts)
    tasks = lay_out(plan, settings, sizes, infos)
    written = {o.topic for stage in plan.stages for o in stage.outputs} | {steps}
    written |= {c.topic for bound in tasks if (c := bound.task.changelog) is not None}
    limits = {name: int(config["max.message.bytes"]) for name, config in topics.configs(written).items()}
    return App(plan.app, plan, steps, control, Layout(counts), infos, tasks, limits)


def lay_out(
    plan: Plan, settings: Settings, sizes: Mapping[str, int], infos: Mapping[str, TopicInfo]
) -> tuple[BoundTask, ...]:
    """Number the tasks, stage by stage."""
    steps = steps_topic(settings.prefix, plan.app)
    tasks: list[BoundTask] = []
    for stage in plan.stages:
        eager = stage.regime.kind == "eager" and stage.stateful
        changelog = changelog_topic(settings.prefix, plan.app, stage.id)
        for p in range(sizes[stage.id]):
            task = Task(
                TaskId(stage.id, p),
                TopicPartition(steps, len(tasks)),
                TopicPartition(changelog, p) if eager else None,
                stage.stateful,
            )
            inputs = tuple(
                BoundInput(i, TopicPartition(i.topic, p), InputPartition("", i.topic, infos[i.topic].id, p))
                for i in stage.inputs
            )
            tasks.append(BoundTask(task, stage, inputs))
    return tuple(tasks)


def stage_size(stage: Stage, counts: Mapping[str, int]) -> int:
    """How many tasks a stage has: the partitions of its inputs, which must agree."""
    sizes = {i.topic: counts[i.topic] for i in stage.inputs}
    if len(set(sizes.values())) > 1:
        raise SourceError(
            f"stage {stage.id!r} reads topics with different numbers of partitions, so equal keys do not meet",
            where=", ".join(f"{t}: {n}" for t, n in sizes.items()),
            hint="give them the same number, or pass repartition=True to the sources",
        )
    return next(iter(sizes.values()))


def check_sources(plan: Plan, found: Mapping[str, TopicInfo], topics: Topics) -> None:
    """Sources exist, and no lazy stage reads a compacted topic: its division, read again, would differ."""
    sources = [(stage, i) for stage in plan.stages for i in stage.inputs if i.kind == "source"]
    for stage, i in sources:
        if i.topic not in found:
            raise ClusterError(
                f"topic {i.topic!r} does not exist",
                where=f"source {i.id}, read by stage {stage.id}",
                hint="create it, or pass topic= to the source if it has another name",
            )
    configs = topics.configs(i.topic for stage, i in sources if stage.regime.kind == "lazy")
    for stage, i in sources:
        if stage.regime.kind == "lazy" and "compact" in configs[i.topic].get("cleanup.policy", ""):
            raise SourceError(
                f"the lazy regime cannot read topic {i.topic!r}: it is compacted, so a division read again would differ",
                where=f"source {i.id}, read by stage {stage.id}",
                hint="use the eager regime for this part, or put .repartition(...) before it: the edge it makes is a log",
            )


def check_division(task: BoundTask, ends: Mapping[InputPartition, Offset]) -> None:
    """What the last step read is what is there now: same topics, same partitions. Raises SourceError."""
    now = {i.partition for i in task.inputs}
    for gone in ends.keys() - now:
        same = [p for p in now if (p.topic, p.partition) == (gone.topic, gone.partition)]
        if same:
            raise SourceError(
                f"topic {gone.topic!r} was deleted and made anew: its offsets mean other records now",
                where=f"task {task.task.id}, which had read {gone.topic}[{gone.partition}] up to {ends[gone]}",
                hint="give the flow another name to begin again on the new topic",
            )
        raise SourceError(
            f"task {task.task.id} read {gone.topic}[{gone.partition}], which it does not read now",
            hint="partitions or sources were removed; undo that, or give the flow another name",
        )
    if ends and (new := now - ends.keys()):
        raise SourceError(
            f"task {task.task.id} has new input partitions: {', '.join(f'{p.topic}[{p.partition}]' for p in sorted(new))}",
            hint="partitions or sources were added; undo that, or give the flow another name",
        )


def start_offsets(task: BoundTask, topics: Topics) -> dict[InputPartition, Offset]:
    """Where a task begins that has no step yet."""
    found: dict[InputPartition, Offset] = {}
    for i in task.inputs:
        if isinstance(i.input.start, Mapping):
            if i.place.partition in i.input.start:
                found[i.partition] = Offset(i.input.start[i.place.partition])
                continue
            at: str | int = "earliest"
        else:
            at = i.input.start
        found[i.partition] = topics.offsets([i.place], at)[i.place]
    return found


def _inputs(stage: Stage) -> list[str]:
    return [i.topic for i in stage.inputs]


def _outputs(stage: Stage) -> list[str]:
    return [o.topic for o in stage.outputs]
