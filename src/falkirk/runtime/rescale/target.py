"""The tasks that an app is to have, and whether its state can be divided among them.

    a stage that scales           as many as the flow says, or else as the stages before it have
    a stage that reads sources    as many as before
    another one                   as many as the stage that sends it its rows: it keeps them where they are

The flow is the one that the app ran last. Only these may be others:

    regimes               of stages with state
    repartition=True      of a source with a key: what was done where it is read is done behind an exchange now, by the same
                          key, and a new stage without state reads the source
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
from falkirk.runtime.layout.compatibility import TIMES, as_recorded, check_topics, stage_records
from falkirk.runtime.layout.layout import LayoutRecord, Role, StageRecord
from falkirk.runtime.layout.preflight import check_sources, growing_of, resolved, roles_of
from falkirk.runtime.layout.wanted_topics import room_for, topics_to_make
from falkirk.runtime.rescale.ends import reads_sources
from falkirk.state import schema
from falkirk.stream.definition.names import backfill_topic
from falkirk.stream.stages.plan import Plan
from falkirk.stream.stages.stage import PhysicalStage
from falkirk.wording import counted

MADE_AGAIN: frozenset[Role] = frozenset({"steps", "edge", "changelog"})
"""Topics whose partitions belong to tasks."""


class Change(NamedTuple):
    """What changes in a stage, before and after.

    >>> str(Change("stats", (2, 3), ("eager", "lazy"))), str(Change("bids", (0, 3), ("eager", "eager")))
    ('stats: 2 tasks → 3, eager → lazy', 'bids: new, 3 tasks')
    """

    stage: str
    tasks: tuple[int, int]
    """None before: a new stage, which reads a source that another one has read."""
    regime: tuple[str, str]
    again: bool = False
    """Whether its state is divided by shards now, and was by partitions of a topic."""

    @property
    def moves(self) -> bool:
        """Whether state goes to other tasks."""
        return self.tasks[0] != self.tasks[1] or self.again

    def __str__(self) -> str:
        (before, after), (was, now) = self.tasks, self.regime
        words = [f"new, {counted(after, 'task')}"] if not before else []
        words += [f"{counted(before, 'task')} → {after}"] if before and self.moves else []
        words += [f"{was} → {now}"] if was != now else []
        return f"{self.stage}: {', '.join(words)}"


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

    @property
    def regimes(self) -> dict[str, str]:
        """Of each stage."""
        return {stage.id: stage.regime.recovery.name for stage in self.plan.planned}

    def changes(self, known: LayoutRecord) -> list[Change]:
        """What changes, stage by stage."""
        before = {stage.id: stage for stage in known.stages}
        found = [_change(before.get(stage.id), stage, self.tasks[stage.id], known) for stage in self.plan.planned]
        return [change for change in found if change.moves or change.regime[0] != change.regime[1]]

    def moved(self, known: LayoutRecord) -> dict[str, Change]:
        """The stages whose state goes to other tasks."""
        return {change.stage: change for change in self.changes(known) if change.moves}

    def records(self, known: LayoutRecord, number: int) -> tuple[StageRecord, ...]:
        """The stages, to be recorded in layout `number`."""
        made = stage_records(self.plan.stages, self.tasks, known, number)
        return tuple(msgspec.structs.replace(stage, moving=0, shadow=None, rescaled=number) for stage in made)


def _change(was: StageRecord | None, stage: PhysicalStage, tasks: int, known: LayoutRecord) -> Change:
    regime = stage.regime.recovery.name
    if was is None:
        return Change(stage.id, (0, tasks), (regime, regime))
    again = reads_sources(was, known) and not stage.sources
    return Change(stage.id, (was.tasks, tasks), (was.regime, regime if stage.stateful else was.regime), again)


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
    """The app's topics are those that it had, and its sources suit its regimes. Raises SourceError and StateError."""
    found = topics.describe(known.topics)
    found |= topics.sought(known.topics.keys() - found.keys(), patience=5.0)
    check_topics(known, found, growing_of(plan))
    check_sources(plan, found, topics)


def _check_same(plan: Plan, known: LayoutRecord) -> None:
    """The flow is the one that the app ran last, but for what may be another."""
    tasks = {stage.id: 0 for stage in plan.stages} | {stage.id: stage.tasks for stage in known.stages}
    now = {stage.id: stage for stage in stage_records(plan.stages, tasks, known)}
    before = {stage.id for stage in known.stages}
    new = [stage for stage in plan.planned if stage.id not in before]
    others = [was.id for was in known.stages if was.id not in now or not _continues(was, now[was.id], known, new)]
    others += [stage.id for stage in new if not _only_reads(stage, known)]
    if others:
        raise StateError(
            f"the flow is another one than app {known.app!r} has run: stage {others[0]!r} has changed",
            where=f"layout {known.number}",
            hint="run the changed flow first, with the number of tasks that the app has; or rescale with the flow as it was",
        )


def _continues(was: StageRecord, now: StageRecord, known: LayoutRecord, new: list[PhysicalStage]) -> bool:
    """Whether a stage does what it did, for the same keys; perhaps behind an exchange now."""
    if now.inputs == was.inputs:
        return was == msgspec.structs.replace(now, regime=was.regime)
    sent = {o.topic for stage in new for o in stage.outputs if o.kind == "edge"}
    read = {i.topic for stage in new for i in stage.inputs}
    behind = set(now.inputs) <= sent and all(known.topics[t].role == "source" and t in read for t in was.inputs)
    change = schema.change(was.state, now.state)
    others = change.lost | change.moved | change.rebuilt | (schema.numbers(now.state).keys() - change.kept)
    return behind and others <= {TIMES}


def _only_reads(stage: PhysicalStage, known: LayoutRecord) -> bool:
    """Whether a new stage keeps no state of operators, and what it reads was read by one stage."""
    readers = {was.id for was in known.stages for i in stage.inputs if i.topic in was.inputs}
    return not stage.keeping and not stage.edges_in and len(readers) == 1


def _check_divided(target: Target, known: LayoutRecord) -> None:
    moved = target.moved(known)
    writers = {o.topic: s.id for s in target.plan.stages for o in s.outputs if o.kind == "edge"}
    for stage in target.plan.planned:
        if stage.id not in moved or not moved[stage.id].tasks[0]:
            continue
        before, after = moved[stage.id].tasks
        if stage.sources:
            raise StateError(
                f"stage {stage.id!r} has {counted(before, 'task')} and would have {after}: its sources have "
                "got more partitions, and their keys count",
                where=f"stage {stage.id}",
                hint="give the source repartition=True: its state then goes behind an exchange",
            )
        stays = any(e.key is None and (moved[stage.id].again or writers[e.topic] not in moved) for e in stage.edges_in)
        if stays and (stage.keeping or stage.watermarked):
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
