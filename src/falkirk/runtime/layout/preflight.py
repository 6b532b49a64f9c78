"""Compares a flow with the present cluster: what exists, what was recorded, and what would have to be made. Makes nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from falkirk.checkpoint.ids import address, cluster_of
from falkirk.connectors.kafka.admin.described import TopicInfo
from falkirk.connectors.kafka.admin.topic_settings import LOG, any_date
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.app_topics.control import ControlTopic
from falkirk.errors import ClusterError, SourceError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout import layout
from falkirk.runtime.layout.compatibility import as_recorded, check_moved_sinks, check_topics, stage_records
from falkirk.runtime.layout.layout import AppRecord, LayoutRecord, StageRecord
from falkirk.runtime.layout.wanted_topics import logs_of, result_partitions, room_for, topics_to_make
from falkirk.stream.access.endpoints import views_of
from falkirk.stream.dataflow.topics import Input
from falkirk.stream.definition.names import backfill_topic, control_topic, epochs_topic, steps_topic
from falkirk.stream.definition.pattern import Pattern
from falkirk.stream.evolution.rebuild_plan import check_known
from falkirk.stream.operators.sinks.sink import Sink
from falkirk.stream.stages.plan import Plan, Stage

HOW = "create it (falkirk topics APP:FLOW --create --sources --partitions N)"
"""What to do about a missing source topic."""


@dataclass(frozen=True, slots=True)
class Preflight:
    """The result."""

    plan: Plan
    """With its stages as in the layout."""
    past: AppRecord
    """What is recorded of the app."""
    roles: Mapping[str, layout.Role]
    """The flow's topics."""
    grown: Mapping[str, int]
    """Partitions that sources have beyond those in the layout."""
    counts: Mapping[str, int]
    """For existing ones, the partitions that the app knows."""
    missing: Mapping[str, tuple[int, Mapping[str, str]]]
    """Partitions and settings of the others."""
    sizes: Mapping[str, int]
    """How many tasks each stage has."""
    stages: tuple[StageRecord, ...]
    """To be recorded."""

    @property
    def tasks(self) -> int:
        """Of all stages."""
        return sum(self.sizes.values())


def preflight(
    plan: Plan, settings: Settings, topics: Topics, record: ControlTopic, *, backfill: bool = False
) -> Preflight:
    """Look at the cluster, and check what the flow reads there. Raises ClusterError, SourceError and StateError."""
    topics.check_reachable()
    for cluster in others(plan):
        topics.of(cluster).check_reachable()
    fills = backfill_topic(settings.prefix, plan.app)
    control = control_topic(settings.prefix, plan.app)
    past = layout.read_app_record(record) if topics.describe([control]) else AppRecord()
    layout.check_not_ending(plan.app, past)
    known = past.layout
    check_known(plan, settings.rebuild)
    plan = resolved(plan, settings, topics, known)
    check_matched(plan)
    plan = replace(plan, stages=tuple(as_recorded(known, plan.stages, settings.rebuild)))
    roles = roles_of(plan, settings)
    if backfill or (known is not None and fills in known.topics):
        roles[fills] = "epochs"
    found, growing = topics.describe(roles), growing_of(plan)
    if known is not None:
        found |= topics.sought(known.topics.keys() - found.keys(), patience=5.0)
        # Partitions are never taken away: a broker that shows fewer has not heard of the last ones yet.
        least = {t: known.topics[t].partitions for t in growing & known.topics.keys() & found.keys()}
        found |= topics.with_partitions({t: n for t, n in least.items() if found[t].partitions < n})
        check_topics(known, found, growing)
        check_moved_sinks(known, plan)
    check_sources(plan, found, topics)
    check_sinks(plan, found, topics)
    counts = {name: info.partitions for name, info in found.items() if name in roles}
    if known is not None:
        # A sink whose topic got more partitions is written as before: a key's records must not be in two of them.
        fixed = counts.keys() & known.topics.keys() - growing
        counts |= {name: known.topics[name].partitions for name in fixed}
    were = {stage.id: stage.tasks for stage in known.stages} if known is not None else {}
    configs = topics.configs({i.topic for p in plan.parts for i in p.inputs if i.kind == "source" and i.topic in found})
    ours = next((config for name, config in configs.items() if not cluster_of(name)), {})
    sizes, missing = topics_to_make(plan, settings, counts, room_for(configs), were, any_date(ours))
    if fills in roles and fills not in counts:
        made = {name: partitions for name, (partitions, _) in missing.items()}
        missing[fills] = (1 + result_partitions(plan, {**counts, **made}), LOG)
    grown = {} if known is None else {t: counts[t] - known.topics[t].partitions for t in growing & known.topics.keys()}
    grown = {topic: more for topic, more in sorted(grown.items()) if more}
    return Preflight(
        plan, past, roles, grown, counts, missing, sizes, stage_records(plan.stages, sizes, known, past.next)
    )


