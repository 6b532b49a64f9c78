"""any and all of Booleans, as in Polars: null counts as neither; any of nothing is false, all of nothing is true."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import overload

import narwhals as nw
import polars as pl

from falkirk.errors import DefinitionError
from falkirk.stream.aggregates.arguments import Argument, checked_argument
from falkirk.stream.aggregates.bound import AggregateLike, Bound, Context
from falkirk.stream.aggregates.builtin import add
from falkirk.stream.definition.expressions import IntoExpr
from falkirk.stream.formats.types import type_name


@dataclass(frozen=True, slots=True)
class Flags(AggregateLike):
    """any or all of one column."""

    kind: str
    of: IntoExpr

    def bind(self, context: Context) -> Bound:
        x = checked_argument(self.kind, self.of, context)
        if x.dtype != pl.Boolean():
            raise DefinitionError(
                f"{self.kind} of {x.column!r}, which is {type_name(x.dtype)}, is not defined",
                where=f"{self.kind} in {context.where}",
                hint=f'compare it to something: fk.{self.kind}(fk.col("{x.column}") > 0)',
            )
        return BoundFlags(context, self.kind, x)


class BoundFlags(Bound):
    """Counts what decides: the true values for any, the false values for all."""

    returns = pl.Boolean()
    parts: Mapping[str, pl.DataType] = {"deciding": pl.Int64()}

    def __init__(self, context: Context, kind: str, x: Argument) -> None:
        super().__init__(context, arguments={"x": x.expr}, words=kind)

    def partial(self, weight: pl.Expr | None) -> Mapping[str, pl.Expr]:
        deciding = self.argument() if self.kind == "any" else ~self.argument()
        count = deciding.sum() if weight is None else weight.filter(deciding).sum()
        return {"deciding": count.cast(pl.Int64)}

    def merge(self, frame: pl.DataFrame) -> Mapping[str, pl.Expr]:
        return {"deciding": add(self.name, "deciding")}

    def result(self, frame: pl.DataFrame) -> pl.Expr:
        return self.state("deciding") > 0 if self.kind == "any" else self.state("deciding") == 0


def any_(of: IntoExpr) -> Flags:
    """Whether a Boolean column or row-wise expression is true in any row of a group; null is not true.

    Raises DefinitionError in `agg` for other types.

    >>> import falkirk as fk
    >>> bids = fk.Flow("example").source("bids", key="auction", value=fk.Json({"auction": int, "price": int}))
    >>> bids.group_by("auction").agg(high=fk.any(fk.col("price") > 100))
    <Stream of group_by 'by.auction': auction Int64, high Boolean>
    """
    return Flags("any", of)


@overload
def all_() -> nw.Expr: ...
@overload
def all_(of: IntoExpr) -> Flags: ...
def all_(of: IntoExpr | None = None) -> Flags | nw.Expr:
    """Whether a Boolean column or row-wise expression is false in no row of a group. Without an argument: all columns.

    Raises DefinitionError in `agg` for other types.

    >>> import falkirk as fk
    >>> bids = fk.Flow("example").source("bids", key="auction", value=fk.Json({"auction": int, "price": int}))
    >>> bids.group_by("auction").agg(high=fk.all(fk.col("price") > 100))
    <Stream of group_by 'by.auction': auction Int64, high Boolean>
    >>> bids.select(fk.all())
    <Stream of select 'select': auction Int64, price Int64>
    """
    return nw.all() if of is None else Flags("all", of)
