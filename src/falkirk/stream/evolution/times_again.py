"""Event time while inputs are read again for a rebuild.

    late              ⇔  its time is before the greatest time before it in its partition − late, as when it was first read:
                         a task reads one partition of such a source, so nothing else decides (`rebuild_plan`)
    watermark         =  the least of what is read again, and of `bounds`: how far the rebuilt operators were
    when all is read  =  `bounds`

    nothing is completed again that was not complete before; what was complete is complete, though `late=` has changed

The task's own times stay as they are. Those of the rebuild are in its mark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from falkirk.state.store import State
from falkirk.stream import operators as op
from falkirk.stream.circuit.watermarks import TaskTimes
from falkirk.stream.dataflow.event_time import EventTime, Inputs, continued, times_in
from falkirk.stream.stages.stage import Edge

KeptTimes = tuple[tuple[bytes, bytes], ...]
"""The times of inputs as they are stored: key and value."""


class TimesAgain(EventTime):
    """The times of one step that reads again."""

    def __init__(self, inputs: Inputs, kept: KeptTimes, clock: int, bounds: Mapping[str, int] | None) -> None:
        """`bounds`: by input; None: a shadow's, which has none."""
        self.bounds = bounds
        self.whole = False
        """Whether all is read again."""
        self._mark = _Mark(dict(kept))
        super().__init__(inputs, {}, self._mark, clock)

    def read(self) -> None:
        """All inputs are read: their watermarks are known."""
        super().read()
        for name, bound in (self.bounds or {}).items():
            before, after, idle = self.watermarks[name]
            at = bound if self.whole else min(after, bound)
            self.watermarks[name] = self.watermarks[name]._replace(before=min(before, at), after=at, idle=idle)

    def end(self) -> KeptTimes:
        """What is kept of it."""
        self.write(self._mark)
        return tuple(self._mark.data.items())


class _Mark:
    """The times in a mark, as the state that they are read from."""

    def __init__(self, data: dict[bytes, bytes]) -> None:
        self.data = data

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self.data.get, keys))

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return ((key, value) for key, value in sorted(self.data.items()) if start <= key < end)

    def put(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        self.data |= {key: value for key, value in zip(keys, values, strict=True) if value is not None}


def inputs_of(times: TaskTimes, readers: Collection[op.Source | Edge]) -> Inputs:
    """Those that have times."""
    return {reader.id: times.inputs[reader.id] for reader in readers if reader.id in times.inputs}


def watermarks_in(inputs: Inputs, state: State) -> dict[str, int]:
    """How far the task is with each input."""
    stored = times_in(state, [one.key for one in inputs.values()])
    found, _ = continued([*inputs.values()], stored, state)
    return {name: one.begun(times, 0, None).watermark for (name, one), times in zip(inputs.items(), found, strict=True)}
