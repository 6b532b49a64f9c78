"""What the reader hands to the checker: records as a consumer at read_committed gets them, and step records."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from typing import Any, NamedTuple

import msgspec
import orjson
import pyarrow as pa

HEADER = "falkirk"
BUNDLE = "falkirk-bundle"


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


def parts(seen: Seen, headers: Iterable[tuple[str, bytes]]) -> list[Seen]:
    """The record by what its headers say: itself with its mark, or the parts of a bundle, each as a record with its own.

    Raises ValueError where the parts are not as many as their marks.

    >>> bundle = Seen(Tp("edge", 0), 5, None, b"\\x03\\x92\\xc4\\x01x\\xc4\\x01y")
    >>> [part.mark for part in parts(bundle, [(BUNDLE, b"a/0 1 0\\na/1 7 0")])]
    [b'a/0 1 0', b'a/1 7 0']
    """
    found = dict(headers)
    if BUNDLE not in found:
        return [seen._replace(mark=found.get(HEADER))]
    values = msgspec.msgpack.decode((seen.value or b"")[1:], type=list[bytes])
    marks = found[BUNDLE].split(b"\n")
    return [seen._replace(value=value, mark=mark) for value, mark in zip(values, marks, strict=True)]


def rows_of_batch(seen: Seen) -> list[dict[str, Any]]:
    """The rows of a record between stages: a version byte, then an Arrow IPC stream, or MessagePack where rows are few. A
    watermark has none. Raises ValueError for another version.

    >>> head = msgspec.msgpack.encode([("n", "i8")])
    >>> rows_of_batch(Seen(Tp("edge", 0), 5, None, b"\x02" + msgspec.msgpack.encode((head, [[7], [8]]))))
    [{'n': 7}, {'n': 8}]
    """
    value = seen.value or b""
    match value[:1]:
        case b"\x01":
            return pa.ipc.open_stream(BytesIO(value[1:])).read_all().to_pylist()  # type: ignore[no-any-return]
        case b"\x02":
            head, plain = msgspec.msgpack.decode(value[1:])
            names = [name for name, _ in msgspec.msgpack.decode(head)]
            return [dict(zip(names, row, strict=True)) for row in plain]
        case b"\x04":
            return []
        case version:
            raise ValueError(f"{seen.tp} offset {seen.offset}: a batch of version {version!r}")


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
