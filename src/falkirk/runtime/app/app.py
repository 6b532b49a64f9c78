"""An app on a cluster: its flow's stages bound to topics, which gives its tasks.

tasks         stage 0: partitions 0..P₀−1, stage 1: partitions 0..P₁−1, …
steps topic   one partition for each task, in that order
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from falkirk.checkpoint.ids import InputPartition, Millis, Offset, TaskId, TopicPartition
from falkirk.checkpoint.tasks import Task
from falkirk.connectors.kafka.admin.described import TopicInfo
from falkirk.connectors.kafka.admin.topic_settings import BROKER_TIME, CONTROL
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.app_topics.control import PARTITIONS, ControlTopic
from falkirk.connectors.kafka.client.config import logger
from falkirk.errors import ClusterError, SourceError
from falkirk.runtime.app.batch_part import BoundBatch, bind
from falkirk.runtime.app.registries import meet_registries
from falkirk.runtime.app.warnings import warn_of_expired
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout import layout
from falkirk.runtime.layout.compatibility import check_same_flow, check_stages, check_tasks, is_recorded, keep
from falkirk.runtime.layout.layout import LayoutRecord, ShadowRecord, Start
from falkirk.runtime.layout.preflight import Preflight, preflight
from falkirk.runtime.layout.wanted_topics import logs_of
from falkirk.runtime.rebuild.checks import check_rebuilds
from falkirk.runtime.rebuild.shadows import with_shadows
from falkirk.stream.dataflow.topics import Accepts, Input, Layout
from falkirk.stream.definition.names import backfill_topic, control_topic, epochs_topic, steps_topic
from falkirk.stream.stages.plan import Plan, Stage, recovery_of
from falkirk.wording import counted

OWN_LOGS: frozenset[layout.Role] = frozenset({"steps", "changelog", "edge", "epochs"})
"""Topics that only Falkirk reads, beside the control topic."""


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
    """What its worker reads for it, of broadcast tables: part of its divisions, but not one of its inputs."""
    shadow: tuple[TopicPartition, Offset] | None = None
    """The changelog that operators rebuilt beside the previous version begin with, and where it ends."""
    until: Until | None = None
    """For a shadow's task: how far the app beside it has read."""


@dataclass(frozen=True, slots=True)
class Until:
    """How far a task has read, and the clock of its last step."""

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
    """The largest record, in bytes, that each topic accepts, for the topics that the app writes."""
    recorded: LayoutRecord
    batches: tuple[BoundBatch, ...] = ()
    backfill: str | None = None
    """The topic that records the app's backfill, if one existed when the layout was read."""
    starts: Mapping[str, Start] = field(default_factory=dict)
    """Where sources begin after a reset, by topic."""

    @property
    def group(self) -> str:
        """The consumer group: its members are the workers, its partitions the tasks."""
        return self.name

    @property
    def until(self) -> Mapping[TopicPartition, Offset] | None:
        """For a shadow: the offsets where it stops reading. None: it reads without an end."""
        untils = [bound.until for bound in self.tasks if bound.until is not None]
        return {place: at for until in untils for place, at in until.ends.items()} if untils else None

    @property
    def incarnation(self) -> str:
        """Distinguishes this app from a deleted or reset app of the same name: the id of its steps topic."""
        return layout.incarnation_of(self.topics[self.steps].id)


def prepare(
    plan: Plan,
    settings: Settings,
    topics: Topics,
    *,
    backfill: bool = False,
    losing: Collection[str] = (),
    beside: str = "",
    since: LayoutRecord | None = None,
) -> App:
    """Bind a flow to a cluster: check it against its sources and its recorded layout, make its topics, number its tasks. With
    `backfill`, the layout records that one exists: workers find it there (`runtime.backfill.look`). The state of the
    operators `losing` need not be kept. `beside`: for a shadow, the app that it is beside. `since`: for a worker that has run
    with this layout, and does not take the app back to its flow if that has been changed (OutgrownError).

    Safe to call from any number of workers at once. Raises ClusterError, SourceError and StateError, and then makes nothing.
    """
    app = _prepare(plan, settings, topics, backfill=backfill, losing=losing, beside=beside, since=since, making=True)
    assert app is not None
    return app


def prepared(plan: Plan, settings: Settings, topics: Topics) -> App | None:
    """The same, if all of it has been made and recorded; None otherwise. Makes and records nothing. Raises as `prepare`."""
    return _prepare(plan, settings, topics, backfill=False, losing=(), beside="", since=None, making=False)


