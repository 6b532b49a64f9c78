"""The recorded layout of an app: what its tasks are, so that no later run mistakes them for others.

    layout n    stages in order, each with its tasks, state and inputs; topics with id and partitions
    task i      = partition i of the steps topic = the i-th task in the order of the layout, not of the flow's text

Layouts are numbered 1, 2, 3… in the control topic. Of several with one number the first in log order counts, no matter who
wrote it; each has its own key, as compaction would keep the last of equal keys. A run reads them back (`continuity`):

    same layout                              continue
    a change that loses no task's state      continue as layout n+1: code, sinks, new state, new stages
    one that does                            refused, unless `falkirk plan --apply --drop` has allowed it, or
                                             --rebuild makes it again
    any other                                refused, with what changed and what to do

A step record names the layout it ran under, so that no step of an older flow follows one of a newer flow.

A deletion, reset or rescaling of an app is recorded first, and nobody can run the app until it is finished:

    ending               it is under way; null: it is finished
    begins               where a reset lets the inputs begin; layouts up to a number are from before
    rescale              what a rescaling needs, if it is finished by another command (`falkirk.runtime.rescale`)
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from itertools import accumulate, pairwise
from secrets import token_hex
from typing import Literal, TypeVar

import msgspec

from falkirk.checkpoint.ids import InputPartition, Offset
from falkirk.checkpoint.regimes import RECORDED, Recovery
from falkirk.connectors.kafka.app_topics.control import LAYOUT, ControlTopic
from falkirk.errors import StateError
from falkirk.state.shards import SHARDS

FORMAT = 1

ENDING, BEGINS, RESCALE = b"ending", b"begins", b"rescale"
"""Keys on the control topic, beside those of layouts."""

T = TypeVar("T")

Role = Literal["source", "edge", "sink", "dead_letters", "changelog", "steps", "epochs"]


class TopicRecord(msgspec.Struct, frozen=True):
    """A topic, as recorded."""

    id: str
    partitions: int
    role: Role
    first: tuple[int, ...] = ()
    """For a source: where each partition began when the app first ran. Empty: it ran before this was recorded."""


def incarnation_of(steps: str) -> str:
    """An app's, by the id of its steps topic: made fit for folder names, as Kafka's client gives plain base64.

    >>> incarnation_of("app//0HjpQchSYm+QO2oJG"), incarnation_of("a/b")
    ('app__0HjpQchSYm-QO2oJG', 'a_b')
    """
    return steps.replace("/", "_").replace("+", "-")


class ShadowRecord(msgspec.Struct, frozen=True):
    """What a shadow made for a stage's rebuilt operators: the changelog that its tasks take it from."""

    topic: str
    id: str
    ends: tuple[int, ...]
    """By task."""


class StageRecord(msgspec.Struct, frozen=True):
    """A stage, as recorded."""

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
    several: tuple[str, ...] = ()
    """The inputs that belong to sources of several topics: others may join them."""
    moving: int = 0
    """The number of the layout that last migrated or rebuilt operators of it; 0: none did."""
    shadow: ShadowRecord | None = None
    """What the operators of the last rebuild begin with, if they were rebuilt beside the previous version."""
    rescaled: int = 0
    """The number of the layout for which its state was last divided among other tasks; 0: it never was. Its edges hold
    nothing from before."""

    @property
    def recovery(self) -> type[Recovery]:
        """What survives a crash in its regime."""
        return RECORDED[self.regime]


class LayoutRecord(msgspec.Struct, frozen=True):
    """A layout, as recorded."""

    number: int
    app: str
    stages: tuple[StageRecord, ...]
    topics: dict[str, TopicRecord]
    shards: int = SHARDS
    falkirk: str = ""
    beside: str = ""
    """For a shadow: the app that it is beside (`falkirk.runtime.rebuild.shadows`)."""
    format: int = FORMAT

    @property
    def numbers(self) -> dict[str, range]:
        """The numbers of each stage's tasks."""
        ends = list(accumulate((stage.tasks for stage in self.stages), initial=0))
        return {stage.id: range(*between) for stage, between in zip(self.stages, pairwise(ends), strict=True)}

    @property
    def batches(self) -> list[str]:
        """The batch parts. Each has a topic of its epochs."""
        begin = f".{self.app}.epochs."
        return sorted(name.partition(begin)[2] for name, topic in self.topics.items() if topic.role == "epochs")

    @property
    def incarnation(self) -> str:
        """Distinguishes the app from an earlier one of its name; "" if it has no streams."""
        return next((incarnation_of(topic.id) for topic in self.topics.values() if topic.role == "steps"), "")


