"""Takes over a shadow's result: when a layout says that operators are rebuilt, and they were rebuilt beside the app.

    shadow's deletion begun ──▶ its group is deleted: refused while it has workers ──▶ its owners fenced
                            ──▶ the end of its changelog: recorded in the app's layout, for each task to take

Nothing is written behind the recorded end: nobody runs an app whose deletion has begun, and nothing that its sleeping workers
had sent is committed. Any process may repeat all of this until a layout is recorded.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

import msgspec

from falkirk.checkpoint.ids import TopicPartition
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.app_topics.control import ControlTopic
from falkirk.errors import ConfigError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout.app_lookup import recorded
from falkirk.runtime.layout.deleting import announce, check_stopped, shut_out
from falkirk.runtime.layout.layout import AppRecord, Begins, LayoutRecord, ShadowRecord, StageRecord
from falkirk.runtime.layout.preflight import Preflight
from falkirk.runtime.layout.progress import is_moving, last_records, last_step
from falkirk.state import schema
from falkirk.stream.definition.names import changelog_topic, control_topic, shadow_app, steps_topic


@dataclass(frozen=True, slots=True)
class Shadow:
    """An existing shadow."""

    app: str
    known: AppRecord
    layout: LayoutRecord

    def of(self, stage: StageRecord) -> bool:
        """Whether it has rebuilt the state that this stage is to have."""
        return any((s.id, s.state, s.tasks) == (stage.id, stage.state, stage.tasks) for s in self.layout.stages)


def identity_of(layout: LayoutRecord, begins: Begins | None) -> str:
    """The identity of the app that a shadow is beside: a deleted or reset app is another."""
    return f"{layout.incarnation}/{0 if begins is None else begins.above}"


def find_shadow(app: str, settings: Settings, topics: Topics) -> Shadow | None:
    """The app's shadow, whether it runs or not."""
    name = shadow_app(app)
    known = recorded(name, settings, topics)
    return None if known is None or known.last is None else Shadow(name, known, known.last)


def rebuilt(found: Preflight) -> list[StageRecord]:
    """The stages with something to rebuild."""
    past = found.past.layout
    before = {} if past is None else {stage.id: stage for stage in past.stages}
    return [s for s in found.stages if s.id in before and schema.change(before[s.id].state, s.state).rebuilt]


def served(found: Preflight, shadow: Shadow) -> list[StageRecord]:
    """Those of them that the shadow has rebuilt."""
    past = found.past.layout
    if past is None or shadow.layout.beside != identity_of(past, found.past.begins):
        return []
    return [stage for stage in rebuilt(found) if shadow.of(stage)]


def taken_from(shadow: str, known: LayoutRecord, settings: Settings) -> list[StageRecord]:
    """The stages of an app that have taken over its shadow's result, or are doing so."""
    return [
        stage
        for stage in known.stages
        if stage.shadow is not None and stage.shadow.topic == changelog_topic(settings.prefix, shadow, stage.id)
    ]


def with_shadows(found: Preflight, settings: Settings, topics: Topics) -> tuple[StageRecord, ...]:
    """The stages to be recorded: rebuilt ones with the result of the shadow, if there is one. Raises ConfigError while it is
    still being made."""
    shadow = find_shadow(found.plan.app, settings, topics) if rebuilt(found) else None
    if shadow is None or not (stages := served(found, shadow)):
        return found.stages
    _end(shadow, settings, topics)
    made = {stage.id: _record(shadow, stage, settings, topics) for stage in stages}
    return tuple(msgspec.structs.replace(s, shadow=made.get(s.id, s.shadow)) for s in found.stages)


def check_taken(app: str, settings: Settings, topics: Topics) -> None:
    """If this is a shadow: nobody is about to take over its result. Raises ConfigError."""
    beside = app.removesuffix(shadow_app(""))
    known = None if beside == app else recorded(beside, settings, topics)
    if known is None or known.layout is None:
        return
    steps, numbers = steps_topic(settings.prefix, beside), known.layout.numbers
    for stage in taken_from(app, known.layout, settings):
        places = [TopicPartition(steps, n) for n in numbers[stage.id]]
        last = [last_step(records) for records in last_records(settings, places)]
        if any(step is not None and is_moving(stage, step) for step in last):
            raise ConfigError(
                f"tasks of app {beside!r} have not taken over yet what was rebuilt beside it",
                where=f"stage {stage.id}",
                hint=f"run it until falkirk status {beside} shows no task that is rebuilding",
            )


def _end(shadow: Shadow, settings: Settings, topics: Topics) -> None:
    """From here on its changelog does not grow."""
    partitions = shadow.layout.topics[steps_topic(settings.prefix, shadow.app)].partitions
    try:
        check_stopped(shadow.app, topics)
        if shadow.known.ending is None:
            with closing(ControlTopic(settings.cluster(), control_topic(settings.prefix, shadow.app))) as log:
                announce(log, "delete")
        shut_out(shadow.app, [shadow.app], partitions, settings, topics)
    except ConfigError as error:
        raise ConfigError(
            "operators are still being rebuilt beside the app, which is where this run would begin",
            where=error.where,
            hint="let falkirk rebuild come to its end, or stop it: what it has read by then is taken over. A worker that was "
            "killed counts until its session has ended",
        ) from None


def _record(shadow: Shadow, stage: StageRecord, settings: Settings, topics: Topics) -> ShadowRecord:
    topic = changelog_topic(settings.prefix, shadow.app, stage.id)
    ends = topics.offsets([TopicPartition(topic, p) for p in range(stage.tasks)], "latest")
    in_order = tuple(int(ends[TopicPartition(topic, p)]) for p in range(stage.tasks))
    return ShadowRecord(topic, shadow.layout.topics[topic].id, in_order)
