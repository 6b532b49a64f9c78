"""The interface between the dataflow and the checkpoint protocol: how a stage processes the input of one step.

A circuit is a function: the same slices, clock and state give the same outputs and changes, byte for byte, on any
host. It does no I/O. It reads state and stages changes through the `State` handed to it; nothing reaches the store
before the step has committed.

The exception are operators that call others (`Operator.calls_others`): a step of theirs is run once, and never again after it
has committed.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import polars as pl

from falkirk.checkpoint.records import SelectiveCheckpoint
from falkirk.state.store import State
from falkirk.stream.dataflow.records import Records
from falkirk.stream.dataflow.task_counts import CallCounts, HotKey, SourceWatermark

Place = tuple[str, int]
"""Topic and partition."""


@dataclass(slots=True)
class Slice:
    """The records of one input partition that a step reads, in the order of offsets."""

    input: str
    """Id of the stage's input: a source's or an edge's name."""
    topic: str
    partition: int
    records: Records


class SharedRows(Protocol):
    """A broadcast table at one moment."""

    def find(self, keys: Sequence[bytes]) -> tuple[pl.DataFrame, list[int | None]]:
        """The existing rows of these keys, and for each key the index of its row."""
        ...


class Cancellation:
    """Whether a step is still wanted. The thread that runs it may wait for others, and another thread ends its waiting.

    >>> asked, cancellation = Future(), Cancellation()
    >>> cancellation.cancel()
    >>> cancellation.attach(asked)
    >>> asked.cancelled()
    True
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._over = False
        self._asked: Future[Any] | None = None

    def attach(self, asked: Future[Any]) -> None:
        """The step waits for this now."""
        with self._lock:
            self._asked = asked
            if self._over:
                asked.cancel()

    @property
    def cancelled(self) -> bool:
        """Whether the step is not wanted."""
        return self._over

    def cancel(self) -> None:
        """The step is not wanted: what it waits for is cancelled, now and later."""
        with self._lock:
            self._over = True
            if self._asked is not None:
                self._asked.cancel()


@dataclass(slots=True)
class StepInput:
    """All input of a step except the state: a step is a function of both. Slices are in (input, partition) order."""

    clock: int
    """Milliseconds; the only time that operators may read."""
    slices: Sequence[Slice]
    shared: Mapping[str, SharedRows] = field(default_factory=dict)
    """Broadcast tables as of the step, by the id of their source."""
    cancellation: Cancellation | None = None
    """If it runs in a thread of its own."""
    places: Collection[Place] | None = None
    """The partitions of its division, whether they have records or not; None: all that the task reads. A step that is run
    again must not wait for the watermark of a partition that joined after it."""


@dataclass(slots=True)
class RereadInput:
    """The input to read again for operators that are rebuilt."""

    inputs: frozenset[str]
    """Ids of inputs of the stage."""
    reached: Mapping[Place, int]
    """The next offset of each partition. A partition that is missing here starts at its beginning."""
    taken: int | None = None
    """The next offset of the shadow's changelog, if there is a shadow. None: no more of it is needed."""


class ShadowChunk(NamedTuple):
    """The content of one chunk of a shadow's changelog."""

    rows: Mapping[bytes, bytes | None]
    next: int | None
    """The offset of the next chunk. None: this is the last chunk."""


@dataclass(frozen=True, slots=True)
class Moving:
    """The progress of reading again after a step."""

    since: int
    """The clock of the last step that read new input. Timers due by then have fired."""
    reached: Mapping[Place, int]
    """The next offset of each partition."""
    whole: bool
    """Whether everything that the task had read is read again."""
    taken: ShadowChunk | None = None
    """The shadow's chunk to take over, if nothing is read."""


@dataclass(slots=True)
class Emitted:
    """Records for one output (a sink, an edge, or the dead letters), in columns and in order."""

    output: str
    topic: str
    partitions: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: Sequence[int]
    headers: Sequence[list[tuple[str, bytes]]] | None = None
    """The record's own headers, if it has any. Sending adds the provenance headers."""
    bundles: bool = False
    """Whether several tasks' values may share one record. Only Falkirk reads such records, and they have no keys."""


@dataclass(slots=True)
class StepOutput:
    """What a step emits. Its state changes are staged in the `State`."""

    emitted: list[Emitted] = field(default_factory=list)
    rows: int = 0
    dead: int = 0
    """The number of emitted dead letters."""
    skipped: int = 0
    """The number of failures that were skipped."""
    late: int = 0
    """The number of late rows."""
    wake_at: int | None = None
    """Milliseconds: when the next timer is due. A step without input runs then."""
    moving: bool = False
    """For a move: whether there may be more to do."""


class OutputRecord(NamedTuple):
    """A record of an output: a published record that was read back, or a record that should be there."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: list[tuple[str, bytes]] | None = None
    hidden: bool = False
    """Whether another writer has since written a record with this key."""


OutputRecords = Mapping[str, Sequence[OutputRecord]]
"""The records of several steps, in order, by output name."""


class Corrected(NamedTuple):
    """The records to emit so that the published output becomes the correct output."""

    emitted: list[Emitted]
    left: Mapping[str, int]
    """By output: the number of published records, or rows of an edge, that are wrong and cannot be retracted."""


class Circuit(Protocol):
    """The operators of one stage, bound to one task."""

    def run(self, step: StepInput, state: State) -> StepOutput:
        """Run one step. Raises UserCodeError or SourceError; the staged changes are then discarded."""
        ...

    def wake_at(self, state: State) -> int | None:
        """When the first timer in the state is due. Called once, at the take-over of the task."""
        ...

    def selective(self, state: State) -> SelectiveCheckpoint | None:
        """What a recovery needs of all rows whose time is complete in this state, which is that after a step. None: it needs
        all of the state, or not all that is complete has left it yet."""
        ...

    def rewind(self) -> None:
        """Steps that ran may not commit: drop everything that is remembered about them outside the state."""
        ...

    def calls(self) -> Mapping[str, CallCounts]:
        """By operator that calls others: what was called since the last such question."""
        ...

    def hot_keys(self) -> Mapping[str, HotKey]:
        """By operator with state: the key that has most of its rows, if there is one."""
        ...

    def watermarks(self) -> Mapping[str, SourceWatermark]:
        """By source with `late=`: how far it is in event time."""
        ...

    def close(self) -> None:
        """The task ends: close what operators have opened outside."""
        ...


class Evolution(Protocol):
    """A task's extra work when the code of its stage has changed. It moves state of an earlier version, rebuilds operators,
    and corrects the output of steps that would now give other output."""

    def moving(self, state: State) -> bool:
        """Whether there may be state of an earlier version of the flow. It must be moved or rebuilt before the task reads
        anything. Called at the take-over of the task."""
        ...

    def again(self, state: State) -> RereadInput | None:
        """The input that the next move reads again; None: no input."""
        ...

    def move(self, step: StepInput, state: State, moving: Moving) -> StepOutput:
        """Move part of the state, or rebuild it from slices that were read before. This is a separate step that reads no
        new input. Raises UserCodeError and StateError."""
        ...

    def tables(self) -> frozenset[str]:
        """The outputs where only the last record of each key counts."""
        ...

    def correct(self, should: OutputRecords, published: OutputRecords, clock: int, state: State) -> Corrected:
        """The correction for the difference between the output that steps should have published and the output that they
        did publish. The state is the state after these steps. Raises DivergenceError if the correction is unknown."""
        ...