def growing_of(plan: Plan) -> set[str]:
    """The topics that may get more partitions: all that read them are streams, and say so."""
    read = [i for stage in plan.stages for i in stage.inputs]
    fixed = {i.topic for i in read if not i.grows} | {i.topic for batch in plan.batches for i in batch.inputs}
    return {i.topic for i in read} - fixed - {table.source.topic for table in plan.shared}


def resolved(plan: Plan, settings: Settings, topics: Topics, known: LayoutRecord | None = None) -> Plan:
    """The flow with the topics that its patterns match now in place of the patterns. They include those of the layout, even
    if the broker that is asked does not know them yet. Raises ClusterError."""
    patterns = [pattern for stage in plan.stages for pattern in patterns_of(stage).values()]
    if not patterns:
        return plan
    had = {name for name, topic in known.topics.items() if topic.role == "source"} if known is not None else set()
    there = {address(cluster, name) for cluster in {p.cluster for p in patterns} for name in topics.of(cluster).names()}
    wanted = {topic for pattern in patterns for topic in pattern.among({*there, *had}, settings.prefix)}
    # Not every broker may show a topic that was just made: a later look finds it.
    return matched(plan, settings.prefix, {*topics.describe(wanted), *had})


def matched(plan: Plan, prefix: str, names: Collection[str]) -> Plan:
    """The flow with the matching names in place of its patterns."""
    return replace(plan, stages=tuple(_matched(stage, prefix, names) for stage in plan.stages))


def _matched(stage: Stage, prefix: str, names: Collection[str]) -> Stage:
    inputs: list[Input] = []
    for i in stage.inputs:
        if not isinstance(i.among, Pattern):
            inputs.append(i)
        elif all(i.id != other.id for other in inputs):  # after an earlier look, it matches the same names again
            inputs += [replace(i, topic=name) for name in i.among.among(names, prefix) or [str(i.among)]]
    return stage.reading(tuple(inputs))


def patterns_of(stage: Stage) -> dict[str, Pattern]:
    """The topic patterns that it reads, by the source's id."""
    return {i.id: i.among for i in stage.inputs if isinstance(i.among, Pattern)}


def others(plan: Plan) -> list[str]:
    """The clusters that the flow reads from, beside the app's own."""
    read = {i.topic for part in plan.parts for i in part.inputs} | {table.source.topic for table in plan.shared}
    return sorted({cluster_of(topic) for topic in read} - {""})


def roles_of(plan: Plan, settings: Settings) -> dict[str, layout.Role]:
    """The topics of a flow, and the role of each; reading a topic counts for more than also writing it."""
    roles: dict[str, layout.Role] = {o.topic: o.kind for part in plan.parts for o in part.outputs}
    roles |= {i.topic: i.kind for part in plan.parts for i in part.inputs}
    roles |= {table.source.topic: "source" for table in plan.shared}
    for stage in plan.stages:
        for topic in logs_of(stage, plan.app, settings.prefix):
            roles[topic] = "changelog"
    roles |= {epochs_topic(settings.prefix, plan.app, batch.id): "epochs" for batch in plan.batches}
    return {**roles, steps_topic(settings.prefix, plan.app): "steps"} if plan.stages else roles


