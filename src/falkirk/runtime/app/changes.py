"""What a run of a flow would change in the app that is recorded under its name."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.app_topics.control import ControlTopic
from falkirk.errors import FalkirkError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout.compatibility import check_stages, check_tasks
from falkirk.runtime.layout.layout import StageRecord
from falkirk.runtime.layout.preflight import Preflight, preflight
from falkirk.runtime.rebuild.checks import check_rebuilds
from falkirk.runtime.rebuild.shadows import find_shadow, served, taken_from
from falkirk.state import schema
from falkirk.stream.definition.names import control_topic
from falkirk.stream.stages.plan import Plan

Fate = Literal["kept", "new", "migrated", "rebuilt", "dropped"]


@dataclass(frozen=True, slots=True)
class OperatorChange:
    """What becomes of an operator's state."""

    operator: str
    fate: Fate
    state: str
    """In words."""
    before: str | None = None
    """The same for what is migrated or rebuilt."""


@dataclass(frozen=True, slots=True)
class StageChange:
    """What becomes of a stage."""

    stage: str
    fate: Fate
    tasks: int
    regime: str
    operators: tuple[OperatorChange, ...]
    reads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BesideChange:
    """What becomes of the app that rebuilds beside this one."""

    app: str
    takes: tuple[str, ...]
    """Stages that would take over its results."""
    taken: tuple[str, ...]
    """Stages that have taken them over, or are doing so."""


@dataclass(frozen=True, slots=True)
class Changes:
    """From the recorded layout to the one that a run would record."""

    app: str
    layout: int
    """The number of the recorded one; 0: none."""
    stages: tuple[StageChange, ...]
    topics: dict[str, int]
    """Those that would be made, with their partitions."""
    grown: dict[str, int]
    """How many more partitions sources have than when the app last looked."""
    left: tuple[str, ...]
    """Topics that the app has used, and would no longer use. They stay."""
    beside: BesideChange | None
    """None: there is no such app."""
    refused: FalkirkError | None
    """Why it would not run."""

    @property
    def any(self) -> bool:
        """Whether the layout would change."""
        fates = {s.fate for s in self.stages} | {o.fate for s in self.stages for o in s.operators}
        return bool(fates - {"kept"} or self.topics or self.grown or self.left or self.refused)


def changes(plan: Plan, settings: Settings, topics: Topics, losing: Collection[str] = ()) -> Changes:
    """Compare. Makes nothing. Raises ClusterError, SourceError and StateError if the flow cannot be compared with the cluster
    at all."""
    record = ControlTopic(settings.cluster(), control_topic(settings.prefix, plan.app))
    try:
        found = preflight(plan, settings, topics, record)
    finally:
        record.close()
    known, refused = found.past.layout, None
    try:
        check_tasks(found.plan, found.sizes, has_run=known is not None)
        if known is not None:
            check_stages(known, found.stages, losing)
            check_rebuilds(found, settings, topics)
    except FalkirkError as error:
        refused = error
    before = {stage.id: stage for stage in known.stages} if known else {}
    now = {stage.id: stage for stage in found.stages}
    stages = [_stage(before.get(stage.id), stage) for stage in found.stages]
    stages += [
        StageChange(s.id, "dropped", s.tasks, s.regime, _operators(s.state, ""), s.inputs)
        for s in before.values()
        if s.id not in now
    ]
    left = sorted(known.topics.keys() - found.roles.keys()) if known else []
    made = {name: partitions for name, (partitions, _) in sorted(found.missing.items())}
    beside = _beside(found, settings, topics)
    return Changes(
        plan.app, known.number if known else 0, tuple(stages), made, dict(found.grown), tuple(left), beside, refused
    )


def _beside(found: Preflight, settings: Settings, topics: Topics) -> BesideChange | None:
    shadow, known = find_shadow(found.plan.app, settings, topics), found.past.layout
    if shadow is None or known is None:
        return None
    takes, taken = served(found, shadow), taken_from(shadow.app, known, settings)
    return BesideChange(shadow.app, tuple(stage.id for stage in takes), tuple(stage.id for stage in taken))


def _stage(was: StageRecord | None, now: StageRecord) -> StageChange:
    fate: Fate = "new" if was is None else "kept"
    return StageChange(now.id, fate, now.tasks, now.regime, _operators(was.state if was else "", now.state), now.inputs)


def _operators(before: str, after: str) -> tuple[OperatorChange, ...]:
    was = {line.words: line for line in schema.lines(before) if line.kept}
    now = {line.words: line for line in schema.lines(after) if line.kept}
    change = schema.change(before, after)
    old = {line.id: line.words for line in was.values() if line.id in change.moved | change.rebuilt}
    found = [_operator(words, "dropped") for words in was if words not in {*now, *old.values()}]
    for words, line in now.items():
        fate: Fate = (
            "kept"
            if line.id in change.kept
            else "rebuilt"
            if line.id in change.rebuilt
            else "migrated"
            if line.id in change.moved
            else "new"
        )
        found.append(_operator(words, fate, old.get(line.id)))
    return tuple(sorted(found, key=lambda o: (o.operator, o.state, o.fate)))


def _operator(words: str, fate: Fate, before: str | None = None) -> OperatorChange:
    id_, _, state = words.partition(" ")
    return OperatorChange(id_, fate, state, before and before.partition(" ")[2])
