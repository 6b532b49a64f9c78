"""What is recorded of a rescaling, before anything is deleted: all that whoever finishes it needs to know."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from falkirk.checkpoint.ids import InputPartition, Millis, Offset, Step
from falkirk.checkpoint.records import Division
from falkirk.connectors.kafka.app_topics.control import LAYOUT, ControlTopic
from falkirk.errors import StateError
from falkirk.runtime.layout.layout import RESCALE, LayoutRecord, StageRecord
from falkirk.stream.stages.plan import Stage


class StageEnd(msgspec.Struct, frozen=True):
    """Where the tasks of a stage have ended. It is small, as all of it is one record of the control topic: each partition is
    in it once, however many tasks read it, and no edge, as these begin again."""

    steps: tuple[Step, ...]
    """The last of each task; −1: it has made none."""
    clock: Millis
    """The latest of theirs."""
    read: Division
    """Up to where they have read, as empty ranges. Of a table that all of them read: where the farthest is."""


class Rescaling(msgspec.Struct, frozen=True):
    """A rescaling that was begun."""

    before: LayoutRecord
    """The app as it was."""
    ends: dict[str, StageEnd]
    """Of each stage."""
    tasks: dict[str, int]
    """How many each stage is to have."""
    regimes: dict[str, str]
    """What each stage is to be run by."""

    def ended(self, stage: str) -> dict[InputPartition, Offset]:
        """Up to where the tasks of a stage have read; of a new stage: those of all stages."""
        return {r.partition: r.end for end in self._ends(stage) for r in end.read}

    def _ends(self, stage: str) -> Sequence[StageEnd]:
        return [self.ends[stage]] if stage in self.ends else [*self.ends.values()]

    def first(self, stage: str) -> tuple[Step, Millis]:
        """The number and the clock of the first step of its new tasks: no step of a task has a lower one before it."""
        ends = self._ends(stage)
        return Step(1 + max(step for end in ends for step in end.steps)), max(end.clock for end in ends)

    def was(self, stage: Stage) -> StageRecord:
        """A stage as it was; for a new one: the one that has read its sources."""
        by_id = {was.id: was for was in self.before.stages}
        topics = {i.topic for i in stage.inputs}
        return by_id.get(stage.id) or next(was for was in by_id.values() if topics & set(was.inputs))


def read_rescaling(control: ControlTopic) -> Rescaling | None:
    """The one that was begun last. Raises StateError if it cannot be understood."""
    value = None
    for record in control.read(LAYOUT):
        if record.key == RESCALE:
            value = record.value
    try:
        return None if value is None else _decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StateError(
            f"what is recorded of the rescaling cannot be read: {error}",
            hint="finish it with the version of Falkirk that began it",
        ) from error


def write_rescaling(control: ControlTopic, rescaling: Rescaling | None) -> None:
    """Record it; None: it is finished."""
    control.append(LAYOUT, RESCALE, None if rescaling is None else msgspec.json.encode(rescaling))


# Made at import: the first decoding of a type builds its type information, and two threads that do so at once can crash.
_decode = msgspec.json.Decoder(Rescaling).decode
