"""What an operator is: everything that others ask of one. Nobody asks for its type.

    flow        its inputs, schema, id                      what the user wrote, checked
    planner     keys, reads, words, state_words             edges, columns to decode, fingerprints
    circuit     runner                                      one run of a step
    batch       exchange                                    how rows of a key meet when there is no state
    upgrades    tables, table_schemas, was, …               how state of an earlier version is read

Operators are values compared by identity: the same object met twice is the same edge of the graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import polars as pl

from falkirk.stream.dataflow.batch import Batch, Updates, concatenated
from falkirk.stream.dataflow.circuit import State
from falkirk.stream.dataflow.topics import Accepts
from falkirk.stream.definition.on_error import OnError
from falkirk.stream.definition.regimes import Regime
from falkirk.stream.formats import Key

if TYPE_CHECKING:
    from falkirk.stream.dataflow.earlier import From, Function
    from falkirk.stream.dataflow.exchange import Exchange
    from falkirk.stream.dataflow.partitioners import Partitioners
    from falkirk.stream.dataflow.step import StepRun

RESERVED = "__falkirk"
"""Columns whose names begin so are Falkirk's own."""

Flowing = Batch | Updates
"""What an operator gives in a step: rows, or what a grouped result changed."""
Pairs = Sequence[tuple[bytes, bytes]]
Change = Callable[[pl.DataFrame, Pairs], pl.DataFrame]
"""Rows of a table in one version, and their keys and values as stored, to rows in the next version."""


@dataclass(frozen=True, slots=True)
class TaskContext:
    """Where a runner runs: a task of a stage, or a bucket of a batch job."""

    tables: Mapping[str, int] = field(default_factory=dict)
    """The numbers of the operator's tables in keys of state."""
    first_shard: int = 0
    """A shard of the task's own, for what belongs to the task and not to a key."""
    partitioners: Partitioners | None = None
    """The check of where the sources' keys lie; None where an exchange has put them there."""
    partitions: Mapping[str, int] = field(default_factory=dict)
    """How many partitions a topic has."""
    accepts: Mapping[str, Accepts] = field(default_factory=dict)
    """Which records a topic accepts, as far as its broker has been asked."""
    batch: bool = False
    """In a batch rows only come: nothing is ever taken back."""


class Runner(ABC):
    """One operator in one task."""

    @abstractmethod
    def step(self, run: StepRun, *inputs: Flowing | None) -> Flowing | None:
        """What it gives in this step. `inputs`: one for each port, None where nothing came. Raises UserCodeError."""

    def wake_at(self, state: State) -> int | None:
        """When time alone makes it run (milliseconds); None: only rows do."""
        return None


class ResultRunner(Runner):
    """Of an operator whose result is in its state."""

    @abstractmethod
    def visible(self, state: State, sink: Operator, key: Key | None, keys: Sequence[bytes | None]) -> Batch | None:
        """The rows that these keys of a sink have now; None where it cannot be told from the state."""

    @abstractmethod
    def differences(
        self, run: StepRun, full: Sequence[bytes], before: list[bytes | None], after: list[bytes | None]
    ) -> Updates:
        """From some rows of state to others, by their keys in state: what of them is seen behind the operator."""


class RowWise(Runner):
    """A function of a batch of rows: f(a ++ b) = f(a) ++ f(b)."""

    def __init__(self, function: Callable[[StepRun, Batch], Batch], *, weighted: bool) -> None:
        """`weighted`: rows of its inputs can be taken back."""
        self.function, self.weighted = function, weighted

    def step(self, run: StepRun, *inputs: Flowing | None) -> Flowing | None:
        batch = joined(inputs, weighted=self.weighted)
        return None if batch is None else self.function(run, batch)


def joined(inputs: Sequence[Flowing | None], *, weighted: bool) -> Batch | None:
    """All of it as one batch, with weights where any of it could have them; None if there is nothing."""
    batches = [f.zset() if isinstance(f, Updates) else f for f in inputs if f is not None]
    batches = [b for b in batches if len(b)]
    return concatenated(batches, weighted=weighted) if batches else None


