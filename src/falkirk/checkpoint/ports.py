"""What the protocol asks of the world. Kafka and RocksDB implement it, and so does a simulator.

The protocol is written as coroutines so that one text serves two drivers: a worker runs it to its end, each port call
blocking; the simulator stops it at every port call, to crash it there, pause it, or let another worker go first.
No event loop is involved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from falkirk.checkpoint.ids import Millis, Offset, OwnerId, Step, TaskId, TopicPartition
from falkirk.checkpoint.overlay import Overlay
from falkirk.checkpoint.records import Division, StepRecord
from falkirk.state.store import Changes, Store


class Aborted(Exception):
    """The transaction certainly did not commit, and the producer can go on."""


class Unknown(Exception):
    """Nobody here knows whether the transaction committed: a time-out, a fatal error, a fence, a lost coordinator.

    The producer must not be used again: librdkafka cannot tell a delayed EndTxn from the next one (it lacks KIP-890).
    """


@dataclass(slots=True)
class Writes:
    """Records for one topic, in columns, in the order in which they are to be sent."""

    topic: str
    partitions: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: Sequence[int] | None = None
    """Milliseconds; None: the broker's or client's own time."""
    headers: Sequence[list[tuple[str, bytes]]] | None = None
    tracked: bool = False
    """Whether `commit` is to say at which offset the last record came to lie."""

    def __len__(self) -> int:
        return len(self.values)


@dataclass(slots=True)
class Output:
    """What a step writes to one output: the output's name and its records."""

    name: str
    writes: Writes


class LogRecord(NamedTuple):
    """A record read back from an internal topic."""

    offset: Offset
    key: bytes | None
    value: bytes | None


@dataclass(slots=True)
class Read:
    """What a bounded read gave: the records, and the position after them.

    `position` counts control records and aborted ones, so that it reaches the end asked for even when the last
    records there are markers. A read may return early; it makes progress, or else waits a little first: position = start
    says that an open transaction (or, at worst, a marker that is still being written) is in the way.
    """

    records: list[LogRecord] = field(default_factory=list)
    position: Offset = Offset(0)


Ranges = Mapping[TopicPartition, tuple[Offset, Offset]]
"""Where to read from, and up to where (exclusive)."""


class Log(Protocol):
    """A transactional log as one worker sees it: one producer at a time, one group member. One class owns it.

    begin → send* → send_offsets → commit | abort. `commit` returns, or raises Aborted or Unknown; so may the calls
    before it. After Unknown only `renew` may follow.
    """

    @property
    def owner(self) -> OwnerId:
        """This worker's transactional id."""
        ...

    async def begin(self) -> None:
        """Open a transaction."""
        ...

    async def send(self, writes: Writes) -> None:
        """Send records within the transaction."""
        ...

    async def send_offsets(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Commit offsets under the group's metadata: the broker refuses them from a stale generation. Never empty."""
        ...

    async def commit(self) -> Mapping[TopicPartition, Offset]:
        """End the transaction. Returns, for each partition of tracked writes, the offset of the last record."""
        ...

    async def abort(self) -> None:
        """End the transaction without effect. Raises Unknown where even that is in doubt."""
        ...

    async def renew(self) -> None:
        """A new producer with the same id: what the old one left open is decided when this returns, and it is fenced."""
        ...

    async def fence(self, owner: OwnerId) -> None:
        """End another worker's producer. When this returns its open transaction is decided, markers written."""
        ...

    async def start(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """The first offset still kept in each partition."""
        ...

    async def end(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """High watermarks, asked at read_uncommitted: the last stable offset may lag a commit that returned."""
        ...

    async def read_uncommitted(self, ranges: Ranges) -> Mapping[TopicPartition, Read]:
        """Everything in the ranges, open and aborted transactions included."""
        ...

    async def read_committed(self, ranges: Ranges) -> Mapping[TopicPartition, Read]:
        """What is committed in the ranges, up to the first open transaction of each partition."""
        ...

    async def read_changes(self, partition: TopicPartition, start: Offset, end: Offset) -> tuple[Changes, Offset]:
        """Committed changes of a changelog, the last of each key, and the position after them (as `Read.position`)."""
        ...


class Backfilled(NamedTuple):
    """A complete backfill."""

    base: Offset
    """Where the record lies that opened it: its name."""
    division: Division
    """What it read of all sources; what comes after it is the app's to read."""


class Stores(Protocol):
    """Where tasks' databases are."""

    async def open(self, task: TaskId) -> Store:
        """The task's store: its live copy where this host has one, else the newest version, else an empty one.

        Raises StateError where there is one that cannot be read or is not this task's; it is never taken for empty.
        """
        ...

    async def fresh(self, task: TaskId) -> Store:
        """An empty store in the place of what this host has of the task's."""
        ...

    async def based(self, task: TaskId, base: Offset) -> Store:
        """The state that this backfill made, in the place of what this host has of the task's.

        Raises StateError where there is none; it is never taken for empty.
        """
        ...

    async def before(self, task: TaskId, step: Step) -> Store:
        """The newest version that is of no step from this one on, else an empty store, in the place of what this host has."""
        ...

    async def backfilled(self) -> Backfilled | None:
        """The app's backfill; None where there is none. Asked when a task has been named. Raises StateError while it
        is open."""
        ...


class Replayer(Protocol):
    """Runs a recorded step again (lazy regime)."""

    @property
    def corrects(self) -> bool:
        """Whether steps that give another output now are corrected. If not, they stop their task."""
        ...

    async def replay(self, task: TaskId, record: StepRecord, state: Overlay) -> list[Output]:
        """Read the division, run the circuit at the record's clock, stage its changes; return what it emits."""
        ...

    async def difference(
        self, task: TaskId, records: Sequence[StepRecord], should: Sequence[Output], state: Overlay
    ) -> list[Output]:
        """Read back what the steps of these records have said; what to write so that it comes to what they `should` have.

        `state` is that after all of them. Raises DivergenceError where it cannot be known.
        """
        ...


class Clock(Protocol):
    """Wall time."""

    def now(self) -> Millis:
        """Milliseconds since 1970, UTC."""
        ...