def _prepare(
    plan: Plan,
    settings: Settings,
    topics: Topics,
    *,
    backfill: bool,
    losing: Collection[str],
    beside: str,
    since: LayoutRecord | None,
    making: bool,
) -> App | None:
    steps, control = steps_topic(settings.prefix, plan.app), control_topic(settings.prefix, plan.app)
    with closing(ControlTopic(settings.cluster(), control)) as record:
        found = preflight(plan, settings, topics, record, backfill=backfill)
        if since is not None:
            check_same_flow(since, found.past.layout)
        check_fit(found, steps, losing)
        check_rebuilds(found, settings, topics)
        meet_registries(found.plan)
        grows = found.counts.get(steps, found.tasks) < found.tasks
        if not making and (found.missing or grows or found.past.layout is None):
            return None
        infos = _make_topics(found, settings, topics, control, steps if grows else None)
        if found.past.layout is None:
            warn_of_expired(found.plan, topics)
        recorded = _topic_records(found, infos, topics)
        stages = with_shadows(found, settings, topics)
        if not making and not is_recorded(found.past.layout, stages, recorded):
            return None
        known = keep(record, found.past, plan.app, stages, recorded, beside)
    if not is_recorded(known, stages, recorded):
        # Another process was first, with other topics, more partitions or another flow: look again, as if we began now.
        return _prepare(
            plan, settings, topics, backfill=backfill, losing=losing, beside=beside, since=since, making=making
        )
    return _bind(found, known, infos, settings, topics)


def _make_topics(
    found: Preflight, settings: Settings, topics: Topics, control: str, growing: str | None
) -> dict[str, TopicInfo]:
    """Make what is missing, and give the steps topic `growing` a partition for each task. Returns all topics of the app, with
    the partitions that it knows."""
    counts = dict(found.counts)
    for name, (partitions, config) in found.missing.items():
        topics.create(name, partitions, settings.replication, config)
    if growing is not None:
        topics.grow(growing, found.tasks)
        counts[growing] = found.tasks
    if not topics.describe([control]):
        topics.create(control, PARTITIONS, settings.replication, CONTROL)
    # Another process may have just made them: not every broker knows them yet.
    infos = topics.shown(found.roles)
    return {name: replace(info, partitions=counts.get(name, info.partitions)) for name, info in infos.items()}


def _topic_records(found: Preflight, infos: Mapping[str, TopicInfo], topics: Topics) -> dict[str, layout.TopicRecord]:
    firsts = _firsts(found, infos, topics)
    return {
        name: layout.TopicRecord(infos[name].id, infos[name].partitions, role, firsts.get(name, ()))
        for name, role in sorted(found.roles.items())
    }


def _bind(
    found: Preflight, known: LayoutRecord, infos: dict[str, TopicInfo], settings: Settings, topics: Topics
) -> App:
    """The app in layout `known`."""
    plan, roles, control = found.plan, found.roles, control_topic(settings.prefix, found.plan.app)
    shadows = {stage.id: stage.shadow for stage in known.stages if stage.shadow is not None}
    outputs = {o.topic for part in plan.parts for o in part.outputs}
    written = {name for name, role in roles.items() if role != "source"} | outputs
    own = {name for name, role in roles.items() if role in OWN_LOGS} | {control}
    configs = topics.configs(written | own)
    let_broker_date(own, configs, topics)
    accepts = {name: accepted(configs[name]) for name in written - own}
    epochs = {batch.id: epochs_topic(settings.prefix, plan.app, batch.id) for batch in plan.batches}
    backfill = backfill_topic(settings.prefix, plan.app)
    begins = found.past.begins
    return App(
        name=plan.app,
        plan=plan,
        steps=steps_topic(settings.prefix, plan.app),
        control=control,
        layout=Layout({name: info.partitions for name, info in infos.items()}, accepts, found.sizes),
        topics=infos,
        tasks=lay_out(plan, settings, known.number, found.sizes, infos, shadows),
        limits={name: int(configs[name]["max.message.bytes"]) for name in written},
        recorded=known,
        batches=bind(plan.batches, epochs, infos, accepts),
        backfill=backfill if backfill in known.topics else None,
        starts={} if begins is None else begins.starts,
    )


def accepted(config: Mapping[str, str]) -> Accepts:
    """Which records a topic with these settings accepts.

    >>> accepted({"cleanup.policy": "compact", "message.timestamp.after.max.ms": "3600000", "max.message.bytes": "9000"})
    Accepts(keyless=False, after=3600000, before=None, largest=9000)
    """
    keyless, largest = "compact" not in config.get("cleanup.policy", ""), int(config["max.message.bytes"])
    if BROKER_TIME.items() <= config.items():
        return Accepts(keyless, largest=largest)
    both = config.get("message.timestamp.difference.max.ms", _ANY)
    bounds = (config.get(f"message.timestamp.{side}.max.ms", both) for side in ("after", "before"))
    after, before = (None if ms == _ANY else int(ms) for ms in bounds)
    return Accepts(keyless, after, before, largest)