@dataclass(frozen=True, eq=False, slots=True)
class Earlier:
    """An operator as it was in an earlier version."""

    operator: Operator
    by: Mapping[str, Function]
    """By table: from a row of it to one of the version after it."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Operator(ABC):
    """One operator."""

    kind: ClassVar[str]
    role: ClassVar[Literal["source", "operator", "sink"]] = "operator"
    stateful: ClassVar[bool] = False
    row_wise: ClassVar[bool] = False
    """A function of each batch of rows, the same in the stream and in a batch."""
    can_fail: ClassVar[bool] = False
    """Can it go on without a record or a row that fails? Then it has a stream of errors."""
    can_refuse: ClassVar[bool] = False
    """Can it go on without rows that it refuses, though it has no stream of errors?"""
    changes_regime: ClassVar[bool] = False
    """Does a new regime begin here? Right after a source, its stage reads the topic itself."""
    gives_errors: ClassVar[bool] = False
    """Are its rows what failed in its input?"""
    timed: ClassVar[bool] = False
    """Does time alone make it run?"""
    keeps_result: ClassVar[bool] = False
    """Is its result in its state, so that what it said before can be compared with what it says now? (`ResultRunner`)"""
    reruns: ClassVar[bool] = False
    """Can its output be computed again from its input, with its state as it is?"""
    table_ports: ClassVar[frozenset[int]] = frozenset()
    """The inputs of which the last row of each key counts."""
    main_table: ClassVar[str] = "state"
    """Its table that is meant where none is named."""

    id: str
    line: str
    """`file:line` of the user's call."""
    inputs: tuple[Operator, ...]
    schema: pl.Schema
    """The columns that it gives."""
    changes: bool = False
    """Can a row that it gave be taken back? False: its output is append-only, and carries no weights."""
    unique: frozenset[str] | None = None
    """Columns that tell the rows of a grouped result apart; None when that is not known."""
    partitioned: Key | None = None
    """What decides which task has a row: rows of one key are all in one task. None when that is not known."""
    root: str
    """Operators with the same root run in tasks that are cut the same way; between two roots lies an edge."""
    regime: Regime
    on_error: OnError | None = None
    """What becomes of what fails here, where the user said so."""
    earlier: tuple[Earlier, ...] = ()
    """What it was in versions whose state it goes on with, each before the one that came after it."""

    def __repr__(self) -> str:
        return f"<{self.kind} {self.id!r}>"

    @property
    def where(self) -> str:
        """For errors."""
        return f"{self.kind} {self.id!r} ({self.line})"

    @property
    def batch(self) -> bool:
        """Is it run epoch by epoch, and not step by step?"""
        return self.regime.kind == "batch"

    @property
    def state_columns(self) -> Sequence[str]:
        """The columns of its first input by which its state is found."""
        return ()

    def weighted(self, task: TaskContext) -> bool:
        """Whether rows that it gets there carry weights."""
        return not task.batch and any(before.changes for before in self.inputs)

    # -- what the planner asks -----------------------------------------------------------------------------------------

    def keys(self, port: int) -> Key | None:
        """The key by which rows of this input find their task; None: the task with the sender's number."""
        return self.partitioned

    def reads(self, port: int, needed: Set[str]) -> Set[str]:
        """The columns of this input that it reads itself, or hands on to those who need `needed` of what it gives."""
        return set(self.inputs[port].schema)

    def looks_up(self, port: int) -> Set[str] | None:
        """The columns that it looks up in a broadcast table; None: rows of this input flow."""
        return None

    @property
    def words(self) -> str:
        """What it does, in a line."""
        return f"{self.kind} {self.id}"

    @property
    def exact_words(self) -> str:
        """What another result would follow from, beside `words`, though nobody wants to read it."""
        return self.state_words()

    def described(self, *, exactly: bool = False) -> str:
        """What it does, for people who look at a plan, and `exactly` for fingerprints."""
        words = self.words
        if self.on_error is not None:
            words += f"; what fails: {self.on_error!r}"
        return f"{words} ({self.exact_words})" if exactly else words

    # -- what runs -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def runner(self, task: TaskContext) -> Runner:
        """It, ready to run in one task."""

    def exchange(self) -> Exchange | None:
        """What brings its rows together in a batch; None: it is row-wise, and runs there as in a step."""
        return None

    # -- what upgrades ask ---------------------------------------------------------------------------------------------

    def state_words(self) -> str:
        """Its state in one line: what must not change while its state is kept."""
        return ""

    def tables(self) -> Sequence[str]:
        """The names of its tables."""
        return [*self.table_schemas()]

    def table_schemas(self) -> Mapping[str, pl.Schema]:
        """The columns of the rows of its tables, where people may read them."""
        return {}

    def rebuilt_from(self) -> Sequence[Operator]:
        """The inputs from which its state follows."""
        return self.inputs

    def rerun_from(self) -> Sequence[Operator]:
        """The inputs from which its output follows, with its state as it is."""
        return self.inputs

    def was(self, one: From, where: str) -> Operator:
        """It, as it was in an earlier version. Raises DefinitionError."""
        raise NotImplementedError

    def check_earlier(self, was: Any, by: Mapping[str, Function], where: str) -> None:  # noqa: B027
        """Check that state of the version `was` leads to this one. Raises DefinitionError."""

    def carries(self, was: Any, table: str) -> bool:
        """Whether a table of the version before goes on as one of this, of the same things."""
        return table in self.tables()

    def change(self, was: Any, function: Function | None, table: str) -> Change | None:
        """What happens to the rows of a table of the version before; None: nothing."""
        return None
