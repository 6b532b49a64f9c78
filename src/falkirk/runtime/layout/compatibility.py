"""How an app continues from the recorded layout to that of the flow that is to run, and when it cannot.

task i = partition i of the steps topic: a stage keeps its place, its name and the numbers of its tables;
         what is new comes last
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

from msgspec.structs import replace

from falkirk.checkpoint.ids import cluster_of
from falkirk.connectors.kafka.admin.described import TopicInfo
from falkirk.connectors.kafka.app_topics.control import ControlTopic
from falkirk.errors import FalkirkError, OutgrownError, SourceError, StateError
from falkirk.runtime.layout.layout import AppRecord, LayoutRecord, ShadowRecord, StageRecord, TopicRecord, write_layout
from falkirk.state import schema
from falkirk.state.shards import SHARDS
from falkirk.wording import counted, listed

if TYPE_CHECKING:  # `falkirk status` needs no Polars
    from falkirk.stream.stages.plan import Plan, Stage

FROM_SCRATCH = (
    "give the flow another name: it then starts from scratch, beside this one; or let this one start from scratch, with "
    "falkirk reset"
)
TIMES = ".watermarks"
"""What a stage keeps of its inputs' times. If it ends or begins again, nothing is lost: an operator whose state depends on
times keeps something else without them."""
ANOTHER_NAME = f"undo the change, or {FROM_SCRATCH}"


def stage_records(
    stages: Sequence[Stage], sizes: Mapping[str, int], known: LayoutRecord | None = None, number: int = 1
) -> tuple[StageRecord, ...]:
    """The stages of a flow on a cluster, as they are recorded after `known`, in layout `number`."""
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
            stage.regime.recovery.name,
            stage.stateful,
            stage.fingerprint,
            stage.state_schema,
            inputs_of(stage),
            tuple(sorted(o.topic for o in stage.outputs)),
            tuple(sorted(i.topic for i in stage.inputs if i.among is not None)),
            *moving(stage),
            before[stage.id].rescaled if stage.id in before else 0,
        )
        for stage in stages
    )


def keep(
    control: ControlTopic,
    known: AppRecord,
    app: str,
    stages: tuple[StageRecord, ...],
    topics: Mapping[str, TopicRecord],
    beside: str = "",
) -> LayoutRecord:
    """Record what is new, and return the layout that counts. It may be another run's, if that was first: nothing has compared
    this flow with it."""
    if known.layout is not None and is_recorded(known.layout, stages, topics):
        return known.layout
    record = LayoutRecord(known.next, app, stages, dict(topics), falkirk=version("falkirk"), beside=beside)
    return write_layout(control, record)


def is_recorded(known: LayoutRecord | None, stages: tuple[StageRecord, ...], topics: Mapping[str, TopicRecord]) -> bool:
    """Whether the layout says exactly this."""
    return known is not None and (known.stages, known.topics) == (stages, topics)


def differ_in_topics(one: Sequence[StageRecord], other: Sequence[StageRecord]) -> bool:
    """Whether it is the same flow, and only topics have joined its sources."""

    def fixed(stages: Sequence[StageRecord]) -> list[StageRecord]:
        return [replace(s, inputs=tuple(i for i in s.inputs if i not in s.several), several=()) for s in stages]

    return list(one) != list(other) and fixed(one) == fixed(other)


def check_same_flow(was: LayoutRecord, now: LayoutRecord | None) -> None:
    """The app still has the flow of a worker that ran it as `was`: at most, topics have joined. Raises OutgrownError."""
    if now is None:
        raise OutgrownError(f"app {was.app!r} was reset while this worker ran", hint="start it again")
    if now.stages != was.stages and not differ_in_topics(now.stages, was.stages):
        raise OutgrownError(
            f"the flow has been changed: the app has layout {now.number}, and this worker runs layout {was.number}",
            where=f"app {was.app}",
            hint="start it again, with the new flow",
        )


def as_recorded(known: LayoutRecord | None, stages: Sequence[Stage], rebuilt: Collection[str] = ()) -> list[Stage]:
    """The stages in the order in which their tasks are numbered, with their names and tables as in the layout. New ones come
    last. A stage with another name, because it begins to keep state, is found by what it reads. Operators `rebuilt` begin
    from scratch if they keep something else than before."""
    if known is None:
        return list(stages)
    by_id = {stage.id: stage for stage in stages}
    strangers = [stage for stage in stages if stage.id not in {was.id for was in known.stages}]
    found = []
    for was in known.stages:
        same = by_id.get(was.id) or next((s for s in strangers if _continues(was, s)), None)
        if same is not None:
            found.append(same.with_recorded_schema(was.id, was.state, rebuilt))
            strangers = [s for s in strangers if s is not same]
    return [*found, *strangers]


def _continues(was: StageRecord, stage: Stage) -> bool:
    """Whether it reads exactly what that stage read, and continues some of its state, if that had any."""
    change = schema.change(was.state, stage.with_recorded_schema(was.id, was.state).state_schema)
    return inputs_of(stage) == was.inputs and bool(not was.stateful or change.kept or change.moved)


def inputs_of(stage: Stage) -> tuple[str, ...]:
    """The topics that it reads."""
    return tuple(sorted(i.topic for i in stage.inputs))


def check_topics(known: LayoutRecord, found: Mapping[str, TopicInfo], growing: Collection[str] = ()) -> None:
    """Every topic that progress or state refers to is the same, with as many partitions:

        found.id = known.id,  found.partitions = known.partitions        for what is read
        found.partitions ≥ known.partitions                              for what is only written, for sources `growing`,
                                                                         and for steps: the tasks of a new stage are about
                                                                         to be recorded

    Raises SourceError for an input, StateError for one of the app's own topics.
    """
    for name, was in known.topics.items():
        now = found.get(name)
        if was.role in ("sink", "dead_letters"):
            if now is not None and now.partitions < was.partitions:
                raise SourceError(
                    f"topic {name!r} has {counted(now.partitions, 'partition')}, but the app writes {was.partitions}",
                    where=_where(known, name),
                    hint=f"add partitions to it: at least {was.partitions}",
                )
            continue
        error: type[FalkirkError] = SourceError if was.role == "source" else StateError
        if now is None:
            raise error(
                f"topic {name!r} is gone: app {known.app!r} had been using it",
                where=_where(known, name),
                hint=f"a topic that is created again is another topic: {FROM_SCRATCH}",
            )
        if now.id != was.id:
            raise error(
                f"topic {name!r} was deleted and recreated: its offsets now mean other records",
                where=f"{_where(known, name)}; its id was {was.id} and is {now.id}",
                hint=FROM_SCRATCH
                + (f"; or has cluster {other} other brokers now than it had?" if (other := cluster_of(name)) else ""),
            )
        grows = was.role == "steps" or name in growing
        if now.partitions != was.partitions and not (grows and now.partitions > was.partitions):
            raise error(
                f"partitions were added to topic {name!r}: it had {was.partitions} and has {now.partitions}, "
                "so its keys are in other places now",
                where=_where(known, name),
                hint=f"partitions cannot be taken away again; {FROM_SCRATCH}. With repartition=True, the source may have "
                "keyed records from before, and takes up new partitions by itself from then on",
            )


def check_alone(known: LayoutRecord, found: Mapping[str, TopicInfo]) -> None:
    """No other run is adding stages to the app while this run has those of `known`. Raises StateError."""
    for name, was in known.topics.items():
        if was.role == "steps" and name in found and found[name].partitions > was.partitions:
            raise StateError(
                f"the flow has been changed by another run: it had {counted(was.partitions, 'task')}, and has "
                f"{found[name].partitions} now",
                where=f"app {known.app}",
                hint="start this one again, with the new flow",
            )


def check_stages(known: LayoutRecord, now: Sequence[StageRecord], losing: Collection[str] = ()) -> None:
    """Every task keeps its inputs and its state, except that of the operators `losing`. Otherwise raises StateError and
    SourceError."""
    if known.shards != SHARDS:
        raise StateError(f"app {known.app!r} has {known.shards} shards, and this Falkirk makes {SHARDS}")
    before = {stage.id: stage for stage in known.stages}
    after = {stage.id: stage for stage in now}
    if before.keys() | after.keys() and not before.keys() & after.keys():
        raise StateError(
            f"a different flow has already used the name {known.app!r}: it has no stage in common with this one",
            where=f"its stages: {', '.join(before)}; this flow's: {', '.join(after)}",
            hint="give this flow a different name; if it is the same flow, with another id or key of its first operator with "
            "state, undo that; or let it start from scratch, with falkirk reset",
        )
    if removed := [id_ for id_ in before if id_ not in after]:
        raise StateError(
            f"the stages of app {known.app!r} have changed: {', '.join(removed)} was removed",
            where="the flow",
            hint=ANOTHER_NAME,
        )
    both = [(before[stage.id], stage) for stage in now if stage.id in before]
    differences = (error for was, stage in both for error in _differences(was, stage))
    if errors := [*_lost(both, losing), *differences, *_written_again(known, now)]:
        raise _together(errors)


def check_tasks(plan: Plan, sizes: Mapping[str, int], *, has_run: bool) -> None:
    """The stages that scale have as many tasks as the flow says. `sizes`: how many they have, by the topics that exist.
    Raises StateError."""
    others = [s.id for s in plan.stages if s.scales and plan.tasks is not None and sizes[s.id] != plan.tasks]
    if others:
        steps = (
            f"end it with falkirk drain {plan.app}, and divide its state among the new tasks with falkirk rescale APP:FLOW"
            if has_run
            else f"delete its topics, which were made for other numbers of tasks: falkirk delete {plan.app}"
        )
        raise StateError(
            f"the flow has tasks={plan.tasks}, and app {plan.app!r} has "
            f"{listed([f'{sizes[id_]} in stage {id_}' for id_ in others])}",
            where=f"app {plan.app}",
            hint=f"{steps}; or leave out tasks=, and it keeps what it has",
        )


def check_moved_sinks(known: LayoutRecord, plan: Plan) -> None:
    """A sink stays streaming, or stays in its batch part: another would write again what that has written, and replaces none
    of it. Raises StateError."""
    streamed = {topic: f"stage {stage.id!r}" for stage in known.stages for topic in stage.outputs}
    sinks = {topic for topic, was in known.topics.items() if was.role == "sink"}
    moved = [(o.topic, streamed[o.topic], f"batch part {b.id!r}") for b in plan.batches for o in b.outputs
             if o.topic in sinks & streamed.keys()]  # fmt: skip
    moved += [(o.topic, "a batch part", f"stage {s.id!r}") for s in plan.stages for o in s.outputs
              if o.topic in sinks - streamed.keys()]  # fmt: skip
    kept = {o.topic for b in plan.batches if b.id in known.batches for o in b.outputs}
    if gone := ", ".join(repr(id_) for id_ in known.batches if id_ not in {b.id for b in plan.batches}):
        moved += [(o.topic, f"batch part {gone}", f"the new batch part {b.id!r}") for b in plan.batches
                  if b.id not in known.batches for o in b.outputs if o.topic in sinks - streamed.keys() - kept]  # fmt: skip
    for topic, was, now in moved:
        raise StateError(
            f"{topic!r} was written by {was}, and would be written by {now}: its records would be there twice",
            where=f"app {known.app!r}",
            hint=f"leave that part as it was; or write to another topic; or {FROM_SCRATCH}",
        )


def _written_again(known: LayoutRecord, now: Sequence[StageRecord]) -> Iterator[StateError]:
    """A new stage reads its sources from where `start=` says, and not from where the stage is that has written its outputs
    until now: these would get records twice, or miss some. A new stage behind an edge begins where its sender is."""
    before = {stage.id for stage in known.stages}
    writes = {topic: stage for stage in now for topic in stage.outputs}

    def source_of(stage: StageRecord) -> str | None:
        """A topic that it reads from there."""
        if stage.id in before:
            return None
        own = [t for t in stage.inputs if t in writes and not ((was := known.topics.get(t)) and was.role == "source")]
        return next((t for t in stage.inputs if t not in own), None) or next(
            (found for t in own if (found := source_of(writes[t])) is not None), None
        )

    still = {topic for stage in now if stage.id in before for topic in stage.outputs}
    moved = {t: stage.id for stage in known.stages for t in stage.outputs if t not in still and t in writes}
    for topic, was in moved.items():
        role, stage = known.topics[topic].role if topic in known.topics else "dead_letters", writes[topic]
        if role != "dead_letters" and (source := source_of(stage)) is not None:
            yield StateError(
                f"{topic!r} was written by stage {was!r}, and would be written by the new stage {stage.id!r}. It reads "
                f"{source!r} from where start= says, and not from where stage {was!r} is: records would be there twice, or "
                "be missing",
                where=f"stage {stage.id}",
                hint=f"leave that part in stage {was!r}; or write to another topic; or {FROM_SCRATCH}",
            )


def _differences(was: StageRecord, now: StageRecord) -> Iterator[FalkirkError]:
    """What prevents a stage from continuing, apart from its state's schema."""
    where = f"stage {now.id}"
    if was.tasks != now.tasks:
        yield StateError(
            f"stage {now.id!r} has {counted(was.tasks, 'task')} and would have {now.tasks}: its sources have got more "
            "partitions, and their keys count now",
            where=where,
            hint="leave the sources without a key, or with repartition=True, as they were; or give the flow another name",
        )
    if set(was.inputs) != set(now.inputs):
        gone, new = set(was.inputs) - set(now.inputs), set(now.inputs) - set(was.inputs) - set(now.several)
        words = [f"it read {t}, and does not now" for t in sorted(gone)]
        words += [f"it reads {t}, and did not" for t in sorted(new)]
        if words:
            behind = (
                "if only repartition=True is new: end the app with falkirk drain, and let falkirk rescale APP:FLOW take its "
                "state along; or "
                if new and all(".edge." in topic for topic in new)
                else ""
            )
            yield SourceError(
                f"the inputs of stage {now.id!r} have changed: {'; '.join(words)}",
                where=where,
                hint=behind + ANOTHER_NAME,
            )
    if not (was.stateful and now.stateful):
        return
    if was.regime != now.regime:
        # A lazy store does not follow the changelog, and a changelog lacks lazy changes: rolled forward along the other log,
        # a store would be wrong without notice.
        yield StateError(
            f"the regime of stage {now.id!r} has changed from {was.regime} to {now.regime}, and its state cannot follow",
            where=where,
            hint="undo the change; or end the app with falkirk drain, and let falkirk rescale APP:FLOW take its state "
            f"along; or {FROM_SCRATCH}",
        )
    elif now.recovery.requires.same_outputs and was.outputs != now.outputs:
        yield StateError(
            f"the outputs of stage {now.id!r} have changed from {', '.join(was.outputs)} to {', '.join(now.outputs)}: "
            "steps run again would not give what they published",
            where=f"{where}, in the lazy regime",
            hint=ANOTHER_NAME,
        )


