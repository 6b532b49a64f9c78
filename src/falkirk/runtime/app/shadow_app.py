"""Rebuilding operators beside the app: a shadow, bound to the cluster as a separate app.

A task of the shadow reads what the app's task with that number reads, from where that task began up to where it is now. A
state that replaces the app's own must not include what the app has not read yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from falkirk.checkpoint.ids import InputPartition, Millis, Offset, TopicPartition
from falkirk.checkpoint.records import StepRecord
from falkirk.checkpoint.tasks import ends
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.app_topics.control import ControlTopic
from falkirk.errors import ConfigError, StateError
from falkirk.runtime.app.app import App, BoundTask, Until, prepare, prepared
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout.compatibility import check_stages
from falkirk.runtime.layout.layout import LayoutRecord, Start
from falkirk.runtime.layout.preflight import Preflight, preflight
from falkirk.runtime.layout.progress import last_records, last_step
from falkirk.runtime.layout.wanted_topics import stage_size
from falkirk.runtime.rebuild.beginnings import beginnings
from falkirk.runtime.rebuild.checks import check_rebuilds, check_stage
from falkirk.runtime.rebuild.shadows import identity_of
from falkirk.state import schema
from falkirk.stream.dataflow.topics import Layout
from falkirk.stream.definition.names import control_topic, shadow_app, steps_topic
from falkirk.stream.evolution.shadow import ShadowStage, shadow_of
from falkirk.stream.stages.plan import Plan
from falkirk.stream.stages.stage import PhysicalStage
from falkirk.wording import counted


def prepare_app(plan: Plan, settings: Settings, topics: Topics) -> App:
    """What these settings run: the flow, or a shadow of it. Raises as `prepare` does."""
    return shadow(plan, settings, topics) if settings.beside else prepare(plan, settings, topics)


def prepared_app(plan: Plan, settings: Settings, topics: Topics) -> App | None:
    """The same, if all of the flow has been made and recorded; None otherwise. A shadow records itself, apart from the app.
    Raises as `prepare` does."""
    return shadow(plan, settings, topics) if settings.beside else prepared(plan, settings, topics)


def shadow(plan: Plan, settings: Settings, topics: Topics) -> App:
    """The app that rebuilds the operators that the settings name. Raises as `shadow_plan` and `prepare` do."""
    found, known = _preflight(plan, settings, topics)
    beside = identity_of(known, found.past.begins)
    own = _plan(found, known, settings)
    app = prepare(own, replace(settings, rebuild=()), topics, beside=beside)
    if app.recorded.beside != beside:
        raise StateError(
            f"what was rebuilt beside app {plan.app!r} was beside one that has been deleted or reset since",
            hint=f"falkirk delete {own.app}",
        )
    return _bound(app, found, known, settings, topics)


def shadow_plan(plan: Plan, settings: Settings, topics: Topics) -> Plan:
    """Its plan. Raises ConfigError if nothing is to be rebuilt, or only in the steps of the app itself; StateError and
    SourceError if it cannot be rebuilt at all."""
    return _plan(*_preflight(plan, settings, topics), settings)


def _preflight(plan: Plan, settings: Settings, topics: Topics) -> tuple[Preflight, LayoutRecord]:
    with closing(ControlTopic(settings.cluster(), control_topic(settings.prefix, plan.app))) as record:
        found = preflight(plan, settings, topics, record)
    known = found.past.layout
    if known is None:
        raise ConfigError(f"app {plan.app!r} has not run here: there is nothing to rebuild", hint="falkirk run runs it")
    check_stages(known, found.stages)
    check_rebuilds(found, settings, topics)
    return found, known


def _plan(found: Preflight, known: LayoutRecord, settings: Settings) -> Plan:
    app, stages = found.plan.app, _stages(found, known)
    if not stages:
        raise ConfigError(
            f"nothing that app {app!r} keeps would be rebuilt: {', '.join(settings.rebuild)} keeps what is recorded",
            hint="to rebuild it all the same, raise its version=; falkirk plan APP:FLOW --rebuild ID shows what would be",
        )
    return Plan(shadow_app(app), tuple(stages))


def _stages(found: Preflight, known: LayoutRecord) -> list[ShadowStage]:
    before, stages = {stage.id: stage for stage in known.stages}, []
    for stage, now in zip(found.plan.stages, found.stages, strict=True):
        was = before.get(now.id)
        needed = None if was is None else check_stage(was, now, stage)
        if was is None or needed is None or not isinstance(stage, PhysicalStage):
            continue
        one = shadow_of(stage, schema.change(was.state, now.state).rebuilt, needed)
        if stage_size(one, found.counts) != was.tasks:
            raise ConfigError(
                f"stage {now.id!r} has {counted(was.tasks, 'task')}, and what is read for the rebuild fewer partitions",
                where="falkirk rebuild",
                hint="rebuild it in place: falkirk run APP:FLOW --rebuild ID",
            )
        stages.append(one)
    return stages


def _bound(app: App, found: Preflight, known: LayoutRecord, settings: Settings, topics: Topics) -> App:
    """With where its inputs begin, and how far its tasks read."""
    inputs = {i.partition: i.input for bound in app.tasks for i in bound.inputs}
    reset = {} if found.past.begins is None else found.past.begins.starts
    begins = beginnings(inputs, topics, known.topics, reset)
    numbers, steps = known.numbers, steps_topic(settings.prefix, found.plan.app)
    own = [TopicPartition(steps, numbers[b.task.id.stage][b.task.id.partition]) for b in app.tasks]
    last = [last_step(records) for records in last_records(settings, own)]
    tasks = tuple(
        replace(bound, until=_until(bound, step, begins)) for bound, step in zip(app.tasks, last, strict=True)
    )
    layout = Layout({**found.counts, **app.layout.partitions}, app.layout.accepts, app.layout.tasks)
    return replace(app, tasks=tasks, layout=layout, starts=_starts(list(begins.items())))


def _until(bound: BoundTask, step: StepRecord | None, begins: dict[InputPartition, Offset]) -> Until:
    at = {} if step is None else ends(step)
    return Until(
        {i.place: at.get(i.partition, begins[i.partition]) for i in bound.inputs},
        Millis(0) if step is None else step.clock,
    )


def _starts(begins: Sequence[tuple[InputPartition, Offset]]) -> dict[str, Start]:
    """By topic, as in a reset."""
    found: dict[str, Start] = {}
    for partition, at in sorted(begins):
        before = found.get(partition.place.topic, Start(partition.topic_id, ()))
        found[partition.place.topic] = Start(before.id, (*before.offsets, int(at)))
    return found
