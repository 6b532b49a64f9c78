"""The interfaces that the protocol needs. Kafka and RocksDB implement them, and a simulator.

The protocol is written as coroutines so that the same code has two drivers. A worker runs it to its end, and each port
call blocks. The simulator stops it at every port call, to crash it there, pause it, or let another worker go first.
There is no event loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from falkirk.checkpoint.ids import Millis, Offset, OwnerId, Step, TaskId, TopicPartition
from falkirk.checkpoint.overlay import Overlay
from falkirk.checkpoint.records import Division, SelectiveCheckpoint, StepRecord
from falkirk.state.store import Changes, GoOn, Store

MARK = b""
"""The key of a record without a value that marks an end: see `Log.mark`. Readers skip it. No key of a store is empty."""


class Why(Enum):
    """Why a transaction failed; it decides what to do."""

    TRANSIENT = "transient"
    """Nothing is wrong with the records: a broker or the group was busy with something else."""
    SLOW = "slow"
    """Not written in time. Less may be."""
    REFUSED = "refused"
    """The broker refuses the records, perhaps forever."""


class Cause(NamedTuple):
    """Why a transaction failed, and what was said about it."""

    why: Why
    what: str
    """In the broker's words, or the client's."""


class Failure(Exception):
    """A transaction failed."""

    def __init__(self, what: str = "", why: Why = Why.TRANSIENT) -> None:
        super().__init__(what)
        self.cause = Cause(why, what)


class Aborted(Failure):
    """The transaction did certainly not commit. The producer can continue."""


class Unknown(Failure):
    """The transaction may have committed or not, or one of its requests may still be on its way: a time-out, a fatal error,
    a fence, a lost coordinator, a connection that broke although the call returned.

    The producer must not be used again. A delayed EndTxn ends any transaction of its epoch that is open on its arrival
    (librdkafka lacks KIP-890), and only a new producer has a new epoch.
    """


class Fenced(Unknown):
    """A producer with the same id was initialised since: by another process, or the transaction timed out."""


@dataclass(slots=True)
class Writes:
    """Records for one topic, in columns, in the order of sending."""

    topic: str
    partitions: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: Sequence[int] | None = None
    """Milliseconds; None: the broker's or client's own time."""
    headers: Sequence[list[tuple[str, bytes]]] | None = None
    tracked: bool = False
    """Whether `commit` returns the offset of the last record."""
    bundles: bool = False
    """Whether other tasks' records for the same partition may share a record (`falkirk.checkpoint.bundles`)."""

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
    """The result of a bounded read: the records, and the position after them.

    `position` counts control records and aborted ones, so that it reaches the requested end even if the last
    records there are markers. A read may return early. It makes progress, or first waits a little: position = start
    means that an open transaction (or, at worst, a marker that is still being written) is in the way.
    """

    records: list[LogRecord] = field(default_factory=list)
    position: Offset = Offset(0)


Ranges = Mapping[TopicPartition, tuple[Offset, Offset]]
"""Where to read from, and up to where (exclusive)."""


