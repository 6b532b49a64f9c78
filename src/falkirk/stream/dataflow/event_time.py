"""Event time in one step of one task: which times are complete in its inputs, and which rows come too late.

watermark w of an input        no row with a time before w comes from it any more
source, one partition          its greatest time so far − late
source, one task               min over its partitions, without idle ones
edge, one task                 min over the tasks that send, without idle ones; none before each has sent one
operator                       min over its inputs

    a watermark never goes back
    a row is late  ⇔  its time is before the greatest time before it in its partition − late,
                      or before the task's watermark at the start of the step (after its partition was idle)

Late rows leave the stream where the source is read. All of this is a function of records and clocks, so that steps that run
again give the same. The times are state of the task: one row of the stage's own table for each input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from falkirk.stream.dataflow.circuit import State
from falkirk.stream.definition.event_time import Lateness

WATERMARKS = ".watermarks v1: input → watermark, greatest times"
"""The stage's own table, in the words of a state schema. No operator can have this id."""
BEGINNING = -(1 << 62)
"""The watermark when no time is complete."""


class Watermark(NamedTuple):
    """The watermark of an input or an operator, in milliseconds, at the start of a step and at its end.

    >>> lowest([Watermark(5, 9, idle=False), Watermark(6, 7, idle=True)])
    Watermark(before=5, after=7, idle=False)
    """

    before: int
    after: int
    idle: bool
    """Whether it moves only when rows come again."""


def lowest(several: Sequence[Watermark]) -> Watermark:
    """The watermark behind several inputs."""
    return Watermark(min(w.before for w in several), min(w.after for w in several), all(w.idle for w in several))


class Part(msgspec.Struct, array_like=True):
    """A partition of a source, or a task that sends over an edge."""

    topic: str
    """"" for a task."""
    number: int
    at: int
    """The partition's greatest time, or the task's watermark."""
    clock: int
    """Of the last step with its records."""
    idle: bool = False
    """Whether it holds back no watermark."""

    def reached(self, late: int) -> int:
        """The watermark that it allows."""
        return self.at if self.at == BEGINNING else self.at - late


class Times(msgspec.Struct, array_like=True):
    """The row of one input in state."""

    watermark: int = BEGINNING
    parts: list[Part] = []  # msgspec copies it
    senders: int = 0
    """How many tasks send over the edge; 0 until one has said so."""


_decode = msgspec.msgpack.Decoder(Times).decode
_encode = msgspec.msgpack.Encoder().encode


class SourceTimes:
    """The partitions of one source in one task."""

    def __init__(self, key: bytes, lateness: Lateness, places: Iterable[tuple[str, int]]) -> None:
        """`key`: in state. `places`: the partitions that the task is known to read; topics that join later are added by
        their records."""
        self.key, self.lateness, self.places = key, lateness, list(places)

    def begun(self, found: Times | None, clock: int) -> Times:
        """The times at the start of a step."""
        times = Times() if found is None else found
        known = {(part.topic, part.number) for part in times.parts}
        times.parts += [Part(topic, n, BEGINNING, clock) for topic, n in self.places if (topic, n) not in known]
        return times

    def ended(self, times: Times, clock: int) -> tuple[int, bool]:
        """The watermark at the end of a step, and whether all partitions are idle: then it stays."""
        for part in times.parts:
            part.idle = self.lateness.idle is not None and clock - part.clock >= self.lateness.idle
        live = [part for part in times.parts if not part.idle]
        reached = min((part.reached(self.lateness.late) for part in live), default=BEGINNING)
        return max(times.watermark, reached), not live

    def wake_at(self, times: Times | None) -> int | None:
        """When the next partition becomes idle. At once, if no step has begun to wait for it."""
        if self.lateness.idle is None:
            return None
        if times is None:
            return 0
        waiting = [part.clock for part in times.parts if not part.idle]
        return min(waiting) + self.lateness.idle if waiting else None


class EventTime:
    """The times of a task's inputs during one step."""

    def __init__(self, sources: Mapping[str, SourceTimes], state: State, clock: int) -> None:
        self.sources, self.clock, self.late_rows = sources, clock, 0
        self._read = dict(zip(sources, state.get([source.key for source in sources.values()]), strict=True))
        found = {name: None if value is None else _decode(value) for name, value in self._read.items()}
        self.times = {name: sources[name].begun(times, clock) for name, times in found.items()}
        self.watermarks: dict[str, Watermark] = {}

    def on_time(self, source: str, topic: str, partition: int, dates: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which records of a partition are not late. Records that do not decode have no date, but end its idleness."""
        times, late = self.times[source], self.sources[source].lateness.late
        part = next((p for p in times.parts if (p.topic, p.number) == (topic, partition)), None)
        if part is None:
            part = Part(topic, partition, BEGINNING, self.clock)
            times.parts.append(part)
        part.clock = self.clock
        if not len(dates):
            return np.zeros(0, np.bool_)
        greatest = np.maximum.accumulate(np.concatenate([[part.at], dates]))
        part.at = int(greatest[-1])
        on_time = dates >= np.maximum(greatest[:-1] - late, times.watermark)
        self.late_rows += len(dates) - int(on_time.sum())
        return on_time  # type: ignore[no-any-return]

    def read(self) -> None:
        """All inputs are read: their watermarks are known."""
        for name, times in self.times.items():
            after, idle = self.sources[name].ended(times, self.clock)
            self.watermarks[name] = Watermark(times.watermark, after, idle)

    def write(self, state: State) -> None:
        """Stage what has changed."""
        for name, times in self.times.items():
            times.watermark = self.watermarks[name].after
        values = {name: _encode(times) for name, times in self.times.items()}
        changed = [name for name, value in values.items() if value != self._read[name]]
        if changed:
            state.put([self.sources[name].key for name in changed], [values[name] for name in changed])


def times_in(state: State, keys: Sequence[bytes]) -> list[Times | None]:
    """The stored times under these keys."""
    return [None if value is None else _decode(value) for value in state.get(keys)]
