"""What the steps topic holds: the truth about progress. JSON, so that Kafka's own tools can show it.

Partition t of the topic is task t's. Its committed records read, in log order:

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
        """As errors and traces name it: `bids[0] 10..20`."""
        return f"{self.partition.place.topic}[{self.partition.partition}] {self.start}..{self.end}"


Division = tuple[Range, ...]
"""What one step reads: a range for every input partition of the task, empty ones included, in the order of partitions."""


class OutputRange(msgspec.Struct, frozen=True, array_like=True):
    """A step wrote records with sequence numbers 0 ≤ s < end to one partition of an output.

    The numbers count from 0 in each step and partition, so a reader of one partition sees a loss or a double as a gap
    or a repeat, and the step record tells it how many to wait for.
    """

    output: str
    partition: int
    end: int


class Named(msgspec.Struct, frozen=True, tag="named"):
    """A worker says that it takes the task over (clause 5a)."""

    nonce: Nonce
    owner: OwnerId
    host: str = ""


class Released(msgspec.Struct, frozen=True, tag="released"):
    """The ownership `nonce` ended cleanly: nothing of its owner is open, so nobody need fence it."""

    nonce: Nonce


class Move(msgspec.Struct, frozen=True, omit_defaults=True):
    """The step has moved or rebuilt state of an earlier version of the flow, and read nothing new."""

    again: Division = ()
    """What it has read once more, of all partitions that are."""
    left: bool = False
    """Whether there may be more to do."""
    since: Millis = Millis(0)
    """The clock of the last step that did read."""


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
    """Which backfill the task's state began with, as `falkirk.state.store.Progress.base`."""
    skipped: int = 0
    """Records and rows that failed and were left out."""
    layout: int = 0
    """The number of the app's layout that it ran under: which flow it is that has made of its division what it says."""
    corrects: Step = Step(-1)
    """Of a correction: the first of the steps that it corrects, the last being the one before it. −1: it is none."""
    move: Move | None = None
    """What it has done in the place of reading on."""


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
    """The record in `data`. Raises msgspec.ValidationError if it is none."""
    record: TaskRecord = _decoder.decode(data)
    return record
