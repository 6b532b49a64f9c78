"""A task's second reading of its inputs, for operators that are rebuilt: in portions, one for each moving step.

portion    a range of each partition, tables before streams; or a chunk of what a shadow has made
size       FIRST records, then about a step's size by the size of the portion before
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from falkirk.checkpoint.ids import InputPartition, Offset
from falkirk.checkpoint.records import Division, Range
from falkirk.runtime.app.app import BoundTask
from falkirk.runtime.worker.task_ports import Rereader
from falkirk.stream.dataflow.circuit import RereadInput, ShadowChunk, Slice

FIRST, MOST_RECORDS, MOST_BYTES = 5_000, 50_000, 16 << 20
"""Of a portion: records, in the first and at most, and about how many bytes."""


class Portion(NamedTuple):
    """What one moving step reads. Nothing, where it only moves state."""

    division: Division = ()
    slices: Sequence[Slice] = ()
    taken: ShadowChunk | None = None


class SecondReading:
    """What one task reads again. Lost with the task: the next owner finds in the state how far it is (`RereadInput`)."""

    def __init__(self, bound: BoundTask) -> None:
        self._bound = bound
        self._begins: dict[InputPartition, Offset] = {}
        self._budget = FIRST
        self.progress = (0, 0)
        """How far it is, and its end: offsets."""

    def next(
        self, wanted: RereadInput | None, ends: Mapping[InputPartition, Offset], rereader: Rereader, most: int
    ) -> Portion:
        """The next portion of what is `wanted`, about `most` records at most, for a task that has read up to `ends`."""
        if wanted is None:
            return Portion()
        if self._bound.shadow is not None and wanted.taken is not None:
            taken, end = rereader.take(self._bound, Offset(wanted.taken)), self._bound.shadow[1]
            self.progress = (end if taken.next is None else taken.next, end)
            return Portion(taken=taken)
        division = self._division(wanted, ends, rereader, most)
        slices = rereader.read(self._bound, division) if division else []
        self._measure(slices)
        return Portion(division, slices)

    def _division(
        self, wanted: RereadInput, ends: Mapping[InputPartition, Offset], rereader: Rereader, most: int
    ) -> Division:
        """A range for each partition, empty ones included; tables first."""
        inputs = [i for i in self._bound.inputs if i.input.id in wanted.inputs and i.partition in ends]
        reached = {i.partition: Offset(wanted.reached[i.place]) for i in inputs if i.place in wanted.reached}
        # What has been read again may be trimmed now: it is not requested from its first offset.
        if unknown := [i for i in inputs if i.partition not in {**reached, **self._begins}]:
            self._begins |= rereader.begins(unknown)
        begins = {p: min(at, ends[p]) for p, at in self._begins.items() if p in ends}
        starts = {i.partition: reached.get(i.partition, begins.get(i.partition, Offset(0))) for i in inputs}
        todo = [i for i in inputs if starts[i.partition] < ends[i.partition]]
        todo = [i for i in todo if i.input.table] or todo
        share = max(1, min(self._budget, most) // max(1, len(todo)))
        stops = {i.partition: Offset(min(starts[i.partition] + share, ends[i.partition])) for i in todo}
        division = tuple(Range(p, start, stops.get(p, start)) for p, start in sorted(starts.items()))
        first = {p: begins.get(p, Offset(0)) for p in starts}
        self.progress = sum(r.end - first[r.partition] for r in division), sum(ends[p] - first[p] for p in starts)
        return division

    def _measure(self, slices: Sequence[Slice]) -> None:
        """Sets the next portion's number of records to about a step's size, by the size of these."""
        count, size = sum(len(s.records) for s in slices), sum(len(v or b"") for s in slices for v in s.records.values)
        if count:
            self._budget = max(1, min(MOST_RECORDS, 2 * self._budget, MOST_BYTES * count // max(1, size)))
