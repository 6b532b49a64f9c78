"""Reads back the records that recorded steps published: from the end of each topic backwards, as topics may be long.

    first ≤ step ≤ last      read; each record's header names its step
    step < first             older: the reading stops there

Compaction may have removed records of a table. The last record of each key still exists, and only that one is needed. For
any other output all records must exist.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from falkirk.checkpoint.bundles import BUNDLE, parts_made
from falkirk.checkpoint.ids import Offset, Step, TaskId, TopicPartition
from falkirk.checkpoint.records import StepRecord
from falkirk.checkpoint.steps import HEADER
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.client.errors import Words
from falkirk.connectors.kafka.reading.division import DivisionReader
from falkirk.connectors.kafka.reading.reader import BoundedReader
from falkirk.errors import DivergenceError
from falkirk.stream.dataflow.circuit import OutputRecord, OutputRecords
from falkirk.stream.dataflow.records import Message

WINDOW, WIDEST = 2_000, 100_000
"""Offsets that one read back spans: the first, and the most."""

GONE = "the output of recorded steps is no longer in its topic, so the difference is unknown"
HINT = (
    "run the previous code, stop it cleanly, and then change it; for the next time: keep records in sinks for "
    "as long as the app may be down (retention), and in edges with --keep-steps"
)


class OutputReader(Protocol):
    """Reads committed records of output topics."""

    def bounds(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, tuple[Offset, Offset]]:
        """The first offset that each still has, and the high watermark."""
        ...

    def read(
        self, ranges: Mapping[TopicPartition, tuple[Offset, Offset]], go_on: Callable[[], None]
    ) -> Mapping[TopicPartition, Sequence[Message]]:
        """All that is committed there, in order; waits for open transactions."""
        ...


class KafkaOutputReader:
    """`OutputReader` of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def bounds(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, tuple[Offset, Offset]]:
        """The first offset that each still has, and the high watermark."""
        reader = BoundedReader(self._cluster, levels=())
        first, end = (reader.watermarks(list(places), end=end) for end in (False, True))
        return {place: (first[place], end[place]) for place in places}

    def read(
        self, ranges: Mapping[TopicPartition, tuple[Offset, Offset]], go_on: Callable[[], None]
    ) -> Mapping[TopicPartition, Sequence[Message]]:
        """All that is committed there. Raises DivergenceError if it is deleted meanwhile."""
        reader = DivisionReader(self._cluster, Words(GONE, HINT, DivergenceError))
        try:
            return reader.read(ranges, go_on)  # type: ignore[return-value]  # of a record, nothing is None but what may be
        finally:
            reader.close()


@dataclass(slots=True)
class _Partition:
    """One partition of a topic, as far as it is read. Several outputs may write to it."""

    at: Offset
    """Read from here on."""
    begins: Offset
    outputs: dict[int, list[str]] = field(default_factory=dict)
    """By step, the output of each record that it has written there, in the order of sequence numbers."""
    due: Counter[str] = field(default_factory=Counter)
    """By output, how many records are missing."""
    newest_first: dict[str, list[OutputRecord]] = field(default_factory=dict)
    others: set[bytes | None] = field(default_factory=set)
    """Keys of records of others than the steps, so far."""
    lowest: tuple[int, int] | None = None
    """Step and sequence number of the record read last."""
    older: bool = False
    """Whether records of older steps were found."""

    def wait_for(self, step: int, output: str, count: int) -> None:
        """A step has written this many records of an output there, after those of its outputs before it."""
        self.outputs.setdefault(step, []).extend([output] * count)
        self.due[output] += count

    @property
    def done(self) -> bool:
        return not self.due.total() or self.older or self.at <= self.begins

    def take(self, task: str, first: Step, messages: Sequence[Message]) -> None:
        """Take the records before those already read."""
        for m in reversed(messages):
            own = [(name, value) for name, value in m.headers() or () if name not in (HEADER, BUNDLE)]
            for made, value in reversed(parts_made(m.headers(), m.value())):
                if made is None or made.task != task:
                    self.others.add(m.key())
                    continue
                # Looking back, numbers that rise again belong to an earlier app of the same name.
                number, outputs = (made.step, made.sequence), self.outputs.get(made.step, [])
                rises = made.sequence >= len(outputs) or (self.lowest is not None and number >= self.lowest)
                if made.step < first or rises:
                    self.older = True
                    return
                self.lowest, output = number, outputs[made.sequence]
                self.due[output] -= 1
                hidden = m.key() in self.others
                self.newest_first.setdefault(output, []).append(
                    OutputRecord(m.partition() or 0, m.key(), value, m.timestamp()[1], own or None, hidden)
                )


def published_records(
    topics: OutputReader,
    task: TaskId,
    records: Sequence[StepRecord],
    outputs: Mapping[str, str],
    tables: Collection[str],
    go_on: Callable[[], None] = lambda: None,
) -> OutputRecords:
    """The records that the steps of these step records published, by output.

    `outputs` gives the topic of each output. In `tables` only the last record of each key counts. Raises DivergenceError
    if records are gone.
    """
    written = [(record.step, r) for record in records for r in record.outputs]
    for _, r in written:
        if r.output not in outputs:
            raise DivergenceError(f"task {task} wrote to {r.output!r}, which the flow does not have now", hint=HINT)
    bounds = topics.bounds({TopicPartition(outputs[r.output], r.partition) for _, r in written})
    looks = {place: _Partition(end, begin) for place, (begin, end) in bounds.items()}
    for step, r in written:
        looks[TopicPartition(outputs[r.output], r.partition)].wait_for(step, r.output, r.end)
    width = WINDOW
    while todo := {place: look for place, look in looks.items() if not look.done}:
        ranges = {place: (Offset(max(look.begins, look.at - width)), look.at) for place, look in todo.items()}
        found = topics.read(ranges, go_on)
        for place, look in todo.items():
            look.take(str(task), records[0].step, found.get(place, ()))
            look.at = ranges[place][0]
        width = min(2 * width, WIDEST)
    records_of: dict[str, list[OutputRecord]] = {}
    for place, look in looks.items():
        for output, missing in look.due.items():
            compacted = output in tables and (look.older or look.begins == 0)
            if missing and not compacted:
                raise DivergenceError(
                    f"{GONE}: of {task}, from step {records[0].step} on, {missing} records are missing",
                    where=f"{output}: {place.topic}[{place.partition}], which begins at offset {look.begins}",
                    hint=HINT,
                )
            records_of.setdefault(output, []).extend(look.newest_first.get(output, ())[::-1])
    return records_of
