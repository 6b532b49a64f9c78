"""The tasks that an app is to have, and whether its state can be divided among them.

a stage that scales           as many as the flow says, or else as the stages before it have
a stage that reads sources    as many as before
another one                   as many as the stage that sends it its rows: it keeps them where they are
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from falkirk.checkpoint.ids import cluster_of
from falkirk.connectors.kafka.admin.topic_settings import any_date
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import StateError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout.compatibility import as_recorded, check_topics, stage_records
from falkirk.runtime.layout.layout import LayoutRecord, Role, StageRecord
from falkirk.runtime.layout.preflight import growing_of, resolved, roles_of
from falkirk.runtime.layout.wanted_topics import room_for, topics_to_make
from falkirk.stream.definition.names import backfill_topic
from falkirk.stream.stages.plan import Plan
from falkirk.stream.stages.stage import PhysicalStage
from falkirk.wording import counted

MADE_AGAIN: frozenset[Role] = frozenset({"steps", "edge", "changelog"})
"""Topics whose partitions belong to tasks."""


class Change(NamedTuple):
    """The tasks of a stage."""

    stage: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Target:
    """The app as it is to be."""

    plan: Plan
    """With its stages as recorded."""
    tasks: Mapping[str, int]
    """Of each stage."""
    topics: Mapping[str, tuple[int, Mapping[str, str]]]
    """Those that are made again: partitions and settings."""
    roles: Mapping[str, Role]
    """Of all topics."""

    @property
    def stages(self) -> dict[str, PhysicalStage]:
        """The stages by their names."""
        return {stage.id: stage for stage in self.plan.planned}

    def changes(self, known: LayoutRecord) -> list[Change]:
        """The stages that get another number of tasks."""
        pairs = [Change(was.id, was.tasks, self.tasks[was.id]) for was in known.stages]
        return [change for change in pairs if change.before != change.after]

    def records(self, known: LayoutRecord, number: int) -> tuple[StageRecord, ...]:
        """The stages, to be recorded in layout `number`."""
        made = stage_records(self.plan.stages, self.tasks, known, number)
        return tuple(msgspec.structs.replace(stage, moving=0, shadow=None, rescaled=number) for stage in made)


def target_of(plan: Plan, known: LayoutRecord, settings: Settings, topics: Topics) -> Target:
    """What the flow asks for. Raises StateError if it is another flow than the app's, or if its state cannot be divided."""
    plan = resolved(plan, settings, topics, known)
    plan = replace(plan, stages=tuple(as_recorded(known, plan.stages)))
    _check_same(plan, known)
    kept = {name: t for name, t in known.topics.items() if t.role not in MADE_AGAIN}
    backfill = backfill_topic(settings.prefix, plan.app)
    roles = roles_of(plan, settings) | ({backfill: kept[backfill].role} if backfill in kept else {})
    configs = topics.configs(name for name, t in kept.items() if t.role == "source")
    ours = next((config for name, config in configs.items() if not cluster_of(name)), {})
    were = {stage.id: stage.tasks for stage in known.stages}
    counts = {name: topic.partitions for name, topic in kept.items()}
    tasks, missing = topics_to_make(plan, settings, counts, room_for(configs), were, any_date(ours))
    target = Target(plan, tasks, missing, roles)
    _check_divided(target, known)
    return target


def check_cluster(plan: Plan, known: LayoutRecord, topics: Topics) -> None:
    """The app's topics are those that it had. Raises SourceError and StateError."""
    found = topics.describe(known.topics)
    found |= topics.sought(known.topics.keys() - found.keys(), patience=5.0)
    check_topics(known, found, growing_of(plan))


def _check_same(plan: Plan, known: LayoutRecord) -> None:
    """The flow is the one that the app ran last."""
    tasks = {stage.id: stage.tasks for stage in known.stages}
    stages = plan.stages if {s.id for s in plan.stages} == tasks.keys() else ()
    now = stage_records(stages, tasks, known, known.number)
    others = [was.id for was, is_ in zip(known.stages, now, strict=False) if was != is_]
    if others or len(now) != len(known.stages):
        raise StateError(
            f"the flow is another one than app {known.app!r} has run"
            + (f": stage {others[0]!r} has changed" if others else ""),
            where=f"layout {known.number}",
            hint="run the changed flow first, with the number of tasks that the app has; or rescale with the flow as it was",
        )


def _check_divided(target: Target, known: LayoutRecord) -> None:
    changes = {change.stage: change for change in target.changes(known)}
    writers = {o.topic: s.id for s in target.plan.stages for o in s.outputs if o.kind == "edge"}
    for stage in target.plan.planned:
        if stage.id not in changes:
            continue
        change = changes[stage.id]
        if stage.sources:
            raise StateError(
                f"stage {stage.id!r} has {counted(change.before, 'task')} and would have {change.after}: its sources have "
                "got more partitions, and their keys count",
                where=f"stage {stage.id}",
                hint="give the source repartition=True in another flow; this one can only be scaled behind its exchanges",
            )
        if not stage.scales and any(e.key is None and writers[e.topic] not in changes for e in stage.edges_in):
            raise StateError(
                f"stage {stage.id!r} keeps its rows in the task that they come from, and the tasks before it stay",
                where=f"stage {stage.id}",
                hint="place its rows by key first, with repartition(…)",
            )
        if undivided := next((o for o in stage.keeping if not o.divides), None):
            raise StateError(
                f"{undivided.where} keeps values for each task, which cannot be divided among other tasks",
                where=f"stage {stage.id}",
                hint="it is the min, max, first, last or n_unique of a whole stream that can change: group by a constant "
                "column instead",
            )
