"""How an app goes on from the layout that is recorded to that of the flow which is to run, and where it cannot.

task i = partition i of the steps topic: a stage keeps its place, its name and the numbers of its tables;
         what is new comes last
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import version

from msgspec.structs import replace

from falkirk.checkpoint.ids import cluster_of
from falkirk.connectors.kafka.control import ControlTopic
from falkirk.connectors.kafka.topics import TopicInfo
from falkirk.errors import FalkirkError, SourceError, StateError
from falkirk.runtime.layout import Known, LayoutRecord, ShadowRecord, StageRecord, TopicRecord, write_layout
from falkirk.state import schema
from falkirk.state.shards import SHARDS
from falkirk.stream.plan import Stage

ANOTHER_NAME = (
    "undo the change, or give the flow another name: it then begins anew, beside this one; or let this one begin anew, with "
    "falkirk reset"
)


def stage_records(
    stages: Sequence[Stage], sizes: Mapping[str, int], known: LayoutRecord | None = None, number: int = 1
) -> tuple[StageRecord, ...]:
    """The stages of a flow on a cluster, as they are to be recorded behind `known`, in layout `number`."""
    before = {} if known is None else {stage.id: stage for stage in known.stages}

    def moving(stage: Stage) -> tuple[int, ShadowRecord | None]:
        if (was := before.get(stage.id)) is None:
            return 0, None
        change = schema.change(was.state, stage.state_schema)
        return (number, None) if change.moved or change.rebuilt else (was.moving, was.shadow)

    return tuple(
        StageRecord(
            stage.id,
            sizes[stage.id],
            stage.regime.kind,
            stage.stateful,
            stage.fingerprint,
            stage.state_schema,
            inputs_of(stage),
            tuple(sorted(o.topic for o in stage.outputs)),
            tuple(sorted(i.topic for i in stage.inputs if i.among is not None)),
            *moving(stage),
        )
        for stage in stages
    )


def keep(
    control: ControlTopic,
    known: Known,
    app: str,
    stages: tuple[StageRecord, ...],
    topics: Mapping[str, TopicRecord],
    beside: str = "",
) -> LayoutRecord:
    """Record what is new, and return the layout that counts. It may be another's, if that was first: it is checked again,
    unless it is this one but for topics that have joined."""
    if known.layout is not None and (known.layout.stages, known.layout.topics) == (stages, topics):
        return known.layout
    record = LayoutRecord(known.next, app, stages, dict(topics), falkirk=version("falkirk"), beside=beside)
    wins = write_layout(control, record)
    if differ_in_topics(wins.stages, stages):
        return wins
    check_stages(wins, stages)
    if [s.state for s in wins.stages] != [s.state for s in stages]:
        raise StateError(f"another run has just changed app {app!r}", hint="start again, of one flow")
    return wins


def differ_in_topics(one: Sequence[StageRecord], other: Sequence[StageRecord]) -> bool:
    """Whether it is the same flow, and other topics have joined its sources."""

    def fixed(stages: Sequence[StageRecord]) -> list[StageRecord]:
        return [replace(s, inputs=tuple(i for i in s.inputs if i not in s.several), several=()) for s in stages]

    return list(one) != list(other) and fixed(one) == fixed(other)


def as_recorded(known: LayoutRecord | None, stages: Sequence[Stage], rebuilt: Collection[str] = ()) -> list[Stage]:
    """The stages in the order in which their tasks are numbered, called and keeping their tables as the layout says. What is
    new comes last. A stage that has come by another name, for it begins to keep state, is known by what it reads. Operators
    `rebuilt` begin anew where they keep something else than they did."""
    if known is None:
        return list(stages)
    by_id = {stage.id: stage for stage in stages}
    strangers = [stage for stage in stages if stage.id not in {was.id for was in known.stages}]
    found = []
    for was in known.stages:
        same = by_id.get(was.id) or next((s for s in strangers if _continues(was, s)), None)
        if same is not None:
            found.append(same.known_as(was.id, was.state, rebuilt))
            strangers = [s for s in strangers if s is not same]
    return [*found, *strangers]


def _continues(was: StageRecord, stage: Stage) -> bool:
    """It reads what that stage read, and nothing else, and goes on with some of its state, if that had any."""
    change = schema.change(was.state, stage.known_as(was.id, was.state).state_schema)
    return inputs_of(stage) == was.inputs and bool(not was.stateful or change.kept or change.moved)


def inputs_of(stage: Stage) -> tuple[str, ...]:
    """The topics that it reads."""
    return tuple(sorted(i.topic for i in stage.inputs))


def check_topics(known: LayoutRecord, found: Mapping[str, TopicInfo]) -> None:
    """Every topic that progress or state refers to is the one it was, with as many partitions:

        found.id = known.id,  found.partitions = known.partitions        for what is read
        found.partitions ≥ known.partitions                              for what is only written, and for steps: the
                                                                         tasks of a new stage are about to be recorded

    Raises SourceError for an input, StateError for a topic of the app's own.
    """
    for name, was in known.topics.items():
        now = found.get(name)
        if was.role in ("sink", "dead_letters"):
            if now is not None and now.partitions < was.partitions:
                raise SourceError(
                    f"topic {name!r} has {now.partitions} partitions, but the app writes {was.partitions}",
                    where=_where(known, name),
                    hint=f"add partitions to it: at least {was.partitions}",
                )
            continue
        error: type[FalkirkError] = SourceError if was.role == "source" else StateError
        if now is None:
            raise error(
                f"topic {name!r} is gone: app {known.app!r} had been using it",
                where=_where(known, name),
                hint="restore it, or give the flow another name: it then begins anew, beside this one",
            )
        if now.id != was.id:
            raise error(
                f"topic {name!r} was deleted and made anew: its offsets mean other records now",
                where=f"{_where(known, name)}; its id was {was.id} and is {now.id}",
                hint="give the flow another name to begin again on the new topic"
                + (f"; or has cluster {other} other brokers now than it had?" if (other := cluster_of(name)) else ""),
            )
        if now.partitions != was.partitions and not (was.role == "steps" and now.partitions > was.partitions):
            raise error(
                f"partitions were added to topic {name!r}: it had {was.partitions} and has {now.partitions}, "
                "so its keys are in other places now",
                where=_where(known, name),
                hint="partitions cannot be taken away again; give the flow another name to begin again on all of them",
            )


def check_alone(known: LayoutRecord, found: Mapping[str, TopicInfo]) -> None:
    """No other run is adding stages to the app, while this one has those of `known`. Raises StateError."""
    for name, was in known.topics.items():
        if was.role == "steps" and name in found and found[name].partitions > was.partitions:
            raise StateError(
                f"the flow has been changed by another run: it had {was.partitions} tasks, and has "
                f"{found[name].partitions} now",
                where=f"app {known.app}",
                hint="start this one again, with the new flow",
            )


def check_stages(known: LayoutRecord, now: Sequence[StageRecord], losing: Collection[str] = ()) -> None:
    """Every task goes on with the inputs it had, and with its state but for that of the operators `losing`. Raises StateError
    and SourceError otherwise."""
    if known.shards != SHARDS:
        raise StateError(f"app {known.app!r} has {known.shards} shards, and this Falkirk makes {SHARDS}")
    before = {stage.id: stage for stage in known.stages}
    after = {stage.id: stage for stage in now}
    if before.keys() | after.keys() and not before.keys() & after.keys():
        raise StateError(
            f"another flow ran under the name {known.app!r}: it has no stage in common with this one",
            where=f"its stages: {', '.join(before)}; this flow's: {', '.join(after)}",
            hint="give this flow a name of its own",
        )
    if removed := [id_ for id_ in before if id_ not in after]:
        raise StateError(
            f"the stages of app {known.app!r} have changed: {', '.join(removed)} was removed",
            where="the flow",
            hint=ANOTHER_NAME,
        )
    for stage in now:
        if stage.id in before:
            _check_stage(before[stage.id], stage, losing)


def _check_stage(was: StageRecord, now: StageRecord, losing: Collection[str]) -> None:
    where = f"stage {now.id}"
    if was.state != now.state:
        _check_state(was, now, losing)
    if set(was.inputs) != set(now.inputs):
        gone, new = set(was.inputs) - set(now.inputs), set(now.inputs) - set(was.inputs) - set(now.several)
        words = [f"it read {t}, and does not now" for t in sorted(gone)]
        words += [f"it reads {t}, and did not" for t in sorted(new)]
        if words:
            raise SourceError(
                f"the inputs of stage {now.id!r} have changed: {'; '.join(words)}", where=where, hint=ANOTHER_NAME
            )
    if not (was.stateful and now.stateful):
        return
    if was.regime != now.regime:
        # A lazy store does not follow the changelog, and a changelog lacks what was done lazily: rolled along the other
        # log, a store would be wrong and not know it.
        raise StateError(
            f"the regime of stage {now.id!r} has changed from {was.regime} to {now.regime}, and its state cannot follow",
            where=where,
            hint=ANOTHER_NAME,
        )
    if now.regime == "lazy" and was.outputs != now.outputs:
        raise StateError(
            f"the outputs of stage {now.id!r} have changed from {', '.join(was.outputs)} to {', '.join(now.outputs)}: "
            "steps run again would not give what they published",
            where=f"{where}, in the lazy regime",
            hint=ANOTHER_NAME,
        )


def _check_state(was: StageRecord, now: StageRecord, losing: Collection[str]) -> None:
    words = f"the state's schema has changed:\n{schema.difference(was.state, now.state)}"
    if now.regime == "lazy":
        # Its steps are run again after a crash, those of before the change too, and what is new would take them in. What is
        # rebuilt takes no such step in: it begins where all of them have ended (`rebuild.checks`).
        change = schema.change(was.state, now.state)
        if not change.lost | change.moved | (schema.numbers(now.state).keys() - change.kept - change.rebuilt):
            return
        rebuilds = " ".join(f"--rebuild {id_}" for id_ in sorted(change.lost))
        again = f"rebuild it from what its inputs still have: falkirk run APP:FLOW {rebuilds}; or " if rebuilds else ""
        raise StateError(words, where=f"stage {now.id}, in the lazy regime", hint=again + ANOTHER_NAME)
    if lost := schema.change(was.state, now.state).lost - set(losing):
        drops = " ".join(f"--drop {id_}" for id_ in sorted(lost))
        raise StateError(
            words,
            where=f"stage {now.id}",
            hint="undo the change; or say with migrate= how the state goes on; or rebuild it from what its inputs "
            f"still have: falkirk run APP:FLOW {drops.replace('--drop', '--rebuild')}; or, to go on without it: "
            f"falkirk plan APP:FLOW --apply {drops}",
        )


def _where(known: LayoutRecord, topic: str) -> str:
    readers = [s.id for s in known.stages if topic in s.inputs]
    writers = [s.id for s in known.stages if topic in s.outputs]
    parts = [f"read by stage {', '.join(readers)}"] if readers else []
    parts += [f"written by stage {', '.join(writers)}"] if writers else []
    return " and ".join(parts) or f"{known.topics[topic].role} of app {known.app}"
