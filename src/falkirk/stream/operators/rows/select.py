"""New columns only, or beside the old; and the same columns, with a promise about them."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import ClassVar

import narwhals as nw

from falkirk.stream.dataflow.batch import extended, selected
from falkirk.stream.dataflow.operator import Operator, RowWise, Runner, TaskContext
from falkirk.stream.definition.expressions import columns_read, constant_of, text
from falkirk.stream.definition.translation import native
from falkirk.stream.operators.rows.expressing import columns


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Expressions(Operator):
    """New columns, each by an expression."""

    row_wise: ClassVar[bool] = True
    runs_in_gateways: ClassVar[bool] = True
    can_fail: ClassVar[bool] = True
    exprs: tuple[nw.Expr, ...]

    @property
    def words(self) -> str:
        return f"{self.kind}: {', '.join(map(text, self.exprs))}"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Select(Expressions):
    """New columns only."""

    kind: ClassVar[str] = "select"

    def reads(self, port: int, needed: Set[str]) -> Set[str]:
        return columns_read(self.exprs, self.inputs[port].schema)

    def constant(self, column: str) -> bool:
        before = self.inputs[0]
        found = constant_of(self.exprs, column, before.schema)
        return before.constant(found) if isinstance(found, str) else bool(found)

    def runner(self, task: TaskContext) -> Runner:
        exprs = native(self.exprs, self.inputs[0].schema)
        return RowWise(columns(self, lambda rows: selected(rows, exprs)), weighted=self.weighted(task))


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class WithColumns(Expressions):
    """New columns beside the old."""

    kind: ClassVar[str] = "with_columns"

    def reads(self, port: int, needed: Set[str]) -> Set[str]:
        return needed | columns_read(self.exprs, self.inputs[port].schema)

    def constant(self, column: str) -> bool:
        before = self.inputs[0]
        found = constant_of(self.exprs, column, before.schema)
        found = column if found is None else found
        return before.constant(found) if isinstance(found, str) else bool(found)

    def runner(self, task: TaskContext) -> Runner:
        exprs = native(self.exprs, self.inputs[0].schema)
        return RowWise(columns(self, lambda rows: extended(rows, exprs)), weighted=self.weighted(task))


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class AssumeUnique(Select):
    """The same rows, of which the user says which columns identify them."""

    kind: ClassVar[str] = "assume_unique"

    @property
    def words(self) -> str:
        return f"{self.kind}: {', '.join(sorted(self.unique or ()))}"
