"""The offsets below which a task's topics may be trimmed, if records that nobody needs stay for some time."""

from __future__ import annotations

from dataclasses import dataclass, field

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.state.store import Progress

Floor = dict[TopicPartition, Offset]
"""Offsets below which a task never reads again."""


def kept_from(low: Progress) -> Offset:
    """Where the step records begin that a task with this low-watermark keeps: at the record of that very step, so whoever
    reads the topic finds the low-watermark there. −1: all are kept."""
    return Offset(low.step_offset - 1)


@dataclass(slots=True)
class Floors:
    """The floors noted so far; the newest one that is old enough counts.

    >>> floors, later, place = Floors(keep=60.0), Floors(keep=60.0, behind=1), TopicPartition("steps", 0)
    >>> for at in (0, 30, 70): floors.note(at, {place: Offset(at)}); later.note(at, {place: Offset(at)})
    >>> floors.passed(59.0), floors.passed(100.0)[place], later.passed(100.0)[place]
    ({}, 30, 0)
    """

    keep: float
    """Seconds for which everything above a floor stays."""
    behind: int = 0
    """A floor counts when so many more have been noted, and is as old as the last of these."""
    _newest: list[Floor] = field(default_factory=list)
    """Those that do not count yet."""
    _noted: list[tuple[float, Floor]] = field(default_factory=list)
    _step: int = -1

    def note(self, now: float, floor: Floor, step: int = -1) -> None:
        """Note the present floor, in seconds of any clock that does not go back. `step`: of the version that it is of. Two
        versions of one step are one copy, which counts once: the copy before it may still be needed."""
        if step < 0 or step != self._step:
            self._newest.append(floor)
            if len(self._newest) > self.behind:
                self._noted.append((now, self._newest.pop(0)))
        self._step = step

    def passed(self, now: float) -> Floor:
        """What may be trimmed; older floors are forgotten."""
        old = [floor for at, floor in self._noted if now - at >= self.keep]
        if not old:
            return {}
        self._noted = self._noted[len(old) - 1 :]
        return old[-1]