class Ending(msgspec.Struct, frozen=True):
    """A deletion, a reset or a rescaling in progress."""

    what: Literal["delete", "reset", "rescale"]
    by: str
    at: int
    """Milliseconds since 1970, UTC."""


class Start(msgspec.Struct, frozen=True):
    """Where a source begins after a reset."""

    id: str
    """Of the topic."""
    offsets: tuple[int, ...]
    """By partition."""

    def chose(self, partition: InputPartition) -> bool:
        """Whether the reset has said where this one begins: it is of the same topic, and existed by then."""
        return self.id == partition.topic_id and partition.partition < len(self.offsets)


class Begins(msgspec.Struct, frozen=True):
    """An app was reset."""

    above: int
    """Layouts up to this number are from before."""
    starts: dict[str, Start]
    """By topic."""
    by: str
    at: int
    """Milliseconds since 1970, UTC."""


class AppRecord(msgspec.Struct, frozen=True):
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


def read_app_record(control: ControlTopic) -> AppRecord:
    """All that is recorded. Raises StateError if it cannot be understood."""
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
    return AppRecord(last if counts else None, begins, ending, last)


def endings(control: ControlTopic, until: Offset) -> list[Ending | None]:
    """What was announced and withdrawn before an offset, as far as it is there. Raises StateError if it cannot be
    understood."""
    found = [r.value for r in control.read(LAYOUT) if r.key == ENDING and r.offset < until]
    return [None if value is None else _understood(_decode_ending, value) for value in found]


def read_layout(control: ControlTopic) -> LayoutRecord | None:
    """The layout that counts; None if there is none yet. Raises StateError if it cannot be understood."""
    return read_app_record(control).layout


def write_layout(control: ControlTopic, layout: LayoutRecord) -> LayoutRecord:
    """Record a layout and read back the one that counts: another's, if it was first."""
    control.append(LAYOUT, f"layout/{layout.number}/{token_hex(4)}".encode(), msgspec.json.encode(layout))
    found = read_layout(control)
    assert found is not None
    return found


def layout_number(key: bytes | None) -> int | None:
    """The number of the layout that a record of the control topic holds; None if it holds something else.

    >>> layout_number(b"layout/7/ab12"), layout_number(b"asked/pause")
    (7, None)
    """
    kind, _, rest = (key or b"").partition(b"/")
    number = rest.partition(b"/")[0]
    return int(number) if kind == b"layout" and number.isdigit() else None


def check_not_ending(app: str, known: AppRecord) -> None:
    """Raises StateError while a deletion or a reset is in progress: half of what the app had may be gone."""
    if (ending := known.ending) is not None:
        command = f"falkirk {ending.what} {'APP:FLOW' if ending.what == 'rescale' else app}"
        raise StateError(
            f"a {ending.what} of app {app!r} was begun, and is not finished",
            where=f"by {ending.by}",
            hint=f"run {command} again: it finishes what it began",
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
    if format_ != FORMAT:
        raise StateError(
            f"the app's layout has format {format_}, but this Falkirk reads format {FORMAT}",
            hint="run the app with the version of Falkirk that it last ran with, or a later one",
        )
    layout = _understood(_decode_layoutrecord, data)
    for stage in layout.stages:
        if stage.regime not in RECORDED:
            raise StateError(
                f"stage {stage.id!r} has the regime {stage.regime!r}, but Falkirk {version('falkirk')} knows only "
                f"{', '.join(RECORDED)}",
                where=f"layout {layout.number} of app {layout.app!r}, written by Falkirk {layout.falkirk or '(unknown)'}",
                hint="run the app with the version of Falkirk that it last ran with, or a later one",
            )
    return layout


# Made at import: the first decoding of a type builds its type information, and two threads that do so at once can crash.
_decode_format = msgspec.json.Decoder(_Format).decode
_decode_layoutrecord = msgspec.json.Decoder(LayoutRecord).decode
_decode_ending = msgspec.json.Decoder(Ending).decode
_decode_begins = msgspec.json.Decoder(Begins).decode
