"""The layout of an app, recorded: what its tasks are, so that no later run takes them for others.

    layout n    stages in order, each with its tasks, state and inputs; topics with id and partitions
    task i      = partition i of the steps topic = the i-th task in the order of the layout, not of the flow's text

Layouts are numbered 1, 2, 3… in the control topic. Of several with one number the first in log order counts, whoever
wrote it; each has a key of its own, for compaction would keep the last of equal keys. A run reads them back:

    same layout                              go on
    a change that loses no task's state      go on, recorded as layout n+1: code, sinks, new state, new stages
    one that does                            refused, unless `falkirk plan --apply --drop` has said that it may
    any other                                refused, with what changed and what to do

A step record names the layout it ran under, so that no step of an older flow follows one of a newer.

An app that is deleted or reset says so first, and whoever would run it is refused until that is finished:

    ending               a deletion or a reset is under way; null: it is finished
    begins               where a reset lets the inputs begin; the layouts up to a number were those of before
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.metadata import version
from secrets import token_hex
from typing import Literal, TypeVar

import msgspec

from falkirk.connectors.kafka.control import LAYOUT, ControlTopic
from falkirk.connectors.kafka.topics import TopicInfo
from falkirk.errors import FalkirkError, SourceError, StateError
from falkirk.state import schema
from falkirk.state.shards import SHARDS
from falkirk.stream.plan import Stage

FORMAT = 1

ENDING, BEGINS = b"ending", b"begins"
"""Keys on the control topic, beside those of layouts."""

T = TypeVar("T")

Role = Literal["source", "edge", "sink", "dead_letters", "changelog", "steps", "epochs"]

ANOTHER_NAME = (
    "undo the change, or give the flow another name: it then begins anew, beside this one; or let this one begin anew, with "
    "falkirk reset"
)


class TopicRecord(msgspec.Struct, frozen=True):
    """A topic, as it was."""

    id: str
    partitions: int
    role: Role


def incarnation_of(steps: str) -> str:
    """An app's, by the id of its steps topic: a word for folders, where Kafka's client gives plain base64.

    >>> incarnation_of("app//0HjpQchSYm+QO2oJG"), incarnation_of("a/b")
    ('app__0HjpQchSYm-QO2oJG', 'a_b')
    """
    return steps.replace("/", "_").replace("+", "-")


class StageRecord(msgspec.Struct, frozen=True):
    """A stage, as it was."""

    id: str
    tasks: int
    regime: str
    stateful: bool
    fingerprint: str
    state: str
    """The fingerprint in words (`falkirk.state.schema`)."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    """Topics."""


class LayoutRecord(msgspec.Struct, frozen=True):
    """A layout, as it was."""

    number: int
    app: str
    stages: tuple[StageRecord, ...]
    topics: dict[str, TopicRecord]
    shards: int = SHARDS
    falkirk: str = ""
    format: int = FORMAT

    @property
    def incarnation(self) -> str:
        """What tells the app from an earlier one of its name; "" where it has no streams."""
        return next((incarnation_of(topic.id) for topic in self.topics.values() if topic.role == "steps"), "")


class Ending(msgspec.Struct, frozen=True):
    """A deletion or a reset is under way."""

    what: Literal["delete", "reset"]
    by: str
    at: int
    """Milliseconds since 1970, UTC."""


class Start(msgspec.Struct, frozen=True):
    """Where a reset lets a source begin."""

    id: str
    """Of the topic."""
    offsets: tuple[int, ...]
    """By partition."""


class Begins(msgspec.Struct, frozen=True):
    """An app was reset."""

    above: int
    """Layouts up to this number are those of before."""
    starts: dict[str, Start]
    """By topic."""
    by: str
    at: int
    """Milliseconds since 1970, UTC."""


class Known(msgspec.Struct, frozen=True):
    """What the control topic has recorded of an app."""

    layout: LayoutRecord | None = None
    """The one that counts; None if there is none yet, or none since a reset."""
    begins: Begins | None = None
    ending: Ending | None = None
    last: LayoutRecord | None = None
    """The newest, whether it counts or not."""

    @property
    def next(self) -> int:
        """The number of the next layout."""
        before = 0 if self.begins is None else self.begins.above
        return 1 + (before if self.layout is None else self.layout.number)


def read_known(control: ControlTopic) -> Known:
    """All that is recorded. Raises StateError where it cannot be understood."""
    layouts: list[LayoutRecord] = []
    begins: Begins | None = None
    ending: Ending | None = None
    for record in control.read(LAYOUT):
        key, value = record.key or b"", record.value
        if key.startswith(b"layout/") and value is not None:
            layouts.append(decode_layout(value))
        elif key == ENDING:
            ending = None if value is None else _understood(_decode_ending, value)
        elif key == BEGINS and value is not None:
            begins = _understood(_decode_begins, value)
    # Of several with the highest number, the first.
    last = max(layouts, key=lambda layout: layout.number, default=None)
    counts = last is not None and (begins is None or last.number > begins.above)
    return Known(last if counts else None, begins, ending, last)


def read_layout(control: ControlTopic) -> LayoutRecord | None:
    """The layout that counts; None if there is none yet. Raises StateError where it cannot be understood."""
    return read_known(control).layout


def write_layout(control: ControlTopic, layout: LayoutRecord) -> LayoutRecord:
    """Record a layout and read back the one that counts: another's, if it was first."""
    control.append(LAYOUT, f"layout/{layout.number}/{token_hex(4)}".encode(), msgspec.json.encode(layout))
    found = read_layout(control)
    assert found is not None
    return found


