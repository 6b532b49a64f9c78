"""What the place of a row among those of its key says, for `stream.over(…).agg(…)`.

row_number    1, 2, 3 … in the order
rank          1 + the rows before the first one that is equal in the order
dense_rank    1 + the different values of the order before it
lag, lead     the value of the row that is n rows before, or after
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import polars as pl

from falkirk.errors import DefinitionError
from falkirk.state.codec import check_value_type
from falkirk.stream.aggregates.arguments import checked_argument, in_state, of_state, physical
from falkirk.stream.aggregates.bound import AggregateLike, Bound, Context, old
from falkirk.stream.definition.expressions import IntoExpr

Kind = Literal["row_number", "rank", "dense_rank"]


@dataclass(frozen=True, slots=True)
class Position(AggregateLike):
    """A function of places: it is no aggregate of a group."""

    def bind(self, context: Context) -> Bound:
        raise DefinitionError(
            f"{context.name} is about the order of rows, and a group has none",
            where=context.where,
            hint='stream.over("user", order_by="at").agg(…)',
        )

    def placed(self, context: Context) -> BoundPosition:
        """Check columns and types. Raises DefinitionError."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Rank(Position):
    """A number of the place."""

    kind: Kind

    def placed(self, context: Context) -> BoundPosition:
        return BoundRank(context, arguments={}, words=self.kind)


@dataclass(frozen=True, slots=True)
class Shift(Position):
    """The value of another row."""

    of: IntoExpr
    n: int

    def placed(self, context: Context) -> BoundPosition:
        kind = "lag" if self.n > 0 else "lead"
        if type(self.n) is not int or self.n == 0:
            raise DefinitionError(f"n={self.n!r} is not a number of rows", where=context.where, hint="1 or more")
        x = checked_argument(kind, self.of, context)
        check_value_type(physical(x.dtype), where=f"{x.column!r} of {kind} in {context.where}")
        bound = BoundShift(context, arguments={"x": x.expr}, words=f"{kind} of {x.dtype} by {abs(self.n)}")
        bound.dtype, bound.n = x.dtype, abs(self.n)
        bound.backwards = self.n < 0
        return bound


class BoundPosition(Bound):
    """A function of places, bound to an output column. It is computed from neighbours, and not merged."""

    backwards = False
    """Whether it looks at the rows that come after."""

    def partial(self, weight: pl.Expr | None) -> Mapping[str, pl.Expr]:
        return {}

    def merge(self, frame: pl.DataFrame) -> Mapping[str, pl.Expr]:
        return {}


class BoundRank(BoundPosition):
    """Its parts are all three numbers, because each follows from those of the row before."""

    returns = pl.Int64()
    parts: Mapping[str, pl.DataType] = {"row_number": pl.Int64(), "rank": pl.Int64(), "dense_rank": pl.Int64()}

    def result(self, frame: pl.DataFrame) -> pl.Series:
        return frame[old(self.name, self.words)]


class BoundShift(BoundPosition):
    dtype: pl.DataType
    n: int

    @property
    def returns(self) -> pl.DataType:
        return self.dtype

    @property
    def parts(self) -> Mapping[str, pl.DataType]:
        return {"x": physical(self.dtype)}

    def shifted(self) -> pl.Expr:
        """The argument, as state has it."""
        return in_state(self.argument(), self.dtype)

    def result(self, frame: pl.DataFrame) -> pl.Series:
        return of_state(frame[old(self.name, "x")], self.dtype)


def row_number() -> Position:
    """The number of the row in the order of `over`, from 1: Int64.

    >>> import falkirk as fk
    >>> bids = fk.Flow("example").source("bids", value=fk.Json({"auction": int, "price": int}))
    >>> bids.over("auction", order_by="price").agg(place=fk.row_number())
    <Stream of over 'over.auction': auction Int64, price Int64, place Int64>
    """
    return Rank("row_number")


def rank() -> Position:
    """One more than the rows before those that are equal in the order of `over`: 1, 1, 3, as in SQL. Int64.

    >>> import falkirk as fk
    >>> bids = fk.Flow("example").source("bids", value=fk.Json({"auction": int, "price": int}))
    >>> bids.over("auction", order_by="price", descending=True).agg(rank=fk.rank())
    <Stream of over 'over.auction': auction Int64, price Int64, rank Int64>
    """
    return Rank("rank")


def dense_rank() -> Position:
    """One more than the different values of the order before the row: 1, 1, 2, as in SQL. Int64.

    >>> import falkirk as fk
    >>> bids = fk.Flow("example").source("bids", value=fk.Json({"auction": int, "price": int}))
    >>> bids.over("auction", order_by="price").agg(step=fk.dense_rank())
    <Stream of over 'over.auction': auction Int64, price Int64, step Int64>
    """
    return Rank("dense_rank")


def lag(of: IntoExpr, n: int = 1) -> Position:
    """The value of a column or row-wise expression in the row that is `n` rows before; null if there is none.

    >>> import falkirk as fk
    >>> bids = fk.Flow("example").source("bids", value=fk.Json({"auction": int, "price": int, "at": int}))
    >>> bids.over("auction", order_by="at").agg(before=fk.lag("price"))
    <Stream of over 'over.auction': auction Int64, price Int64, at Int64, before Int64>
    """
    return Shift(of, n)


def lead(of: IntoExpr, n: int = 1) -> Position:
    """The value of a column or row-wise expression in the row that is `n` rows after; null as long as there is none.

    >>> import falkirk as fk
    >>> bids = fk.Flow("example").source("bids", value=fk.Json({"auction": int, "price": int, "at": int}))
    >>> bids.over("auction", order_by="at").agg(then=fk.lead("price"))
    <Stream of over 'over.auction': auction Int64, price Int64, at Int64, then Int64>
    """
    return Shift(of, -n)
