"""The records of the steps topic: the truth about progress. JSON, so that Kafka's own tools can show them.

Partition t of the topic is task t's. Its committed records in log order:

    named(a) · step 0 by a · step 1 by a · released(a) · named(b) · step 2 by b · …

`named` begins an ownership, `released` ends the one whose nonce it cites, and each step says which ownership wrote it.
"""

from __future__ import annotations

import msgspec

from falkirk.checkpoint.ids import InputPartition, Millis, Nonce, Offset, OwnerId, Step


class Range(msgspec.Struct, frozen=True, array_like=True):
    """Offsets start ≤ o < end of one input partition."""

    partition: InputPartition
    start: Offset
    end: Offset

    def __str__(self) -> str:
        """Its name in errors, traces: `bids[0] 10..20`."""
        return f"{self.partition.place.topic}[{self.partition.partition}] {self.start}..{self.end}"


Division = tuple[Range, ...]
"""What one step reads: a range for every input partition of the task, also empty ones, in the order of partitions."""


class OutputRange(msgspec.Struct, frozen=True, array_like=True):
    """A step wrote `end` records to one partition of an output.

    Their sequence numbers follow those of the step's outputs before it to the same partition, from 0 on. So a reader of one
    partition sees a loss as a gap and a double as a repeat. The step record says how many to wait for.
    """

    output: str
    partition: int
    end: int


class Named(msgspec.Struct, frozen=True, tag="named"):
    """A worker takes the task over (clause 5a)."""

    nonce: Nonce
    owner: OwnerId
    host: str = ""


class Released(msgspec.Struct, frozen=True, tag="released"):
    """The ownership `nonce` ended cleanly: its owner has nothing open and need not be fenced."""

    nonce: Nonce


class Move(msgspec.Struct, frozen=True, omit_defaults=True):
    """The step has moved or rebuilt state of an earlier version of the flow, and read nothing new."""

    again: Division = ()
    """What it has read again, for all partitions."""
    left: bool = False
    """Whether there may be more to do."""
    since: Millis = Millis(0)
    """The clock of the last step with input."""


class SelectiveCheckpoint(msgspec.Struct, frozen=True, array_like=True):
    """What a recovery needs of all rows whose time was complete, by event time (`falkirk.checkpoint.regimes.selective`)."""

    complete: Millis
    """After the step, no state is left of rows that only counted until this time."""
    needed: Millis
    """Until this time is complete, rows that were read up to here may count."""
    kept: tuple[tuple[bytes, bytes], ...]
    """Keys and values of the state that does not depend on incomplete times: the watermarks."""


class StepRecord(msgspec.Struct, frozen=True, tag="step", omit_defaults=True):
    """One committed step. The record and everything that the step wrote are visible together or not at all."""

    task: str
    step: Step
    nonce: Nonce
    owner: OwnerId
    clock: Millis
    division: Division
    outputs: tuple[OutputRange, ...]
    digest: str
    rows: int = 0
    dead: int = 0
    """Records and rows that failed and went to a dead-letter topic."""
    base: Offset = Offset(-1)
    """The backfill that began the task's state, as `falkirk.state.store.Progress.base`."""
    skipped: int = 0
    """Records and rows that failed and were left out."""
    layout: int = 0
    """The number of the app's layout that it ran under: which flow computed its output from its division."""
    corrects: Step = Step(-1)
    """The first step that a correction corrects; the last is the step before it. −1: not a correction."""
    move: Move | None = None
    """What it has done instead of reading on."""
    selective: SelectiveCheckpoint | None = None
    """Of some steps, if the regime asks for it."""


RecordedStep = tuple[Offset, StepRecord]
"""A step's record, and its offset in the steps topic."""

TaskRecord = Named | Released | StepRecord

_decoder = msgspec.json.Decoder(Named | Released | StepRecord)
_encoder = msgspec.json.Encoder()


def encode(record: TaskRecord) -> bytes:
    """The record as JSON.

    >>> decode(encode(Released(Nonce("n"))))
    Released(nonce='n')
    """
    return _encoder.encode(record)


def decode(data: bytes) -> TaskRecord:
    """The record in `data`. Raises msgspec.ValidationError if none is."""
    record: TaskRecord = _decoder.decode(data)
    return record