class Log(Protocol):
    """A worker's transactional log: one producer at a time, one group member. One class owns it.

    begin → send* → send_offsets → commit | abort. `commit` returns, or raises Aborted or Unknown; so may the calls
    before it. After Unknown, only `renew` may be called.

    commit or abort returned, or Aborted was raised  ⇒  every request of the transaction was answered

    So no transaction begins on an epoch under which an older request may still arrive.
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
        """End the transaction without effect. Raises Unknown if even that is in doubt."""
        ...

    async def renew(self) -> None:
        """A new producer with the same id. When this returns, the old one is fenced and what it left open is decided."""
        ...

    async def fence(self, owner: OwnerId) -> None:
        """Fence another worker's producer. When this returns, its transaction is decided, markers written."""
        ...

    async def start(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """The first offset still kept in each partition."""
        ...

    async def end(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """High watermarks, at read_uncommitted: the last stable offset may lag a commit that returned. They may be those of
        a broker that is the leader no more, and lack what its successor has acknowledged: see `mark`."""
        ...

    async def mark(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        """Where each partition ends: behind every record that was acknowledged before the call. This is the offset of a
        record that is written there for it, with the key `MARK` and no value: only the leader can acknowledge it."""
        ...

    async def read_uncommitted(self, ranges: Ranges) -> Mapping[TopicPartition, Read]:
        """Everything in the ranges, also of open and aborted transactions."""
        ...

    async def read_committed(self, ranges: Ranges) -> Mapping[TopicPartition, Read]:
        """What is committed in the ranges, up to the first open transaction of each partition."""
        ...

    def report_obstacle(self, partition: TopicPartition, position: Offset, mark: Offset, obstacle: str) -> None:
        """A read of committed records stands at `position`, before its `mark`, because of an obstacle. To be called at each
        try. Logs it if it lasts; raises ClusterError when it has lasted longer than a transaction can."""
        ...

    async def read_changes(self, partition: TopicPartition, start: Offset, end: Offset) -> tuple[Changes, Offset]:
        """Committed changes of a changelog, the last of each key, and the position after them (as `Read.position`)."""
        ...


class Backfilled(NamedTuple):
    """A complete backfill."""

    base: Offset
    """The offset of its opening record: its name."""
    division: Division
    """What it read of all sources. The app reads what comes after it."""
    stages: tuple[str, ...] = ()
    """The stages whose states it made, and no later ones. Empty: it does not say."""

    def made(self, task: TaskId) -> bool:
        """Whether it made the state of this task."""
        return not self.stages or task.stage in self.stages


class Stores(Protocol):
    """Where tasks' databases are.

    A call that may take long (it fetches a version or waits for a checkpoint store) calls `go_on` now and then. `go_on`
    raises if the task was taken away.
    """

    async def open(self, task: TaskId, go_on: GoOn) -> Store:
        """The task's store: this host's live copy, else the newest version, else an empty one. If the checkpoint store is
        away, it waits only if there is neither a live copy nor a changelog.

        Raises StateError if a store cannot be read or is not this task's; it is never taken for empty.
        """
        ...

    async def newer(self, task: TaskId, than: Step, go_on: GoOn) -> Store:
        """Replace this host's store, which the logs no longer reach back to, by the newest version after this step; if there
        is none, keep this host's store. Waits for a checkpoint store that is away."""
        ...

    async def fresh(self, task: TaskId) -> Store:
        """Replace what this host has of the task by an empty store."""
        ...

    async def based(self, task: TaskId, base: Offset, go_on: GoOn) -> Store:
        """Replace what this host has of the task by the state that this backfill made.

        Raises StateError if there is none; it is never taken for empty.
        """
        ...

    async def before(self, task: TaskId, step: Step, go_on: GoOn) -> Store:
        """Replace what this host has by the newest version from before this step, else by an empty store."""
        ...

    async def backfilled(self) -> Backfilled | None:
        """The app's backfill; None if there is none. Asked after a task has been named. Raises StateError while it is
        open."""
        ...


class Replayer(Protocol):
    """Runs a recorded step again (lazy regime)."""

    @property
    def corrects(self) -> bool:
        """Whether steps that now give another output are corrected. If not, they stop their task."""
        ...

    async def replay(self, task: TaskId, record: StepRecord, state: Overlay) -> list[Output]:
        """Read the division, run the circuit at the record's clock, stage its changes; return its output."""
        ...

    def selective(self, task: TaskId, state: Overlay) -> SelectiveCheckpoint | None:
        """The selective checkpoint of this state; None if there is none now."""
        ...

    async def difference(
        self, task: TaskId, records: Sequence[StepRecord], should: Sequence[Output], state: Overlay
    ) -> list[Output]:
        """Read back what the steps of these records have said. Returns what to write to make it what they `should` say.

        `state` is that after all of them. Raises DivergenceError if it cannot be known.
        """
        ...


class Clock(Protocol):
    """Wall time."""

    def now(self) -> Millis:
        """Milliseconds since 1970, UTC."""
        ...
