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

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from falkirk.state.codec import prefix_end
from falkirk.state.store import State
from falkirk.stream.dataflow.packing import Mark
from falkirk.stream.dataflow.task_counts import SourceWatermark
from falkirk.stream.definition.event_time import Lateness

WATERMARKS = ".watermarks v1: input → watermark, greatest times"
"""The stage's own table, in the words of a state schema. No operator can have this id."""
BEGINNING = -(1 << 62)
"""The watermark when no time is complete."""


FEW = 50
"""Tasks to which a watermark is sent as often as it moves."""


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
    greatest: int = BEGINNING
    """The greatest time of a row of the edge, if anyone asks for it."""

    @property
    def latest(self) -> int:
        """The greatest time of a row so far."""
        return max([self.greatest, *(part.at for part in self.parts)])


_decode = msgspec.msgpack.Decoder(Times).decode
_encode = msgspec.msgpack.Encoder().encode


class SourceTimes:
    """The partitions of one source in one task."""

    def __init__(
        self, key: bytes, lateness: Lateness, places: Iterable[tuple[str, int]], sources: bytes | None = None
    ) -> None:
        """`key`: in state. `places`: the partitions that the task is known to read; topics that join later are added by
        their records. `sources`: what the keys of all sources begin with."""
        self.key, self.lateness, self.places, self.sources = key, lateness, list(places), sources

    def begun(self, found: Times | None, clock: int, read: Collection[tuple[str, int]] | None) -> Times:
        """The times at the start of a step that reads these partitions, as far as they are the source's; None: all."""
        times = Times() if found is None else found
        known = {(part.topic, part.number) for part in times.parts}
        new = [place for place in self.places if place not in known and (read is None or place in read)]
        times.parts += [Part(topic, n, BEGINNING, clock) for topic, n in new]
        return times

    def ended(self, times: Times, clock: int) -> tuple[int, bool]:
        """The watermark at the end of a step, and whether all partitions are idle: then it stays."""
        for part in times.parts:
            part.idle = self.lateness.idle is not None and clock - part.clock >= self.lateness.idle
        live = [part for part in times.parts if not part.idle]
        reached = min((part.reached(self.lateness.late) for part in live), default=BEGINNING)
        return max(times.watermark, reached), not live

    def standing(self, times: Times) -> SourceWatermark:
        """The watermark after a step, and which partition holds it back.

        >>> times = Times(900, [Part("bids", 0, 2_500, 7), Part("bids", 1, 1_900, 7), Part("bids", 2, 0, 1, idle=True)])
        >>> SourceTimes(b"", Lateness(late=1_000, idle=60_000), []).standing(times)
        SourceWatermark(at=900, held_by='bids[1]')
        """
        live = [part for part in times.parts if not part.idle]
        last = min(live, key=lambda part: part.at, default=None)
        at = None if times.watermark == BEGINNING else times.watermark
        return SourceWatermark(at, "" if last is None else f"{last.topic}[{last.number}]")

    def wake_at(self, times: Times | None) -> int | None:
        """When the next partition becomes idle. At once, if no step has begun to wait for it."""
        if self.lateness.idle is None:
            return None
        if times is None:
            return 0
        waiting = [part.clock for part in times.parts if not part.idle]
        return min(waiting) + self.lateness.idle if waiting else None


class SenderTimes:
    """The tasks that send over one edge."""

    def __init__(self, key: bytes, *, dates_rows: bool) -> None:
        """`key`: in state. `dates_rows`: whether to keep the greatest time of a row."""
        self.key, self.dates_rows = key, dates_rows

    def begun(self, found: Times | None, clock: int, read: Collection[tuple[str, int]] | None) -> Times:
        """The times at the start of a step."""
        return Times() if found is None else found

    def ended(self, times: Times, clock: int) -> tuple[int, bool]:
        """The watermark at the end of a step, and whether all senders are idle: then it stays."""
        if not times.senders or len(times.parts) < times.senders:
            return times.watermark, False
        live = [part.at for part in times.parts if not part.idle]
        return max(times.watermark, min(live, default=BEGINNING)), not live

    def wake_at(self, times: Times | None) -> int | None:
        """It changes only when a task sends."""
        return None


class SentTimes:
    """What one task says of its watermark over one edge.

    Every receiver gets it, so that what all say together grows with the square of their number. Up to FEW receivers it is
    said in each step that moves the watermark, and else only after a gap.
    """

    def __init__(self, key: bytes, task: int, tasks: int, receivers: int) -> None:
        self.key, self.task, self.tasks = key, task, tasks
        self.gap = 0 if receivers <= FEW else 2 * receivers
        """It is sent again when the watermark has moved by so many milliseconds, or the clock has."""

    def begun(self, found: Times | None, clock: int, read: Collection[tuple[str, int]] | None) -> Times:
        """What was said last, at the start of a step."""
        return Times(parts=[Part("", self.task, BEGINNING, clock)]) if found is None else found

    def said(self, times: Times, now: Watermark, clock: int) -> Mark | None:
        """What to say now."""
        (last,) = times.parts
        times.watermark = now.after
        moved = now.after - last.at
        if now.idle == last.idle and (moved <= 0 or (moved < self.gap and clock - last.clock < self.gap)):
            return None
        times.parts = [Part("", self.task, now.after, clock, now.idle)]
        return Mark(self.task, self.tasks, now.after, now.idle)

    def wake_at(self, times: Times | None) -> int | None:
        """When it says what it has not said yet."""
        if times is None or times.watermark == times.parts[0].at:
            return None
        return times.parts[0].clock + self.gap


