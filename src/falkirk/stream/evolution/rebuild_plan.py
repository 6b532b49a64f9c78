"""What it takes to rebuild operators of a stage: what runs again, what is read again for it, and where it cannot be.

source ─▶ filter ─▶ group ─▶ sink        to rebuild the group, the source is read again, and the filter runs again;
             └────▶ process              nothing else does: the process has seen these rows
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from falkirk.blame import did_you_mean
from falkirk.errors import ConfigError, StateError
from falkirk.state import schema
from falkirk.stream import operators as op
from falkirk.stream.operators.groups.group_versions import was_group
from falkirk.stream.stages.plan import Plan, Stage
from falkirk.stream.stages.stage import Edge, PhysicalStage


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """What runs again."""

    operators: tuple[op.Operator, ...]
    """In the order of definition, those that are rebuilt among them."""
    readers: tuple[op.Source | Edge, ...]
    rebuilt: tuple[op.Operator, ...]
    """Those for whose sake."""

    @property
    def inputs(self) -> frozenset[str]:
        """The ids of what is read again."""
        return frozenset(r.id for r in self.readers)


def plan_rebuild(stage: PhysicalStage, rebuilt: Collection[op.Operator]) -> RebuildPlan:
    """What runs again to rebuild these. A lookup is rebuilt from its table alone; who reads from one that is not rebuilt sees
    its table as it is now."""
    incoming = {(e.before, e.after): e for e in stage.edges_in}
    inside, readers, found = set(stage.operators), dict[op.Source | Edge, None](), set[op.Operator]()
    waiting: list[tuple[op.Operator, op.Operator]] = []

    def need(operator: op.Operator, befores: Collection[op.Operator]) -> None:
        found.add(operator)
        waiting.extend((before, operator) for before in befores)

    for operator in rebuilt:
        need(operator, operator.rebuilt_from())
    while waiting:
        before, operator = waiting.pop()
        if (edge := incoming.get((before, operator))) is not None:
            readers[edge] = None
        elif isinstance(before, op.Source):
            if before in stage.sources:
                readers[before] = None
        elif before in inside and (before not in found or before.reruns):
            need(before, before.rerun_from())
    order = [*stage.sources, *stage.edges_in]
    return RebuildPlan(
        tuple(o for o in stage.operators if o in found),
        tuple(r for r in order if r in readers),
        tuple(rebuilt),
    )


def check_known(plan: Plan, wanted: Collection[str]) -> None:
    """Each of these is an operator with state. Raises ConfigError."""
    stages = plan.planned
    keeping = {o.id for stage in stages for o in stage.keeping}
    for id_ in wanted:
        if id_ in keeping:
            continue
        if id_ in {o.id for stage in stages for o in stage.operators} | {
            o.id for b in plan.batches for o in b.operators
        }:
            raise ConfigError(f"operator {id_!r} keeps no state that could be rebuilt", where="--rebuild")
        raise ConfigError(f"the flow has no operator {id_!r}", where="--rebuild", hint=did_you_mean(id_, keeping))


def check_rebuilt(stage: Stage, ids: Collection[str]) -> RebuildPlan | None:
    """That these operators of the stage can be rebuilt by themselves; what it takes. Raises StateError."""
    if not ids or not isinstance(stage, PhysicalStage):
        return None
    again = [o for o in stage.keeping if o.id in ids]
    found = plan_rebuild(stage, again)
    for o in found.operators:
        if o.stateful and o not in again and not o.reruns:
            raise StateError(
                f"{again[0].id!r} is made of what {o.id!r} gives, whose rows of before are told no more",
                where=f"stage {stage.id}",
                hint=f"rebuild both: raise the version= of {o.id!r}, and say --rebuild {o.id} too",
            )
    check_times(stage, again, found)
    before = {line.id: line for line in schema.rebuilt(stage.state_schema)}
    for o in again:
        if o.changes and not o.compared and (reader := _keeping(stage, o, again)) is not None:
            raise StateError(
                f"{o.id!r} does not know which of its rows a rebuild changes, and {reader} keeps what it was told of them",
                where=f"stage {stage.id}",
                hint="rebuild both, if they are in one stage; or give the flow another name: it then starts from scratch",
            )
        other_keys = o.compared and not was_the_same(before[o.id], o) and not o.keyed_as(before[o.id].words)
        if other_keys or (not o.compared and was_group(before[o.id].words)):
            what = "has its groups under other keys than before" if other_keys else "was a group, and is none now"
            raise StateError(
                f"{o.id!r} {what}, so which of their records go cannot be told:\n"
                f"  − {before[o.id].words}\n  + {o.state_words()}",
                where=f"stage {stage.id}",
                hint="keep the group as it was, and add the new one beside it, with another id=, another sink topic, and "
                "--rebuild; or give the flow another name",
            )
        if o.compared and not was_the_same(before[o.id], o) and (other := _reader(stage, o)) is not None:
            raise StateError(
                f"what {o.id!r} gave before has other columns, and {other} must be told which rows of that are gone",
                where=f"stage {stage.id}",
                hint="give the operator a new id=, beside this one, or the flow another name",
            )
    return found


def cannot_be_sent_again(operators: Collection[op.Operator], error: StateError) -> StateError:
    """The error of rebuilding operators from rows that an earlier version of the flow has sent over an edge."""
    ids = ", ".join(o.id for o in operators)
    return StateError(
        f"{ids} cannot be rebuilt: {error.what}",
        where=error.where,
        hint=f"continue without the state: falkirk plan APP:FLOW --apply {' '.join(f'--drop {o.id}' for o in operators)}; "
        "or give the flow another name: it then starts from scratch",
    )


def check_times(stage: PhysicalStage, rebuilt: Collection[op.Operator], plan: RebuildPlan) -> None:
    """That the same rows are late again, and that nothing is completed twice, or never. Raises StateError."""
    several = {i.id for i in stage.inputs if i.among is not None}
    for reader in plan.readers:
        why = None
        if isinstance(reader, op.Source):
            if reader.lateness is not None and reader.id in several:
                why = f"source {reader.id!r} reads several topics, and when each was read has decided which rows were late"
        elif reader.timed and (idle := _idle(reader.before)) is not None:
            why = (
                f"source {idle!r} has idle=, and which rows were behind the watermark here has come of when it was idle"
            )
        if why is not None:
            raise StateError(
                why,
                where=f"stage {stage.id}",
                hint="give the flow another name: it then starts from scratch; or continue without the state: falkirk plan "
                f"APP:FLOW --apply {' '.join(f'--drop {o.id}' for o in rebuilt)}",
            )
    for o in rebuilt:
        if not o.completes:
            continue
        why = None if o.compared else "which of its sessions were final cannot be told from the new ones"
        if above := [a for a in plan_rebuild(stage, [o]).operators if a.stateful and not a.reruns and a is not o]:
            why = f"its times come from {above[0].id!r}, and how far these were is not kept"
        if why is not None:
            raise StateError(
                f"{o.id!r} cannot be rebuilt: {why}",
                where=f"stage {stage.id}",
                hint="give the operator a new id=, beside this one, or the flow another name",
            )


def _idle(operator: op.Operator) -> str | None:
    """A source of an operator that has `idle=`."""
    if isinstance(operator, op.Source):
        return operator.id if operator.lateness is not None and operator.lateness.idle is not None else None
    return next((found for before in operator.inputs if (found := _idle(before)) is not None), None)


def _keeping(stage: PhysicalStage, operator: op.Operator, rebuilt: Collection[op.Operator]) -> str | None:
    """Who is told of an operator's changes and keeps them: all but sinks that keep the last record of a key, and operators
    that are rebuilt too."""
    for edge in stage.edges_out:
        if edge.before is operator:
            return edge.after.where
    for o in stage.operators:
        if operator not in o.inputs or o in rebuilt:
            continue
        if o.stateful or (isinstance(o, op.Sink) and o.is_log):
            return o.where
        if o.changes and (found := _keeping(stage, o, rebuilt)) is not None:
            return found
    return None


def was_the_same(line: schema.Line, operator: op.Operator) -> bool:
    """Whether an operator that is rebuilt kept rows as it does now, or none at all."""
    words = line.words
    return words == f"{operator.id} {schema.NOTHING}" or schema.same_but_for_version(words, operator.state_words())


def _reader(stage: PhysicalStage, group: op.Operator) -> str | None:
    """Who reads a group's changes and needs the rows of before: all but sinks that are keyed as the group is."""
    for edge in stage.edges_out:
        if edge.before is group:
            return edge.after.where
    for o in stage.operators:
        if group in o.inputs and not (isinstance(o, op.Sink) and o.key and frozenset(o.key.columns) == group.unique):
            return o.where
    return None