def check_not_ending(app: str, known: Known) -> None:
    """Raises StateError while a deletion or a reset is under way: half of what the app had may be gone."""
    if (ending := known.ending) is not None:
        raise StateError(
            f"a {ending.what} of app {app!r} was begun, and is not finished",
            where=f"by {ending.by}",
            hint=f"run falkirk {ending.what} {app} again: it finishes what it began",
        )


class _Format(msgspec.Struct):
    format: int


def _understood(decode: Callable[[bytes], T], data: bytes) -> T:
    try:
        return decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StateError(
            f"the app's layout cannot be read: {error}", hint="was the control topic written by hand?"
        ) from error


def decode_layout(data: bytes) -> LayoutRecord:
    """A layout from its JSON. Raises StateError."""
    format_ = _understood(_decode_format, data).format
    if format_ == FORMAT:
        return _understood(_decode_layoutrecord, data)
    raise StateError(
        f"the app's layout has format {format_}, and this Falkirk reads format {FORMAT}",
        hint="run the app with the version of Falkirk that it last ran with, or a later one",
    )


def stage_records(stages: Sequence[Stage], sizes: Mapping[str, int]) -> tuple[StageRecord, ...]:
    """The stages of a flow on a cluster."""
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
        )
        for stage in stages
    )


def keep(
    control: ControlTopic,
    known: Known,
    app: str,
    stages: tuple[StageRecord, ...],
    topics: Mapping[str, TopicRecord],
) -> LayoutRecord:
    """Record what is new, and return the layout that counts. It may be another's, if that was first: it is checked again."""
    if known.layout is not None and (known.layout.stages, known.layout.topics) == (stages, topics):
        return known.layout
    wins = write_layout(control, LayoutRecord(known.next, app, stages, dict(topics), falkirk=version("falkirk")))
    check_stages(wins, stages)
    if [s.state for s in wins.stages] != [s.state for s in stages]:
        raise StateError(f"another run has just changed app {app!r}", hint="start again, of one flow")
    return wins


def as_recorded(known: LayoutRecord | None, stages: Sequence[Stage]) -> list[Stage]:
    """The stages in the order in which their tasks are numbered, called and keeping their tables as the layout says. What is
    new comes last. A stage that has come by another name, for it begins to keep state, is known by what it reads."""
    if known is None:
        return list(stages)
    by_id = {stage.id: stage for stage in stages}
    strangers = [stage for stage in stages if stage.id not in {was.id for was in known.stages}]
    found = []
    for was in known.stages:
        same = by_id.get(was.id) or next((s for s in strangers if _continues(was, s)), None)
        if same is not None:
            found.append(same.known_as(was.id, was.state))
            strangers = [s for s in strangers if s is not same]
    return [*found, *strangers]


def _continues(was: StageRecord, stage: Stage) -> bool:
    """It reads what that stage read, and nothing else, and keeps some of its state, if that had any."""
    now = {line.words for line in schema.lines(stage.state_schema)}
    return inputs_of(stage) == was.inputs and (
        not was.stateful or any(line.words in now for line in schema.lines(was.state) if line.kept)
    )


def inputs_of(stage: Stage) -> tuple[str, ...]:
    """The topics that it reads."""
    return tuple(sorted(i.topic for i in stage.inputs))


# -- what is refused ---------------------------------------------------------------------------------------------------


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
                hint="give the flow another name to begin again on the new topic",
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
    if was.inputs != now.inputs:
        gone, new = set(was.inputs) - set(now.inputs), set(now.inputs) - set(was.inputs)
        words = [f"it read {t}, and does not now" for t in sorted(gone)]
        words += [f"it reads {t}, and did not" for t in sorted(new)]
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
        # Its steps are run again after a crash, those of before the change too, and what is new would take them in.
        raise StateError(words, where=f"stage {now.id}, in the lazy regime", hint=ANOTHER_NAME)
    if lost := schema.change(was.state, now.state).lost - set(losing):
        drops = " ".join(f"--drop {id_}" for id_ in sorted(lost))
        raise StateError(
            words,
            where=f"stage {now.id}",
            hint=f"undo the change; or, to go on without that state: falkirk plan APP:FLOW --apply {drops}",
        )


def _where(known: LayoutRecord, topic: str) -> str:
    readers = [s.id for s in known.stages if topic in s.inputs]
    writers = [s.id for s in known.stages if topic in s.outputs]
    parts = [f"read by stage {', '.join(readers)}"] if readers else []
    parts += [f"written by stage {', '.join(writers)}"] if writers else []
    return " and ".join(parts) or f"{known.topics[topic].role} of app {known.app}"


# Made at import: a type's first decoding builds what is known of it, and two threads that do so at once can crash.
_decode_format = msgspec.json.Decoder(_Format).decode
_decode_layoutrecord = msgspec.json.Decoder(LayoutRecord).decode
_decode_ending = msgspec.json.Decoder(Ending).decode
_decode_begins = msgspec.json.Decoder(Begins).decode
