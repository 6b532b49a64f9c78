"""Aggregates that need every value of a group: an ordered table counts each value.

    count'[g, v] = count[g, v] + Σ weights of the rows of g with value v
    state'[g]    = merge(state[g], of_values(the values whose counts changed))

The table is read for the values that a step brings. Beyond them it is read only where the best value of a group is gone, and
then for one value.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import ClassVar

import narwhals as nw
import polars as pl

from falkirk.state.cells import as_decimal
from falkirk.stream.aggregates.arguments import one_zero
from falkirk.stream.aggregates.bound import Bound, Context, new, old


@dataclass(slots=True)
class Counted:
    """The values that the rows of a step bring or take back."""

    group: pl.Series
    """The number of each value's group."""
    values: pl.DataFrame
    """The columns of the values, as `OfValues.valued` names them."""
    order: Sequence[bytes]
    """Bytes of each value. The least bytes are the best value."""
    before: pl.Series
    """How many rows had the value before the step."""
    after: pl.Series
    """How many rows have it now."""
    order_of: Callable[[pl.DataFrame], list[bytes]]
    """The bytes of other values, given in the same columns."""
    first: Callable[[Sequence[int]], pl.DataFrame]
    """The best values of these groups, from the table: one row each, null if there is none."""


class OfValues(Bound):
    """An aggregate that may need all values of a group."""

    @property
    def keeps_values(self) -> bool:
        """Whether it needs the table: to go back to the next best value, if the best one is taken back."""
        return self.retract

    descending = False
    """Whether the greatest value is the best one."""
    restored: bool = True
    """Whether values are read back from the table, and not only counted."""

    @property
    @abstractmethod
    def valued(self) -> Mapping[str, pl.DataType]:
        """The columns of a value. A row whose first column is null has no value."""

    @abstractmethod
    def value(self) -> Sequence[pl.Expr]:
        """These columns, of a row."""

    @abstractmethod
    def of_values(self, counted: Counted, before: pl.DataFrame) -> Mapping[str, pl.Series]:
        """By part: the partial of each group, from its changed values and its state before."""


class BoundBest(OfValues):
    """An aggregate that keeps the best value of a group. Its parts are the columns of a value."""

    part_of: ClassVar[Mapping[str, str]]
    """By argument: the part that has its value."""

    def of_parts(self) -> BoundBest:
        """The same aggregate of best values: its arguments are columns named as partials."""
        bound = copy(self)
        bound._columns = {argument: new(self.name, part) for argument, part in self.part_of.items()}
        return bound

    @property
    def valued(self) -> Mapping[str, pl.DataType]:
        return self.parts

    def of_values(self, counted: Counted, before: pl.DataFrame) -> Mapping[str, pl.Series]:
        """The best value of each group.

        The best value before remains, unless its last row was taken back. Then the best added value takes its place, if it
        is better than all remaining values can be. Only otherwise this reads the table.
        """
        was = before.select(self.state(part).alias(part) for part in self.parts)
        had = was.to_series(0).is_not_null().to_list()
        was_at = counted.order_of(was)
        best = list(range(len(had)))  # a row of `was`, then of the values, then of what the table gives
        gone: set[int] = set()
        came: dict[int, int] = {}
        for i, (g, order, rows) in enumerate(zip(counted.group, counted.order, counted.after, strict=True)):
            if not rows:
                gone.update([g] if had[g] and order == was_at[g] else [])
            elif g not in came or order < counted.order[came[g]]:
                came[g] = i
        for g, i in came.items():
            if not had[g] or counted.order[i] < was_at[g]:
                best[g] = len(had) + i
                gone.discard(g)
        for place, g in enumerate(lost := sorted(gone)):
            best[g] = len(had) + len(counted.values) + place
        frames = [was, counted.values, *([counted.first(lost)] if lost else [])]
        return pl.concat(frames)[best].to_dict()


class BoundExtreme(BoundBest):
    """min or max."""

    part_of: ClassVar[Mapping[str, str]] = {"x": "best"}

    def __init__(
        self, context: Context, dtype: pl.DataType, *, greatest: bool, arguments: Mapping[str, nw.Expr], words: str
    ) -> None:
        super().__init__(context, arguments=arguments, words=words)
        self.descending, self.dtype = greatest, dtype

    @property
    def returns(self) -> pl.DataType:
        return self.dtype

    @property
    def parts(self) -> Mapping[str, pl.DataType]:
        return {"best": self.dtype}

    def value(self) -> Sequence[pl.Expr]:
        return [self.argument()]

    def argument(self, name: str = "x") -> pl.Expr:
        return one_zero(super().argument(name), self.dtype)

    def partial(self, weight: pl.Expr | None) -> Mapping[str, pl.Expr]:
        if weight is not None:
            return {}
        return {"best": self.argument().max() if self.descending else self.argument().min()}

    def merge(self, frame: pl.DataFrame) -> Mapping[str, pl.Expr]:
        partial = pl.col(new(self.name, "best"))
        # With weights, the partial comes from the ordered table, which knows the best before and what became of it.
        if self.retract:
            return {"best": partial}
        columns = (partial, self.state("best"))
        return {"best": pl.max_horizontal(*columns) if self.descending else pl.min_horizontal(*columns)}

    def result(self, frame: pl.DataFrame) -> pl.Series:
        return frame[old(self.name, "best")]


class DecimalExtreme(BoundExtreme):
    """min or max of decimals: of the integers behind them."""

    def __init__(
        self, context: Context, dtype: pl.Decimal, *, greatest: bool, arguments: Mapping[str, nw.Expr], words: str
    ) -> None:
        super().__init__(context, pl.Int128(), greatest=greatest, arguments=arguments, words=words)
        self.shown = dtype

    @property
    def returns(self) -> pl.DataType:
        return self.shown

    @property
    def scales(self) -> Mapping[str, int]:
        return {"best": self.shown.scale}

    def argument(self, name: str = "x") -> pl.Expr:
        return super().argument(name).to_physical()

    def result(self, frame: pl.DataFrame) -> pl.Series:
        return as_decimal(super().result(frame), self.shown.scale, self.shown.precision)
