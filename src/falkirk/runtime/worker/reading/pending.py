"""What a task has read but not yet stepped.

A step's bound is in rows: time and memory depend on them, not on records. In a source, a record is a row. On an edge, a
record holds up to some ten thousand rows. They are counted when it arrives, which takes a tenth of the time to read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from falkirk.checkpoint.ids import TopicPartition
from falkirk.runtime.app.app import BoundInput
from falkirk.runtime.worker.pacing import each_of
from falkirk.stream.circuit.edges import rows_in
from falkirk.stream.dataflow.records import Message, Records


class Pending:
    """What one task has read but not yet stepped."""

    def __init__(self, inputs: Sequence[BoundInput]) -> None:
        self._headers = {i.place: i.input.headers for i in inputs}
        self._edges = {i.place for i in inputs if i.input.kind == "edge"}
        self.clear()

    def clear(self) -> None:
        """Forget all of it."""
        self.records = {place: Records.of([], headers=headers) for place, headers in self._headers.items()}
        self._heights: dict[TopicPartition, list[int]] = {place: [] for place in self._edges}
        """The rows of each record."""
        self.rows = self.bytes = 0

    def add(self, place: TopicPartition, run: Sequence[Message]) -> None:
        """Messages that follow those already pending of the place."""
        self.records[place].extend(run)
        self.bytes += sum(map(len, run))
        if place in self._edges:
            heights = [rows_in(m.value()) for m in run]
            self._heights[place] += heights
            self.rows += sum(heights)
        else:
            self.rows += len(run)

    def take(self, most: int) -> tuple[dict[TopicPartition, Records], int]:
        """The first `most` rows, in whole records, and their number; the rest stays pending. Each place that has something
        gives at least one record, and at most its share of the rows."""
        records, heights, rows, size = self.records, self._heights, self.rows, self.bytes
        self.clear()
        if rows <= most:
            return records, rows
        each = each_of(most, sum(1 for some in records.values() if len(some)))
        for place, some in records.items():
            counts = heights.get(place)
            cut = each if counts is None else max(1, int(np.searchsorted([*accumulate(counts)], each, side="right")))
            if cut < len(some):
                records[place], self.records[place] = some.between(0, cut), some.between(cut, len(some))
                left = len(some) - cut
                if counts is not None:
                    self._heights[place] = counts[cut:]
                    left = sum(counts[cut:])
                self.rows += left
        self.bytes = size * self.rows // max(1, rows)
        return records, rows - self.rows