def _lost(both: Sequence[tuple[StageRecord, StageRecord]], losing: Collection[str]) -> Iterator[StateError]:
    """The errors for lost state: one for all eager stages, and one for all lazy ones."""
    eager, lazy = dict[str, set[str]](), dict[str, set[str]]()
    differences: list[str] = []
    rebuilt = {id_ for _, now in both for id_ in schema.numbers(now.state)} - {TIMES}
    for was, now in both:
        if was.state == now.state:
            continue
        change = schema.change(was.state, now.state)
        if now.recovery.requires.same_outputs:
            # Its steps are run again after a crash, including those before the change, and new state would include them.
            # Rebuilt state includes no such step: it begins where all of them have ended (`rebuild.checks`).
            if change.lost | change.moved | (schema.numbers(now.state).keys() - change.kept - change.rebuilt):
                lazy[now.id] = set(change.lost)
        elif lost := change.lost - set(losing) - {TIMES}:
            eager[now.id] = set(lost)
        if now.id in eager or now.id in lazy:
            differences.append(schema.difference(was.state, now.state))
    words = "the state's schema has changed:\n" + "\n".join(differences)
    if eager:
        gone = set().union(*eager.values())
        rebuilds = _options("--rebuild", gone & rebuilt)
        again = (
            "or convert the state with migrate=; or rebuild it from what its inputs still have, if falkirk plan APP:FLOW "
            f"{rebuilds} says that it can be; "
            if rebuilds
            else ""
        )
        drops = _options("--drop", gone)
        yield StateError(
            words,
            where=", ".join(f"stage {id_}" for id_ in eager),
            hint=f"undo the change; {again}or, to continue without it: falkirk plan APP:FLOW --apply {drops}",
        )
    if lazy:
        rebuilds = _options("--rebuild", rebuilt & set().union(*lazy.values()))
        again = (
            f"rebuild it from the records that its inputs still have: falkirk run APP:FLOW {rebuilds}; or "
            if rebuilds
            else ""
        )
        yield StateError(
            words, where=", ".join(f"stage {id_}, in the lazy regime" for id_ in lazy), hint=again + ANOTHER_NAME
        )


def _options(option: str, ids: Collection[str]) -> str:
    return " ".join(f"{option} {id_}" for id_ in sorted(ids))


def _together(errors: Sequence[FalkirkError]) -> FalkirkError:
    """All of them as one, with the type of the first."""
    if len(errors) == 1:
        return errors[0]
    what, where, hint = (
        "\n".join(dict.fromkeys(f"{part}" for part in parts if part))
        for parts in zip(*((e.what, e.where, e.hint) for e in errors), strict=True)
    )
    return type(errors[0])(what, where=where, hint=hint)


def _where(known: LayoutRecord, topic: str) -> str:
    readers = [s.id for s in known.stages if topic in s.inputs]
    writers = [s.id for s in known.stages if topic in s.outputs]
    parts = [f"read by stage {', '.join(readers)}"] if readers else []
    parts += [f"written by stage {', '.join(writers)}"] if writers else []
    return " and ".join(parts) or f"{known.topics[topic].role} of app {known.app}"
