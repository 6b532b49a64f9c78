"""What a flow needs on a cluster: how many tasks each stage has, and which topics are to be made, with which settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from falkirk.connectors.kafka.admin.topic_settings import COMPACTED, FOREVER, LOG, TABLE
from falkirk.errors import SourceError
from falkirk.runtime.host.settings import Settings
from falkirk.stream.batch import BatchStage
from falkirk.stream.dataflow.topics import Made
from falkirk.stream.definition.names import epochs_topic, log_topic, steps_topic
from falkirk.stream.stages.plan import Plan, Stage, recovery_of

USUAL = 1_048_588
"""Bytes of the largest record that a topic accepts, if nobody says otherwise."""


def topics_to_make(
    plan: Plan,
    settings: Settings,
    have: Mapping[str, int],
    room: Mapping[str, str],
    were: Mapping[str, int] | None = None,
    dated: Mapping[str, str] = MappingProxyType({}),
) -> tuple[dict[str, int], dict[str, tuple[int, Mapping[str, str]]]]:
    """The number of tasks of each stage; and the missing topics, with their partitions and settings. `were`: the earlier
    numbers of tasks; `dated`: settings with which a topic accepts records of any date."""
    wanted = _Wanted(plan, settings.prefix, room, dated, were or {}, dict(have))
    for topic, made in made_topics(plan).items():
        wanted.topic(topic, made.partitions, {**room, **made.config})
    for stage in plan.stages:
        wanted.stage(stage)
    for batch in plan.batches:
        wanted.batch(batch)
    if plan.stages:
        wanted.topic(steps_topic(settings.prefix, plan.app), sum(wanted.sizes.values()), LOG)
    return {stage.id: wanted.sizes[stage.id] for stage in plan.stages}, wanted.missing


@dataclass(slots=True)
class _Wanted:
    """Collects the topics that a flow needs. An edge has as many partitions as the flow says, or as the stages before it have
    tasks. These may come later in the order of the layout: new stages are its last."""

    plan: Plan
    prefix: str
    room: Mapping[str, str]
    dated: Mapping[str, str]
    were: Mapping[str, int]
    counts: dict[str, int]
    """Partitions, of the topics that exist and of those that are missing."""
    missing: dict[str, tuple[int, Mapping[str, str]]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    """Tasks of each stage."""

    def topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        if name not in self.counts:
            self.counts[name] = partitions
            self.missing[name] = (partitions, config)

    def stage(self, stage: Stage) -> None:
        if stage.id in self.sizes:
            return
        self._edges_into(stage)
        self.sizes[stage.id] = size = stage_size(stage, self.counts, self.were.get(stage.id))
        log = {**LOG, **self.room}
        configs = {"sink": self.dated, "edge": log, "dead_letters": {**FOREVER, **self.room, **self.dated}}
        read = {i.topic for other in self.plan.stages for i in other.inputs}
        for output in stage.outputs:
            if output.kind == "edge" and output.topic in read:
                continue  # whoever reads it decides
            partitions = 1 if output.kind == "dead_letters" else size
            config = (
                configs[output.kind] if output.answers is None else {**configs["sink"], **self.room, **output.answers}
            )
            self.topic(output.topic, partitions, config)
        for topic in logs_of(stage, self.plan.app, self.prefix):
            self.topic(topic, size, {**COMPACTED, **self.room})

    def _edges_into(self, stage: Stage) -> None:
        """All edges into a stage have the same number of partitions, however many tasks write them."""
        edges = [i.topic for i in stage.inputs if i.kind == "edge"]
        known = [self.counts[topic] for topic in edges if topic in self.counts]
        writers = {output.topic: other for other in self.plan.stages for output in other.outputs}
        for topic in edges:
            self.stage(writers[topic])
        chosen = self.plan.tasks if stage.scales else None
        for topic in edges:
            partitions = known[0] if known else chosen or max(self.sizes[writers[each].id] for each in edges)
            self.topic(topic, partitions, {**LOG, **self.room})

    def batch(self, batch: BatchStage) -> None:
        size = max(self.counts[i.topic] for i in batch.inputs)
        looked_up = {table.source.topic for table in self.plan.shared}
        for output in batch.outputs:
            if output.kind == "dead_letters":
                self.topic(output.topic, 1, {**FOREVER, **self.room, **self.dated})
            else:
                self.topic(output.topic, size, {**(TABLE if output.topic in looked_up else {}), **self.dated})
        results = max(self.counts[o.topic] for o in batch.outputs)
        self.topic(epochs_topic(self.prefix, self.plan.app, batch.id), 1 + results, LOG)


def made_topics(plan: Plan) -> dict[str, Made]:
    """The topics that the app reads and makes itself."""
    return {i.topic: i.made for part in plan.parts for i in part.inputs if i.made is not None}


def result_partitions(plan: Plan, counts: Mapping[str, int]) -> int:
    """For a backfill: as many as the largest topic has that streams end in."""
    return max((counts[o.topic] for s in plan.stages for o in s.outputs if o.kind != "edge"), default=1)


def stage_size(stage: Stage, counts: Mapping[str, int], was: int | None = None) -> int:
    """The number of tasks of a stage: the partitions of its inputs, which must agree. Loose inputs' partitions are spread
    over the tasks. If there are no others: as many tasks as before, or else as the largest has partitions."""
    topics = [i.topic for i in stage.inputs]
    if twice := next((topic for topic in topics if topics.count(topic) > 1), None):
        raise SourceError(
            f"stage {stage.id!r} reads topic {twice!r} twice, but a division can contain each partition only once",
            where=", ".join(f"source {i.id}" for i in stage.inputs if i.topic == twice),
            hint="read it as one source, and use branch or concat",
        )
    sizes = {i.topic: counts[i.topic] for i in stage.inputs if not i.loose}
    if len(set(sizes.values())) > 1:
        raise SourceError(
            f"stage {stage.id!r} reads topics with different numbers of partitions, so equal keys do not meet",
            where=", ".join(f"{t}: {n}" for t, n in sizes.items()),
            hint="give them the same number, or pass repartition=True to the sources",
        )
    return next(iter(sizes.values()), was or max(counts[i.topic] for i in stage.inputs))


def logs_of(stage: Stage, app: str, prefix: str) -> list[str]:
    """The topics that its regime needs."""
    return [log_topic(prefix, app, kind, stage.id) for kind in recovery_of(stage).needs]


def room_for(configs: Mapping[str, Mapping[str, str]]) -> Mapping[str, str]:
    """The settings of topics that hold the sources' data in another form, by the sources' settings: a record as large as its
    source allows must fit into the dead letters (in base64), into an edge (with its timestamp) and into the changelog, and a
    request into its answer."""
    largest = max((int(config["max.message.bytes"]) for config in configs.values()), default=USUAL)
    return {"max.message.bytes": str(2 * largest)}