Inputs = Mapping[str, SourceTimes | SenderTimes]
Outputs = Mapping[str, SentTimes]


class EventTime:
    """The times of a task's inputs during one step, and what it says of them over its edges."""

    def __init__(
        self,
        inputs: Inputs,
        outputs: Outputs,
        state: State,
        clock: int,
        read: Collection[tuple[str, int]] | None = None,
    ) -> None:
        """`read`: the partitions that the step reads, whether they have records or not; None: all that are known."""
        self.inputs, self.outputs, self.clock, self.late_rows = inputs, outputs, clock, 0
        kept = [*inputs.values(), *outputs.values()]
        self._read = state.get([one.key for one in kept])
        found = [None if value is None else _decode(value) for value in self._read]
        found, self._former = continued(kept, found, state)
        self._kept = [(one.key, one.begun(times, clock, read)) for one, times in zip(kept, found, strict=True)]
        begun = [times for _, times in self._kept]
        self.times = dict(zip(inputs, begun, strict=False))
        self._said = dict(zip(outputs, begun[len(inputs) :], strict=True))
        self.watermarks: dict[str, Watermark] = {}

    def on_time(self, source: str, topic: str, partition: int, dates: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which records of a partition are not late. Records that do not decode have no date, but end its idleness."""
        times, known = self.times[source], self.inputs[source]
        assert isinstance(known, SourceTimes)
        late = known.lateness.late
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

    def hear(self, edge: str, mark: Mark) -> None:
        """A task that sends over an edge has said this."""
        times = self.times[edge]
        times.senders = mark.tasks
        times.parts = [part for part in times.parts if part.number != mark.task]
        times.parts.append(Part("", mark.task, mark.watermark, self.clock, mark.idle))
        times.parts.sort(key=lambda part: part.number)

    def behind(self, edge: str, dates: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which rows of an edge are late: only a task that was idle can send them."""
        times, known = self.times[edge], self.inputs[edge]
        if isinstance(known, SenderTimes) and known.dates_rows and len(dates):
            times.greatest = max(times.greatest, int(dates.max()))
        late = dates < times.watermark
        self.late_rows += int(late.sum())
        return late

    def say(self, edge: str, now: Watermark) -> Mark | None:
        """What to say of this watermark over an edge."""
        return self.outputs[edge].said(self._said[edge], now, self.clock)

    def read(self) -> None:
        """All inputs are read: their watermarks are known."""
        for name, times in self.times.items():
            after, idle = self.inputs[name].ended(times, self.clock)
            self.watermarks[name] = Watermark(times.watermark, after, idle)

    def sources(self) -> dict[str, SourceWatermark]:
        """How far each source is. After `write`."""
        known = {name: one for name, one in self.inputs.items() if isinstance(one, SourceTimes)}
        return {name: one.standing(self.times[name]) for name, one in known.items()}

    def write(self, state: State) -> None:
        """Stage what has changed."""
        for name, times in self.times.items():
            times.watermark = self.watermarks[name].after
        values = [(key, _encode(times)) for key, times in self._kept]
        if changed := [pair for pair, was in zip(values, self._read, strict=True) if pair[1] != was]:
            state.put([key for key, _ in changed], [value for _, value in changed])
        if self._former:
            state.put(self._former, [None] * len(self._former))


def continued(
    kept: Sequence[SourceTimes | SenderTimes | SentTimes], found: Sequence[Times | None], state: State
) -> tuple[list[Times | None], list[bytes]]:
    """The times that were found; of sources that are not known, those under another id. And the keys of these."""
    former = [former_of(one, state) if times is None else None for one, times in zip(kept, found, strict=True)]
    times = [at if was is None else was[1] for at, was in zip(found, former, strict=True)]
    return times, [was[0] for was in former if was is not None]


def former_of(one: SourceTimes | SenderTimes | SentTimes, state: State) -> tuple[bytes, Times] | None:
    """The times of a source that is not known, under another id of it: a source of the same topics."""
    if not isinstance(one, SourceTimes) or one.sources is None:
        return None
    topics = {topic for topic, _ in one.places}
    known = ((key, _decode(value)) for key, value in state.scan(one.sources, prefix_end(one.sources)))
    return next((pair for pair in known if topics & {part.topic for part in pair[1].parts}), None)


def times_in(state: State, keys: Sequence[bytes]) -> list[Times | None]:
    """The stored times under these keys."""
    return [None if value is None else _decode(value) for value in state.get(keys)]