_ANY = str(2**63 - 1)


def let_broker_date(own: Collection[str], configs: Mapping[str, Mapping[str, str]], topics: Topics) -> None:
    """In topics that older versions made, records have their writers' dates. If the app's user may not change that, the app
    runs all the same: only records of a host whose clock is far ahead are refused."""
    dated = dated_by_writers(own, configs)
    try:
        topics.alter(dated, BROKER_TIME)
    except ClusterError as error:
        command = "kafka-configs.sh --alter --entity-type topics --add-config message.timestamp.type=LogAppendTime"
        logger.warning(
            "%s (%s): this host's clock is not checked, and brokers reject records if it is an hour ahead. Have an "
            "administrator run: %s --entity-name TOPIC, for %s", error.what, error.where, command, ", ".join(dated)
        )  # fmt: skip


def dated_by_writers(names: Collection[str], configs: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The topics whose records have their writers' dates.

    >>> dated_by_writers(["a", "b"], {"a": {"message.timestamp.type": "CreateTime"}, "b": dict(BROKER_TIME)})
    ['a']
    """
    return sorted(name for name in names if not BROKER_TIME.items() <= configs[name].items())


def _firsts(found: Preflight, infos: Mapping[str, TopicInfo], topics: Topics) -> dict[str, tuple[int, ...]]:
    """Where the partitions of sources began when the app first read them."""
    known = {} if found.past.layout is None else found.past.layout.topics
    sources = [name for name, role in found.roles.items() if role == "source"]
    # What ran before this was recorded knows of none.
    read = {name: known[name].partitions if name in known else 0 for name in sources}
    new = {name: range(read[name], infos[name].partitions) for name in sources}
    places = [TopicPartition(name, p) for name, some in new.items() for p in some]
    now = topics.offsets(places, "earliest") if places else {}
    return {
        name: (*(known[name].first if name in known else ()), *(int(now[TopicPartition(name, p)]) for p in some))
        for name, some in new.items()
    }


def check_fit(found: Preflight, steps: str, losing: Collection[str] = ()) -> None:
    """Raises StateError and SourceError if the flow does not fit the app that ran here before under its name."""
    check_tasks(found.plan, found.sizes, has_run=found.past.layout is not None)
    if found.past.layout is not None:
        check_stages(found.past.layout, found.stages, losing)
    elif (have := found.counts.get(steps, found.tasks)) != found.tasks:
        raise SourceError(
            f"a different flow has already used the name {found.plan.app!r}: it had {counted(have, 'task')}, "
            f"and this one has {found.tasks}",
            where=f"topic {steps}",
            hint="give this flow a different name",
        )


def lay_out(
    plan: Plan,
    settings: Settings,
    number: int,
    sizes: Mapping[str, int],
    infos: Mapping[str, TopicInfo],
    shadows: Mapping[str, ShadowRecord] = MappingProxyType({}),
) -> tuple[BoundTask, ...]:
    """Number the tasks, stage by stage, in the given order: that of layout `number`."""
    steps = steps_topic(settings.prefix, plan.app)
    tasks: list[BoundTask] = []
    for stage in plan.stages:
        logs = logs_of(stage, plan.app, settings.prefix)
        for p in range(sizes[stage.id]):
            task = Task(
                TaskId(stage.id, p),
                TopicPartition(steps, len(tasks)),
                recovery_of(stage)(tuple(TopicPartition(topic, p) for topic in logs)),
                number,
            )
            inputs = tuple(
                BoundInput(i, place, InputPartition.at(place, infos[i.topic].id))
                for i in stage.inputs
                for q in i.read_by(p, sizes[stage.id], infos[i.topic].partitions)
                for place in [TopicPartition(i.topic, q)]
            )
            made = shadows.get(stage.id)
            shadow = None if made is None else (TopicPartition(made.topic, p), Offset(made.ends[p]))
            tasks.append(BoundTask(task, stage, inputs, shared_inputs(stage, infos), shadow))
    return tuple(tasks)


def shared_inputs(stage: Stage, infos: Mapping[str, TopicInfo]) -> tuple[BoundInput, ...]:
    """All partitions of the broadcast tables that a stage looks up, and of the topics that tell which epochs are complete."""
    places = [
        (t, TopicPartition(t.source.topic, p)) for t in stage.shared for p in range(infos[t.source.topic].partitions)
    ]
    places += [(t, TopicPartition(t.epochs, 0)) for t in stage.shared if t.epochs is not None]
    return tuple(BoundInput(t.input, place, InputPartition.at(place, infos[place.topic].id)) for t, place in places)
