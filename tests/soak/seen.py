"""What the reader hands to the checker: records as a consumer at read_committed gets them, and step records."""

from __future__ import annotations

from typing import NamedTuple

import orjson

HEADER = "falkirk"


class Tp(NamedTuple):
    """One partition of one topic.

    >>> str(Tp("bids", 3))
    'bids[3]'
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


class Seen(NamedTuple):
    """One record of one partition. `mark` is its provenance header, `arrival` the reader's wall time in seconds."""

    tp: Tp
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int = 0
    mark: bytes | None = None
    arrival: float = 0.0


class Range(NamedTuple):
    """Offsets start ≤ o < end of one input partition."""

    tp: Tp
    start: int
    end: int


class StepSeen(NamedTuple):
    """One step record, read by other code than wrote it."""

    task: str
    step: int
    nonce: str
    owner: str
    clock: int
    division: tuple[Range, ...]
    outputs: dict[tuple[str, int], int]
    """How many records went to each (output, partition)."""


class NameSeen(NamedTuple):
    """A worker named itself the owner of a task."""

    nonce: str
    owner: str


def parse_task_record(value: bytes) -> StepSeen | NameSeen | None:
    """A record of the steps topic; None for a `released`. Raises ValueError or KeyError for what is no task record.

    >>> parse_task_record(b'{"type":"named","nonce":"a","owner":"w0"}')
    NameSeen(nonce='a', owner='w0')
    """
    raw = orjson.loads(value)
    if raw["type"] == "named":
        return NameSeen(raw["nonce"], raw["owner"])
    if raw["type"] == "released":
        return None
    if raw["type"] != "step":
        raise ValueError(f"{raw['type']!r} is no type of task record")
    division = tuple(Range(Tp(p[1], p[3]), start, end) for p, start, end in raw["division"])
    outputs = {(output, partition): end for output, partition, end in raw["outputs"]}
    return StepSeen(raw["task"], raw["step"], raw["nonce"], raw["owner"], raw["clock"], division, outputs)


def parse_mark(mark: bytes) -> tuple[str, int, int]:
    """Task, step and sequence number of an output record.

    >>> parse_mark(b"stats/0 17 3")
    ('stats/0', 17, 3)
    """
    task, step, seq = mark.rsplit(b" ", 2)
    return task.decode(), int(step), int(seq)
