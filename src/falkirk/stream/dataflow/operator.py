"""The interface of an operator. No other code checks an operator's type.

    flow        its inputs, schema, id                      what the user wrote, checked
    planner     keys, reads, words, state_words             edges, columns to decode, fingerprints
    circuit     runner                                      one run of a step
    batch       exchange                                    how rows of a key meet when there is no state
    upgrades    tables, table_schemas, was, …               how state of an earlier version is read

Operators are compared by identity: the same object in two places is one node of the graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import polars as pl

from falkirk.state.store import State
from falkirk.stream.dataflow.batch import Batch, Updates, concatenated
from falkirk.stream.dataflow.task_counts import CallCounts
from falkirk.stream.dataflow.topics import Accepts
from falkirk.stream.definition.on_error import OnError
from falkirk.stream.definition.regimes import Regime
from falkirk.stream.formats import Key

if TYPE_CHECKING:
    from falkirk.stream.dataflow.earlier import From, Function
    from falkirk.stream.dataflow.exchange import Exchange
    from falkirk.stream.dataflow.partitioners import Partitioners
    from falkirk.stream.dataflow.step import StepRun
    from falkirk.stream.dataflow.task_tables import TaskTable

RESERVED = "__falkirk"
"""The prefix of Falkirk's internal columns."""

Flowing = Batch | Updates
"""An operator's output in a step: rows, or the changes of a grouped result."""
Pairs = Sequence[tuple[bytes, bytes]]
Change = Callable[[pl.DataFrame, Pairs], pl.DataFrame]
"""Rows of a table in one version, and their keys and values as stored, to rows in the next version."""


@dataclass(frozen=True, slots=True)
class TaskContext:
    """The place where a runner runs: a task of a stage, or a bucket of a batch job."""

    tables: Mapping[str, int] = field(default_factory=dict)
    """The numbers of the operator's tables in keys of state."""
    first_shard: int = 0
    """A shard of this task, for data that belongs to the task and not to a key."""
    partitioners: Partitioners | None = None
    """The check of the partitions of the sources' keys; None if an exchange has placed them."""
    partitions: Mapping[str, int] = field(default_factory=dict)
    """How many partitions a topic has."""
    accepts: Mapping[str, Accepts] = field(default_factory=dict)
    """Which records a topic accepts, if its broker has answered."""
    batch: bool = False
    """In a batch, rows are never retracted."""
    number: int = 0
    """The task's number in its stage."""
    logs: Mapping[str, str] = field(default_factory=dict)
    """The topics of sinks outside Kafka, by id."""


class Runner(ABC):
    """One operator in one task."""

    @abstractmethod
    def step(self, run: StepRun, *inputs: Flowing | None) -> Flowing | None:
        """Its output in this step. `inputs`: one for each port, None if nothing came. Raises UserCodeError."""

    def wake_at(self, state: State) -> int | None:
        """When it must run even without rows (milliseconds); None: never."""
        return None

    def calls(self) -> CallCounts | None:
        """What it has called since the last such question; None: it calls nobody."""
        return None

    def close(self) -> None:  # noqa: B027
        """The task ends: close what is open outside, without waiting."""


class ResultRunner(Runner):
    """The runner of an operator that has its result in its state."""

    @abstractmethod
    def visible(self, state: State, sink: Operator, key: Key | None, keys: Sequence[bytes | None]) -> Batch | None:
        """The current rows of these keys of a sink; None if the state does not determine them."""

    @abstractmethod
    def differences(
        self, run: StepRun, full: Sequence[bytes], before: list[bytes | None], after: list[bytes | None]
    ) -> Updates:
        """The change that later operators see between two sets of state rows, given by their keys in state."""

    def complete_at(self, full: Sequence[bytes]) -> Sequence[int] | None:
        """The watermark from which on the result under each of these keys is complete, and leaves the state; None: never."""
        return None


class RowWise(Runner):
    """A function of a batch of rows: f(a ++ b) = f(a) ++ f(b)."""

    def __init__(self, function: Callable[[StepRun, Batch], Batch], *, weighted: bool) -> None:
        """`weighted`: its inputs can have retractions."""
        self.function, self.weighted = function, weighted

    def step(self, run: StepRun, *inputs: Flowing | None) -> Flowing | None:
        batch = joined(inputs, weighted=self.weighted)
        return None if batch is None else self.function(run, batch)


