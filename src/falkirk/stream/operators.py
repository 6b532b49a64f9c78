"""The logical graph of a flow: what the user asked for, checked, with nothing of how it runs.

    Source ─▶ Filter ─▶ Group ─▶ Sink        each operator knows its inputs; a flow knows its sinks

Operators are values compared by identity: the same object met twice is the same edge of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import narwhals as nw
import polars as pl

from falkirk.errors import DefinitionError
from falkirk.stream.aggregates import Bound
from falkirk.stream.formats import Format, Key
from falkirk.stream.on_error import OnError
from falkirk.stream.pattern import Topics, in_words
from falkirk.stream.process import Process
from falkirk.stream.regimes import Batch, Regime

RESERVED = "__falkirk"
"""Columns whose names begin so are Falkirk's own."""


@dataclass(frozen=True, eq=False, slots=True)
class Earlier:
    """An operator as it was in an earlier version."""

    operator: Operator
    by: Mapping[str, Callable[[dict[str, Any]], Mapping[str, Any]]]
    """By table: from a row of it to one of the version after it."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Operator:
    """One operator."""

    kind: ClassVar[str]
    stateful: ClassVar[bool] = False

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
        return isinstance(self.regime, Batch)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Source(Operator):
    """The records of a topic, or of several, as rows."""

    kind: ClassVar[str] = "source"
    topics: Topics
    key: Key | None
    value: Format
    start: str | int | Mapping[int, int]
    metadata: Mapping[str, str]
    """What of a record's metadata becomes a column: name of the column → `key`, `headers`, `timestamp`…"""
    checked: bool
    """Must records have the key that their column spells? Not if they are brought to their key's task anyway."""
    time: str | None = None
    """The column of the value that says when it happened; None: the record's timestamp does."""

    @property
    def topic(self) -> str:
        """Its name, where it is one alone; else words for people."""
        return in_words(self.topics)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class TableSource(Source):
    """A topic of which the last record of each key counts: a row, or a tombstone, which takes the row away."""

    kind: ClassVar[str] = "table"
    key: Key
    broadcast: bool
    """Is all of it at hand in every task, wherever the topic's keys lie?"""

    @property
    def value_columns(self) -> list[str]:
        """The columns that are read from values; the others are the key's, and read from there."""
        return [c for c in self.schema if c not in self.key.columns]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Filter(Operator):
    """Rows for which every predicate is true."""

    kind: ClassVar[str] = "filter"
    predicates: tuple[nw.Expr, ...]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Select(Operator):
    """New columns only."""

    kind: ClassVar[str] = "select"
    exprs: tuple[nw.Expr, ...]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class WithColumns(Operator):
    """New columns beside the old."""

    kind: ClassVar[str] = "with_columns"
    exprs: tuple[nw.Expr, ...]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Map(Operator):
    """A Python function of each row."""

    kind: ClassVar[str] = "map"
    function: Callable[[dict[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FlatMap(Operator):
    """A Python function of each row that gives any number of rows."""

    kind: ClassVar[str] = "flat_map"
    function: Callable[[dict[str, Any]], Iterable[Mapping[str, Any]]]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class MapBatches(Operator):
    """A Python function of the frame of a step's rows."""

    kind: ClassVar[str] = "map_batches"
    function: Callable[[pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Concat(Operator):
    """The rows of several streams."""

    kind: ClassVar[str] = "concat"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Repartition(Operator):
    """Rows move to the task that owns their key."""

    kind: ClassVar[str] = "repartition"
    key: Key


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class WithRegime(Operator):
    """From here on, another regime."""

    kind: ClassVar[str] = "with_regime"
    regime: Regime


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Group(Operator):
    """One row for each group, kept up to date."""

    kind: ClassVar[str] = "group_by"
    stateful: ClassVar[bool] = True
    columns: tuple[str, ...]
    aggregates: Mapping[str, Bound]
    version: int


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Processing(Operator):
    """A Python object that sees the rows of a key one after another, with state and timers."""

    kind: ClassVar[str] = "process"
    stateful: ClassVar[bool] = True
    columns: tuple[str, ...]
    key: Key
    """Its tasks are cut by it; what comes out may have other columns."""
    process: Process
    tables: Mapping[str, pl.Schema]
    version: int


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Lookup(Operator):
    """Each row with the table's row of its key, as of the step: inputs are the stream and the table."""

    kind: ClassVar[str] = "lookup"
    stateful: ClassVar[bool] = True
    on: Key
    """Of the stream."""
    key: Key
    """Of the table: equal values are written as `on` writes them."""
    columns: Mapping[str, str]
    """The table's columns that are added, and what they are called then."""
    how: Literal["left", "inner"]
    version: int


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SharedLookup(Lookup):
    """A lookup in a broadcast table, which is no state of the task's."""

    stateful: ClassVar[bool] = False


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Errors(Operator):
    """What failed in the operator that is its input."""

    kind: ClassVar[str] = "errors"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Route(Operator):
    """Rows that say to which of a sink's topics they go. For each topic a filter and an ordinary sink come after it."""

    kind: ClassVar[str] = "sink"
    by: str
    topics: tuple[str, ...]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Sink(Operator):
    """Rows as records of a topic."""

    kind: ClassVar[str] = "sink"
    topic: str
    key: Key | None
    value: Format
    feedback: bool = False
    """May a source of the flow read the topic?"""


_O = TypeVar("_O", bound=Operator)


class Graph:
    """All operators of a flow in the order in which they were defined: inputs come before those who read them."""

    def __init__(
        self, name: str, line: str, regime: Regime, dead_letters: str | None, on_error: OnError | None
    ) -> None:
        self.name, self.line, self.regime = name, line, regime
        self.dead_letters = dead_letters
        """The topic that the user chose; None: one named as the app's other topics are."""
        self.on_error = on_error
        """What becomes of what fails, where an operator does not say so."""
        self.operators: list[Operator] = []
        self._names: dict[tuple[str, str], Operator] = {}

    def add(self, operator: _O, *, exchange: bool = False) -> _O:
        """Add an operator. Raises DefinitionError if its id is taken: sources, sinks, and what has state or a topic of
        its own are known by their ids from one version of the code to the next."""
        if exchange or operator.stateful or isinstance(operator, Source | Sink):
            space = "source" if isinstance(operator, Source) else "sink" if isinstance(operator, Sink) else "operator"
            other = self._names.setdefault((space, operator.id), operator)
            if other is not operator:
                given = "its name" if space != "operator" else "id="
                raise DefinitionError(
                    f"two are called {operator.id!r}, and state and topics are found by that name",
                    where=f"{other.where} and {operator.where}",
                    hint=f"give one of them another: {given}",
                )
        if ours := next((c for c in operator.schema if c.startswith(RESERVED)), None):
            raise DefinitionError(
                f"column {ours!r} is named as Falkirk's own are", where=operator.where, hint="rename it"
            )
        self.operators.append(operator)
        return operator

    def upstream(self, ends: Iterable[Operator]) -> list[Operator]:
        """These operators and all that they depend on, in the order of definition."""
        found: set[Operator] = set()
        waiting = list(ends)
        while waiting:
            operator = waiting.pop()
            if operator not in found:
                found.add(operator)
                waiting += operator.inputs
        return [o for o in self.operators if o in found]

    def consumers(self, operator: Operator) -> Sequence[Operator]:
        """The operators that read this one, in the order of definition."""
        return [o for o in self.operators if operator in o.inputs]


def connected(operators: Sequence[Operator], together: Callable[[Operator, Operator], bool]) -> list[list[Operator]]:
    """Operators, given in the order of definition, in groups that keep it: an operator is in one with an input of its that
    is `together` with it."""
    group_of: dict[Operator, list[Operator]] = {o: [o] for o in operators}
    for after in operators:
        for before in after.inputs:
            if together(before, after) and (left := group_of[before]) is not (right := group_of[after]):
                left += right
                group_of.update(dict.fromkeys(right, left))
    order = {operator: i for i, operator in enumerate(operators)}
    return [sorted(group, key=order.__getitem__) for group in {id(g): g for g in group_of.values()}.values()]