def check_sources(plan: Plan, found: Mapping[str, TopicInfo], topics: Topics) -> None:
    """Sources exist, with the partitions that `start=` names. No compacted topic is read by a source that adds up its
    records, nor by a part that may read a division again: the division would differ."""
    sources = [(part, i) for part in plan.parts for i in part.inputs if i.kind == "source"]
    for stage, i in sources:
        if i.topic not in found:
            if i.made is not None:
                continue
            raise ClusterError(
                f"topic {i.topic!r} does not exist",
                where=f"source {i.id}, read by stage {stage.id}",
                hint=f"{HOW}, or pass topic= to the source if it has another name",
            )
        count = found[i.topic].partitions
        if isinstance(i.start, Mapping) and (last := max(i.start)) >= count:
            raise SourceError(
                f"start= names partition {last} of topic {i.topic!r}, which has {count}",
                where=f"source {i.id}, read by stage {stage.id}",
                hint="partitions are numbered from 0",
            )
    check_tables(plan, found, topics)
    whole = [
        (part, i) for part, i in sources if (i.every or part.regime.recovery.requires.same_records) and i.topic in found
    ]
    configs = topics.configs(i.topic for _, i in whole)
    for part, i in whole:
        if "compact" in configs[i.topic].get("cleanup.policy", ""):
            if i.every:
                raise SourceError(
                    f"topic {i.topic!r} is compacted, and the rows of source {i.id!r} are the sum of all of its changes: "
                    "compaction removes some",
                    where=f"source {i.id}, read by stage {part.id}",
                    hint='set the topic\'s cleanup.policy to delete; or, with changes="debezium", give the source the '
                    "table's key=: then the last row of each key counts",
                )
            raise SourceError(
                f"the {part.regime.kind} regime cannot read topic {i.topic!r}: it is compacted, so a division read again "
                "would differ",
                where=f"source {i.id}, read by stage {part.id}",
                hint="use the eager regime for this part, or read a topic that keeps every record"
                if part.regime.recovery.in_epochs
                else "use the eager regime for this part, or put .repartition(...) before it: the edge it makes is a log",
            )


def check_sinks(plan: Plan, found: Mapping[str, TopicInfo], topics: Topics) -> None:
    """Outputs without keys do not go to compacted topics: the broker would refuse each of their records. Nor do weights,
    which readers add up."""
    weighed = {
        o.topic: o
        for stage in plan.planned
        for o in stage.operators
        if isinstance(o, Sink) and o.mode == "weights" and o.topic in found
    }
    keyless = {view.topic: f"sink {view.name}" for view in views_of(plan) if view.kind == "sink" and view.key is None}
    keyless |= {o.topic: o.id for part in plan.parts for o in part.outputs if o.kind == "dead_letters"}
    for topic, config in topics.configs(topic for topic in {*keyless, *weighed} if topic in found).items():
        if "compact" not in config.get("cleanup.policy", ""):
            continue
        if topic in keyless:
            raise ClusterError(
                f"topic {topic!r} is compacted, so it accepts no record without a key, and {keyless[topic]} has none",
                where=keyless[topic],
                hint="set the topic's cleanup.policy to delete, or name another topic; a sink may have a key=",
            )
        raise ClusterError(
            f"topic {topic!r} is compacted, and the rows of sink {weighed[topic].id!r} are the sum of all of its records: "
            "compaction removes some",
            where=weighed[topic].where,
            hint="set the topic's cleanup.policy to delete, or name another topic",
        )


def check_matched(plan: Plan) -> None:
    """Every pattern matches something. Raises ClusterError."""
    if unmatched := next(((s, i) for s in plan.stages for i in s.inputs if not i.resolved), None):
        stage, i = unmatched
        raise ClusterError(
            f"no topic matches {i.topic}",
            where=f"source {i.id}, read by stage {stage.id}",
            hint="create one (the app finds more topics while it runs), or correct the pattern: it must match full names",
        )


def check_tables(plan: Plan, found: Mapping[str, TopicInfo], topics: Topics) -> None:
    """The topics of broadcast tables exist, unless the flow itself writes them, and keep the last record of each key."""
    made = {o.topic for part in plan.parts for o in part.outputs}
    names = [table.source.topic for table in plan.shared]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise SourceError(f"two broadcast tables read topic {twice!r}", hint="define one table, and look it up twice")
    if missing := next((name for name in names if name not in found and name not in made), None):
        raise ClusterError(f"topic {missing!r} does not exist", where=f"table {missing}", hint=HOW)
    for name, config in topics.configs(name for name in names if name in found).items():
        kept = config.get("retention.ms") == config.get("retention.bytes") == "-1"
        if "compact" not in config.get("cleanup.policy", "") and not kept:
            raise SourceError(
                f"topic {name!r} deletes older records: a worker that reads it from the beginning would miss rows",
                where=f"table {name}, cleanup.policy={config.get('cleanup.policy')}",
                hint="set the topic's cleanup.policy to compact",
            )
