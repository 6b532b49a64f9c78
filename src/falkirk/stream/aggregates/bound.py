"""An aggregate, bound to one output column of one grouping.

    state' = merge(state, partial(rows))         one row of state a group, one column a part
    result = f(state)

    merge(merge(s, partial(a)), partial(b)) = merge(s, partial(a ++ b))      so the division does not matter
    united(merge(s, partial(a)), merge(t, partial(b))) = merge(united(s, t), partial(a ++ b))      for groups that become one

Where the input is not append-only, rows have weights of +1 or −1, and partial(−rows) takes back partial(rows).
Everything is a column operation: one pass over the rows, one over the groups.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import narwhals as nw
import polars as pl

from falkirk.durations import DurationLike
from falkirk.stream.aggregates.windowed import OverColumn, Window, frozen, no_operand
from falkirk.stream.definition.expressions import bare_column

NEVER_ADDED = (
    "a function of a grouped result must give the same rows for the same row, whenever it is called; and a source of changes "
    "with weights or envelopes must have added the row. If the flow before it was changed, undo that; or raise version= of "
    "the operators with state from there on, and rebuild them"
)
"""The hint for rows that are retracted, but were never added."""


@dataclass(frozen=True, slots=True)
class Context:
    """What an aggregate learns when the flow is built."""

    name: str
    """Its output column."""
    schema: pl.Schema
    """Of the rows that it will see."""
    retract: bool
    """May rows be taken back?"""
    where: str


class GroupError(Exception):
    """An aggregate fails on one group: which, what is wrong, and what to do."""

    def __init__(self, row: int, what: str, hint: str) -> None:
        super().__init__(what)
        self.row, self.what, self.hint = row, what, hint


class AggregateLike(Protocol):
    """What `agg` accepts: `fk.len()` and its like, and objects of subclasses of `fk.Aggregate`."""

    def bind(self, context: Context) -> Bound:
        """Check columns and types. Raises DefinitionError."""
        ...

    if not TYPE_CHECKING:  # to type checkers it would say that every name exists

        def __getattr__(self, name: str) -> object:
            words = ': its name is given in agg: .agg(total=fk.sum("price"))' if name in ("alias", "name") else ""
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{words}")

        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = no_operand
        __floordiv__ = __mod__ = __lt__ = __le__ = __gt__ = __ge__ = no_operand

    def over(
        self,
        *columns: str | Sequence[str],
        order_by: str | Sequence[str] | None = None,
        descending: bool | Sequence[bool] = False,
        rows: int | tuple[int, int] | None = None,
        range: DurationLike | int | tuple[DurationLike | int, DurationLike | int] | None = None,  # noqa: A002
        id: str | None = None,  # noqa: A002
        version: int = 1,
    ) -> OverColumn:
        """This function as a column of `with_columns`: of the rows of the same key, as `stream.over` has it. The options
        are the same.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> bids = flow.source("bids", value=fk.Json({"auction": int, "price": int}))
        >>> shares = bids.with_columns(total=fk.sum("price").over("auction"))
        >>> shares.sink("shares", key=["auction", "price"], value=fk.Json())
        >>> rows = [{"auction": 7, "price": 90}, {"auction": 7, "price": 110}]
        >>> [row["total"] for row in fk.testing.run(flow, {"bids": rows}).sinks["shares"].table.values()]
        [200, 200]
        """
        keys = [name for some in columns for name in ([some] if isinstance(some, str) else some)]
        window = Window(tuple(keys), frozen(order_by), frozen(descending), frozen(rows), frozen(range), id, version)
        return OverColumn(self, window)


class Bound(ABC):
    """See the module. `new` and `old` name the columns of partials and states."""

    folds: ClassVar[bool] = True
    """Where rows are only added, is a state a partial too? merge(a, merge(b, partial(c))) = merge(merge(a, b), partial(c)),
    with the columns of one named as those of the other. Then a batch sends partials to where groups are brought together;
    else it sends rows."""

    def __init__(self, context: Context, *, arguments: Mapping[str, nw.Expr], words: str) -> None:
        self.name, self.retract = context.name, context.retract
        self._columns = {a: bare_column(e) or f"__falkirk.{self.name}.{a}" for a, e in arguments.items()}
        self.arguments = {self._columns[a]: e for a, e in arguments.items()}
        """What is aggregated, by the name of its column."""
        self.computed = {c: e for c, e in self.arguments.items() if bare_column(e) is None}
        """Those of them that have to be computed before rows are grouped."""
        self.kind, self.words = words.partition(" of ")[0], words
        """For the fingerprint: kind, version and types, but no code."""

    @property
    @abstractmethod
    def returns(self) -> pl.DataType:
        """The type of the output column."""

    @property
    @abstractmethod
    def parts(self) -> Mapping[str, pl.DataType]:
        """The columns of the state, in an order that is part of the fingerprint."""

    @property
    def scales(self) -> Mapping[str, int]:
        """The parts that hold the integers behind decimals, and how many digits of each are after the point."""
        return {}

    @abstractmethod
    def partial(self, weight: pl.Expr | None) -> Mapping[str, pl.Expr]:
        """By part: what a group's rows come to. `weight` is None where rows are only added."""

    @abstractmethod
    def merge(self, frame: pl.DataFrame) -> Mapping[str, pl.Expr | pl.Series]:
        """By part: the new state, from a frame of partials and old states, null where the group is new. Raises GroupError."""

    @abstractmethod
    def result(self, frame: pl.DataFrame) -> pl.Expr | pl.Series:
        """The output, from a frame of states. Raises GroupError."""

    @property
    def unites(self) -> bool:
        """Whether the states of two groups can become one, without their rows."""
        return True

    def united(self, frame: pl.DataFrame) -> Mapping[str, pl.Expr | pl.Series]:
        """By part: one state, from a frame of the states of two groups. Those of the second are named as partials. No row is
        ever taken back. Raises GroupError."""
        return self.merge(frame)

    def append_only(self) -> Bound:
        """The same aggregate of rows that are never taken back."""
        bound = copy(self)
        bound.retract = False
        return bound

    def in_one_row(self) -> Bound:
        """The same aggregate of rows that are never taken back, with its whole state in the row of its group."""
        return self.append_only()

    def argument(self, name: str = "x") -> pl.Expr:
        """An argument's column among the rows of a group."""
        return pl.col(self._columns[name])

    def state(self, part: str) -> pl.Expr:
        """A state's column."""
        return pl.col(f"{self.name}.{part}")

    def states(self) -> dict[str, pl.DataType]:
        """The state's columns under their full names."""
        return {f"{self.name}.{part}": dtype for part, dtype in self.parts.items()}


def new(name: str, part: str) -> str:
    """The column of a partial."""
    return f"__falkirk+{name}.{part}"


def old(name: str, part: str) -> str:
    """The column of a state."""
    return f"{name}.{part}"