def joined(inputs: Sequence[Flowing | None], *, weighted: bool) -> Batch | None:
    """All changes as one batch, with weights if any change could have them; None if there is nothing."""
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
    runs_in_gateways: ClassVar[bool] = False
    """It is row-wise, and what it makes of a row is a function of the row alone: no state, no code of the user's."""
    can_fail: ClassVar[bool] = False
    """Whether it can continue without a failed record or row. Then it has a stream of errors."""
    can_refuse: ClassVar[bool] = False
    """Whether it can continue without rows that it rejects, although it has no stream of errors."""
    changes_regime: ClassVar[bool] = False
    """Whether a new regime begins here. If it follows a source directly, its stage reads the topic itself."""
    gives_errors: ClassVar[bool] = False
    """Whether its rows are the failures of its input."""
    timed: ClassVar[bool] = False
    """Whether it can run without input, because time has passed."""
    keeps_parts: ClassVar[bool] = False
    """Whether the values of its main table are parts of aggregates, `name.part`."""
    keeps_result: ClassVar[bool] = False
    """Whether its result is in its state, so that earlier and current results can be compared. (`ResultRunner`)"""
    reruns: ClassVar[bool] = False
    """Whether its output can be computed again from its input and its current state."""
    calls_others: ClassVar[bool] = False
    """Whether its output depends on others' answers. A step of its stage may wait for them, and never runs again once it has
    committed."""
    passes_time: ClassVar[bool] = True
    """Whether its output has a watermark if its inputs have one."""
    table_ports: ClassVar[frozenset[int]] = frozenset()
    """The inputs where only the last row of each key counts."""
    indexed: ClassVar[bool] = False
    """Whether its tables have many rows for each key. (`falkirk.state.indexed`)"""
    ordered: ClassVar[bool] = False
    """Whether its tables have many rows for each key, each under the key and bytes that put the rows in order."""
    divides: ClassVar[bool] = True
    """Whether the state of its tasks can be divided among another number of tasks."""
    main_table: ClassVar[str] = "state"
    """Its default table, for users who name none."""

    id: str
    line: str
    """`file:line` of the user's call."""
    inputs: tuple[Operator, ...]
    schema: pl.Schema
    """The columns of its output."""
    changes: bool = False
    """Whether it can retract rows. False: its output is append-only, and has no weights."""
    unique: frozenset[str] | None = None
    """Columns that identify the rows of a grouped result; None if they are not known."""
    partitioned: Key | None = None
    """The key that decides which task has a row: all rows of one key are in one task. None if it is not known."""
    root: str
    """Operators with the same root are partitioned in the same way. Between operators with two roots there is an edge."""
    regime: Regime
    time: str | None = None
    """The column with its rows' event time: a datetime, or an integer of milliseconds since 1970."""
    on_error: OnError | None = None
    """The user's handling of failures here, if there is one."""
    earlier: tuple[Earlier, ...] = ()
    """The operator in earlier versions, oldest first. It continues with their state."""

    def __repr__(self) -> str:
        return f"<{self.kind} {self.id!r}>"

    @property
    def where(self) -> str:
        """For errors."""
        return f"{self.kind} {self.id!r} ({self.line})"

    @property
    def batch(self) -> bool:
        """Whether it runs in epochs and not in steps."""
        return self.regime.recovery.in_epochs

    @property
    def streams(self) -> Sequence[Operator]:
        """Its inputs without tables."""
        ports = [p for p in range(len(self.inputs)) if p not in self.table_ports and self.looks_up(p) is None]
        return [self.inputs[port] for port in ports]

    @property
    def watermarked(self) -> bool:
        """Whether its output has a watermark: a time before which no more rows come."""
        return self.passes_time and bool(self.inputs) and all(before.watermarked for before in self.streams)

    @property
    def settled(self) -> bool:
        """Whether no row of a time before its watermark comes or is taken back."""
        steady = not self.changes or (self.row_wise and all(before.settled for before in self.inputs))
        return self.watermarked and self.time is not None and steady

    @property
    def completes(self) -> bool:
        """Whether its results leave its state when the watermark is past them."""
        return False

    @property
    def compared(self) -> bool:
        """Whether what a rebuild changes in its results can be told: all that can still change are in its state.
        (`ResultRunner`)"""
        return self.keeps_result

    @property
    def forgets(self) -> bool:
        """Whether rows leave its state when the watermark has passed them, and none is taken back after that."""
        return False

    @property
    def asks_time(self) -> bool:
        """Whether it uses the watermark of its inputs, which then travels over the edges before it."""
        return False

    @property
    def remembered(self) -> int | None:
        """For how many milliseconds a row counts after its time: when the watermark is so far past it, nothing in the state
        depends on it. None: for ever."""
        return None if self.stateful else 0

    @property
    def state_columns(self) -> Sequence[str]:
        """The columns of its first input that are the key of its state."""
        return ()

    def weighted(self, task: TaskContext) -> bool:
        """Whether the rows of this input have weights."""
        return not task.batch and any(before.changes for before in self.inputs)

    @property
    def most_rows(self) -> int | None:
        """How many rows a step should give it at most; None: any number."""
        return None

    # -- what the planner asks -----------------------------------------------------------------------------------------

    def keys(self, port: int) -> Key | None:
        """The key that places rows of this input in tasks; None: the task with the sender's number."""
        return self.partitioned

    def reads(self, port: int, needed: Set[str]) -> Set[str]:
        """The columns of this input that it reads or passes on, if its readers need the columns `needed`."""
        return set(self.inputs[port].schema)

    def constant(self, column: str) -> bool:
        """Whether a column of its output is known to be the same in all rows."""
        return False

    def looks_up(self, port: int) -> Set[str] | None:
        """The columns that it looks up in a broadcast table; None: this input is a stream of rows."""
        return None

    @property
    def words(self) -> str:
        """A description in one line."""
        return f"{self.kind} {self.id}"

    @property
    def notes(self) -> Sequence[str]:
        """What people who read a plan should know about it, one line each."""
        return ()

    @property
    def exact_words(self) -> str:
        """Details that change the result and are not in `words`, because nobody wants to read them."""
        return self.state_words()

    def described(self, *, exactly: bool = False) -> str:
        """A description for people who read a plan; `exactly`: with all details, for fingerprints."""
        words = self.words
        if self.on_error is not None:
            words += f"; what fails: {self.on_error!r}" if exactly else f"; what fails {self.on_error.words}"
        return f"{words} ({self.exact_words})" if exactly else words

    # -- what runs -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def runner(self, task: TaskContext) -> Runner:
        """The operator's runner in one task."""

    def exchange(self) -> Exchange | None:
        """Its exchange in a batch; None: it is row-wise, and runs as in a step."""
        return None

    # -- what upgrades ask ---------------------------------------------------------------------------------------------

    def state_words(self) -> str:
        """Its state in one line. This must not change while the state is kept."""
        return ""

    def tables(self) -> Sequence[str]:
        """The names of its tables."""
        return [*self.table_schemas()]

    def table_schemas(self) -> Mapping[str, pl.Schema]:
        """The columns of its tables that people may read."""
        return {}

    def state_keys(self, table: str) -> pl.Schema:
        """The columns of the key of one of its tables."""
        return pl.Schema({column: self.inputs[0].schema[column] for column in self.state_columns})

    def asked_by(self, table: str) -> Sequence[str]:
        """The columns of the key of one of its tables, in the order in which people give them."""
        return [*self.state_keys(table)]

    def scales(self) -> Mapping[str, int]:
        """The parts of its aggregates that hold the integers behind decimals, by their columns, and how many digits of each
        are after the point."""
        return {}

    def task_tables(self) -> Mapping[str, TaskTable]:
        """Its tables whose entries are under the first shard of their task. Those of all other tables are under the shard of
        their key."""
        return {}

    def placed_by(self, table: str) -> Key | None:
        """The key whose hash gives the shard of a row of one of its tables, and its task; None: the row's own key does not
        tell, and whoever looks for it must look everywhere."""
        return None

    def readable(self, table: str, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows of one of its tables, keys included, with the values that its output has. Raises UserCodeError."""
        return rows

    def rebuilt_from(self) -> Sequence[Operator]:
        """The inputs that determine its state."""
        return self.inputs

    def rerun_from(self) -> Sequence[Operator]:
        """The inputs that determine its output, given its current state."""
        return self.inputs

    def keyed_as(self, was: str) -> bool:
        """Whether an earlier version with these `state_words` has its rows under the same keys."""
        return was.partition(": ")[2] == self.state_words().partition(": ")[2]

    def was(self, one: From, where: str) -> Operator:
        """The operator in an earlier version. Raises DefinitionError."""
        raise NotImplementedError

    def check_earlier(self, was: Any, by: Mapping[str, Function], where: str) -> None:  # noqa: B027
        """Check that state of the version `was` leads to this one. Raises DefinitionError."""

    def carries(self, was: Any, table: str) -> bool:
        """Whether a table of the version before continues as the same table in this version."""
        return table in self.tables()

    def change(self, was: Any, function: Function | None, table: str) -> Change | None:
        """The conversion of a table of the version before; None: its rows do not change."""
        return None
