"""first and last: the value of the row that comes first, or last, in the order of another column.

    first   of the rows with the least `by`, the least value         null values are the least
    last    of the rows with the greatest `by`, the greatest value

Rows whose `by` is null or NaN are left out. Ties are decided by the value, so that the division does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from falkirk.state.codec import check_key_type
from falkirk.stream.aggregates.arguments import Argument, checked_argument, in_state, of_state, one_zero, physical
from falkirk.stream.aggregates.bound import AggregateLike, Bound, Context, new, old
from falkirk.stream.aggregates.values import BoundBest
from falkirk.stream.definition.expressions import IntoExpr


@dataclass(frozen=True, slots=True)
class Ordered(AggregateLike):
    """first or last of one column, by another."""

    kind: str
    of: IntoExpr
    by: IntoExpr

    def bind(self, context: Context) -> Bound:
        x, by = (checked_argument(self.kind, of, context) for of in (self.of, self.by))
        for argument in (x, by):
            check_key_type(physical(argument.dtype), where=f"{argument.column!r} of {self.kind} in {context.where}")
        return BoundOrdered(context, self.kind, x, by)


class BoundOrdered(BoundBest):
    part_of: ClassVar[Mapping[str, str]] = {"by": "by", "x": "x"}

    def __init__(self, context: Context, kind: str, x: Argument, by: Argument) -> None:
        super().__init__(context, arguments={"x": x.expr, "by": by.expr}, words=f"{kind} of {x.dtype} by {by.dtype}")
        self.descending, self.dtype, self.by = kind == "last", x.dtype, by.dtype

    @property
    def returns(self) -> pl.DataType:
        return self.dtype

    @property
    def parts(self) -> Mapping[str, pl.DataType]:
        return {"by": physical(self.by), "x": physical(self.dtype)}

    def value(self) -> Sequence[pl.Expr]:
        by = self.argument("by")
        return [by.fill_nan(None) if self.by.is_float() else by, self.argument("x")]

    def argument(self, name: str = "x") -> pl.Expr:
        dtype = self.by if name == "by" else self.dtype
        return one_zero(in_state(super().argument(name), dtype), dtype)

    @property
    def scales(self) -> Mapping[str, int]:
        return {part: t.scale for part, t in (("by", self.by), ("x", self.dtype)) if isinstance(t, pl.Decimal)}

    def partial(self, weight: pl.Expr | None) -> Mapping[str, pl.Expr]:
        if weight is not None:
            return {}
        by, x = self.value()
        in_order = x.filter(by.is_not_null()).sort_by(by.filter(by.is_not_null()), x.filter(by.is_not_null()))
        if self.descending:
            return {"by": by.max(), "x": in_order.last()}
        return {"by": by.min(), "x": in_order.first()}

    def merge(self, frame: pl.DataFrame) -> Mapping[str, pl.Expr]:
        came = {part: pl.col(new(self.name, part)) for part in self.parts}
        if self.retract:
            return came
        (by, was_by), (x, was_x) = ((came[part], self.state(part)) for part in ("by", "x"))
        # A null is less than any value.
        if self.descending:
            sooner, tie = by > was_by, (x > was_x).fill_null(was_x.is_null())
        else:
            sooner, tie = by < was_by, (x < was_x).fill_null(x.is_null())
        better = was_by.is_null() | sooner.fill_null(False) | ((by == was_by).fill_null(False) & tie)
        return {part: pl.when(better).then(came[part]).otherwise(self.state(part)) for part in self.parts}

    def result(self, frame: pl.DataFrame) -> pl.Series:
        return of_state(frame[old(self.name, "x")], self.dtype)


def first(of: IntoExpr, *, by: IntoExpr) -> Ordered:
    """The value of the row with the least `by`: a column or row-wise expression, of its type.

    Rows whose `by` is null or NaN are left out. Among rows with equal `by`, the least value counts. Raises
    DefinitionError in `agg` for a column that has no order.

    >>> import falkirk as fk
    >>> bids = fk.Flow("example").source("bids", key="auction", value=fk.Json({"auction": int, "by": str, "at": int}))
    >>> bids.group_by("auction").agg(opened=fk.first("by", by="at"))
    <Stream of group_by 'by.auction': auction Int64, opened String>
    """
    return Ordered("first", of, by)


def last(of: IntoExpr, *, by: IntoExpr) -> Ordered:
    """The value of the row with the greatest `by`: a column or row-wise expression, of its type.

    Rows whose `by` is null or NaN are left out. Among rows with equal `by`, the greatest value counts. Raises
    DefinitionError in `agg` for a column that has no order.

    >>> import falkirk as fk
    >>> bids = fk.Flow("example").source("bids", key="auction", value=fk.Json({"auction": int, "by": str, "at": int}))
    >>> bids.group_by("auction").agg(leads=fk.last("by", by="at"))
    <Stream of group_by 'by.auction': auction Int64, leads String>
    """
    return Ordered("last", of, by)
