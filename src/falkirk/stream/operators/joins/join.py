"""`stream.join(other)`, incrementally: state has the rows of both sides, by join key.

    A' = A + ΔA        B' = B + ΔB        [B = 0]: 1 for rows whose key has no row in B, else 0

    inner   Δ(A ⋈ B) = ΔA ⋈ B  +  A' ⋈ ΔB                                    weights are multiplied
    anti    Δ(A ▷ B) = ΔA · [B = 0]  +  A' · ([B' = 0] − [B = 0])             rows that find nothing
    semi    Δ(A ⋉ B) = ΔA · [B > 0]  +  A' · ([B' > 0] − [B > 0])             rows that find something
    left    Δ(A ⋈ B) + Δ(A ▷ B)             the second with nulls for the columns of B; right and full likewise
    right   Δ(A ⋈ B) + Δ(B ▷ A)             Δ(B ▷ A) = ΔB · [A' = 0] + B · ([A' = 0] − [A = 0])
    full    Δ(A ⋈ B) + Δ(A ▷ B) + Δ(B ▷ A)

A null key equals nothing, so its rows are in no index. The cost of a step follows its changes and its output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import polars as pl

from falkirk.stream.dataflow.exchange import Exchange
from falkirk.stream.dataflow.operator import Operator, Runner, TaskContext
from falkirk.stream.definition.expressions import words
from falkirk.stream.formats import Key
from falkirk.stream.operators.joins.join_batch import JoinExchange
from falkirk.stream.operators.joins.join_side import Side
from falkirk.stream.operators.joins.join_step import LEFT, RIGHT, JoinRunner

How = Literal["inner", "left", "right", "full", "semi", "anti"]


class Out(NamedTuple):
    """A column of the result: the left side's, or the right side's; or the left side's where there is a left row, else the
    right side's."""

    name: str
    left: str | None
    right: str | None


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Join(Operator):
    """Rows of two inputs with equal keys."""

    kind: ClassVar[str] = "join"
    stateful: ClassVar[bool] = True
    main_table: ClassVar[str] = LEFT
    indexed: ClassVar[bool] = True
    passes_time: ClassVar[bool] = False  # A row of any time can still find a partner.
    how: How
    sides: tuple[Side, Side]
    columns: tuple[Out, ...]
    version: int

    @property
    def pairs(self) -> bool:
        """Whether rows of both sides are in its output."""
        return self.how not in ("semi", "anti")

    def keys(self, port: int) -> Key | None:
        return self.sides[port].key

    def reads(self, port: int, needed: Set[str]) -> Set[str]:
        return set(self.sides[port].kept)

    @property
    def words(self) -> str:
        left, right = (", ".join(side.on) for side in self.sides)
        on = left if left == right else f"{left} = {right}"
        return f"{self.how} join {self.id}: {' with '.join(i.id for i in self.inputs)} on {on}"

    @property
    def notes(self) -> Sequence[str]:
        kept = "all rows of both sides" if self.pairs else "all rows of the left side, and all keys of the right side"
        return (f"keeps {kept}", *([f"grows without end: {self.bounded_by}"] if self.growing else []))

    @property
    def growing(self) -> str:
        """What it keeps of its append-only inputs, in words: rows that never leave its state; "" if there are none. The rows
        of other inputs can be taken back, so there are as many as their results have."""
        names = [] if self.batch else [before.id for before in self.inputs if not before.changes]
        return f"every row of {' and '.join(names)} for ever" if names else ""

    @property
    def bounded_by(self) -> str:
        """What would bound its state."""
        return "join within= a span of event time, or join groups or the latest row of each key"

    def state_words(self) -> str:
        left, right = (f"{words(side.kept)} by {', '.join(side.on)}" for side in self.sides)
        return f"{self.id} v{self.version}: {self.how}, {left}; {right} (placed by {self.sides[0].key!r})"

    def table_schemas(self) -> Mapping[str, pl.Schema]:
        return {LEFT: self.sides[0].kept, RIGHT: self.sides[1].kept}

    def state_keys(self, table: str) -> pl.Schema:
        side = self.sides[(LEFT, RIGHT).index(table)]
        return pl.Schema({c: side.kept[c] for c in side.on})

    def placed_by(self, table: str) -> Key | None:
        return self.sides[(LEFT, RIGHT).index(table)].key

    def runner(self, task: TaskContext) -> Runner:
        return JoinRunner(self, task)

    def exchange(self) -> Exchange:
        return JoinExchange(self)
