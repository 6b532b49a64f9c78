"""What a stage does with one step's input: the seam between the dataflow and the protocol.

A circuit is a function: the same slices, clock and state give the same outputs and changes, byte for byte, on any
host. It does no I/O. It reads state and stages changes through the `State` handed to it; nothing reaches the store
before the step has committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import polars as pl

from falkirk.stream.dataflow.records import Records


@dataclass(slots=True)
class Slice:
    """The records of one input partition that a step reads, in the order of offsets."""

    input: str
    """Id of the stage's input: a source's or an edge's name."""
    topic: str
    partition: int
    records: Records


class SharedRows(Protocol):
    """A broadcast table at some moment."""

    def find(self, keys: Sequence[bytes]) -> tuple[pl.DataFrame, list[int | None]]:
        """The rows that there are under these keys, and for each key which of them is its own."""
        ...


@dataclass(slots=True)
class StepInput:
    """Everything that a step is a function of, but for the state. Slices come in (input, partition) order."""

    clock: int
    """Milliseconds; the only time that operators may read."""
    slices: Sequence[Slice]
    shared: Mapping[str, SharedRows] = field(default_factory=dict)
    """Broadcast tables as of the step, by the id of their source."""


Place = tuple[str, int]
"""Topic and partition."""


@dataclass(slots=True)
class Again:
    """What is read again for operators that are rebuilt."""

    inputs: frozenset[str]
    """Ids of inputs of the stage."""
    reached: Mapping[Place, int]
    """Where each partition is read on; at its beginning where it is not named."""
    taken: int | None = None
    """Where a shadow's changelog is read on, if there is a shadow; None: nothing of it is wanted any more."""


class Taken(NamedTuple):
    """What a chunk of a shadow's changelog holds."""

    rows: Mapping[bytes, bytes | None]
    next: int | None
    """Where the next chunk begins; None: there is no other."""


@dataclass(frozen=True, slots=True)
class Moving:
    """How far what is read again has come with a step."""

    since: int
    """The clock of the last step that read what was new: what was due by then has been done."""
    reached: Mapping[Place, int]
    """Where each partition is read on."""
    whole: bool
    """Whether all is read that the task had read."""
    taken: Taken | None = None
    """What is taken of a shadow, where nothing is read."""


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
    """The record's own headers, where it has any; provenance is added when it is sent."""
    bundles: bool = False
    """Whether its records may share one with those of other tasks: they are read by Falkirk alone, and have no keys."""


@dataclass(slots=True)
class StepOutput:
    """What a step emits. Its state changes are staged in the `State`."""

    emitted: list[Emitted] = field(default_factory=list)
    rows: int = 0
    dead: int = 0
    """Dead letters among what is emitted."""
    skipped: int = 0
    """What failed and was left out."""
    wake_at: int | None = None
    """Milliseconds: when the next timer is due; a step without input is run then."""
    moving: bool = False
    """Of a move: whether there may be more to do."""


class Said(NamedTuple):
    """A record of an output: one that was read back, or one that should be there."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: list[tuple[str, bytes]] | None = None
    hidden: bool = False
    """Whether another than the task has written a record of the key since."""


Speech = Mapping[str, Sequence[Said]]
"""The records of several steps, in their order, by the output's name."""


class Corrected(NamedTuple):
    """What is to be emitted so that what was said comes to what should have been."""

    emitted: list[Emitted]
    left: Mapping[str, int]
    """By output: records, or rows of an edge, that were said wrongly, and cannot be taken back."""


class State(Protocol):
    """A task's state as its circuit sees it: the store, and over it what earlier steps and this one have staged."""

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values under full keys (see `falkirk.state.codec`), in the order asked."""
        ...

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Pairs with start ≤ key < end, in the order of keys, staged changes included."""
        ...

    def put(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Stage new values; None deletes."""
        ...


class Circuit(Protocol):
    """The operators of one stage, bound to one task."""

    def run(self, step: StepInput, state: State) -> StepOutput:
        """Run one step. Raises UserCodeError or SourceError; nothing is staged for good then."""
        ...

    def wake_at(self, state: State) -> int | None:
        """When the first timer in the state is due: asked once, when a task is taken over."""
        ...

    def rewind(self) -> None:
        """Steps that were run may not count: forget what was noted of them beside the state."""
        ...


class Evolution(Protocol):
    """What a task does beside its steps when the code of its stage has changed: state of an earlier version is moved,
    operators are rebuilt, and steps that said something else are corrected."""

    def moving(self, state: State) -> bool:
        """Whether there may be state of an earlier version of the flow, which is to be moved or rebuilt before anything is
        read: asked when a task is taken over."""
        ...

    def again(self, state: State) -> Again | None:
        """What the next move reads again; None: nothing."""
        ...

    def move(self, step: StepInput, state: State, moving: Moving) -> StepOutput:
        """In a step of its own, which reads nothing new, move some of it; or rebuild it from slices that were read before.
        Raises UserCodeError and StateError."""
        ...

    def tables(self) -> frozenset[str]:
        """The outputs of which each key's last record is what counts."""
        ...

    def correct(self, should: Speech, said: Speech, clock: int, state: State) -> Corrected:
        """What makes up for the difference between what steps should have said and what they have said. The state is that
        after all of them. Raises DivergenceError where it cannot be told."""
        ...
