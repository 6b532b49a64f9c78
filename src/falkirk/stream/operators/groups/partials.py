"""The first half of an aggregate of a whole stream: each task sends one row a step, whatever number of rows came.

    row  =  for what can be merged:   merge(nothing, partial(rows of the step))
            for a best value:         the task's best value before the step, and after it

A best value (min, max, first, last) of rows that can be taken back needs all values. Each task keeps those of its own rows,
and the second half (`falkirk.stream.operators.groups.total`) chooses among the best values of tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from falkirk.state.codec import decode_values, encode_keys, encode_values
from falkirk.stream.aggregates.bound import Bound, new, old
from falkirk.stream.aggregates.values import BoundBest, OfValues
from falkirk.stream.dataflow.batch import Batch
from falkirk.stream.dataflow.operator import Flowing, Operator, Runner, TaskContext, joined
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.definition.expressions import columns_read, text, words
from falkirk.stream.definition.frames import frame_of
from falkirk.stream.operators.groups.folding import Folding
from falkirk.stream.operators.groups.group_batch import PartialExchange
from falkirk.stream.operators.groups.group_versions import GROUPS
from falkirk.stream.operators.groups.multiset import Multiset

EVERYTHING = "everything"
"""The column by which all rows are one group. Names of parts contain a dot, so it is none of them."""
KEYED = pl.Schema({EVERYTHING: pl.Boolean()})
BEFORE, AFTER = "before", "after"


def merges(bound: Bound) -> bool:
    """Whether states of several tasks can be merged, also where rows are taken back."""
    return bound.folds and not (isinstance(bound, OfValues) and bound.keeps_values)


def side(of: str, name: str, part: str) -> str:
    """The column of a best value before or after a step."""
    return f"{name}.{part}.{of}"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Partials(Operator):
    """What the rows of each step come to, in each task."""

    kind: ClassVar[str] = "partials"
    bounds: tuple[Bound, ...]

    @property
    def merging(self) -> Sequence[Bound]:
        """The aggregates whose partials are merged."""
        return [b for b in self.bounds if merges(b)]

    @property
    def bests(self) -> Sequence[BoundBest]:
        """The aggregates that keep all values."""
        return [b for b in self.bounds if isinstance(b, BoundBest) and b.keeps_values]

    def reads(self, port: int, needed: Set[str]) -> Set[str]:
        arguments = [e for bound in self.bounds for e in bound.arguments.values()]
        return columns_read(arguments, self.inputs[port].schema)

    @property
    def words(self) -> str:
        return f"partials {self.id}: {', '.join(f'{b.name} = {b.kind}' for b in self.bounds if b.name)}"

    @property
    def exact_words(self) -> str:
        arguments = [f"{b.name}: {', '.join(map(text, b.arguments.values()))}" for b in self.bounds]
        return f"{self.state_words()}, {'; '.join(arguments)}"

    def runner(self, task: TaskContext) -> Runner:
        # In a batch, the exchange of the second half makes the partials.
        return Whole() if task.batch else PartialsRunner(self, task)

    def state_words(self) -> str:
        return ""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class BestPartials(Partials):
    """The same, with state: the values of the aggregates that need all of them."""

    stateful: ClassVar[bool] = True
    divides: ClassVar[bool] = False  # the second half takes back what each task has sent of its own rows
    main_table: ClassVar[str] = GROUPS
    version: int

    @property
    def state_columns(self) -> Sequence[str]:
        return (EVERYTHING,)

    @property
    def state_schema(self) -> pl.Schema:
        """The best values of a task."""
        return pl.Schema({column: dtype for b in self.bests for column, dtype in b.states().items()})

    def state_words(self) -> str:
        kept = "; ".join(f"{b.name} = {b.words} [{words(b.parts)}]" for b in self.bests)
        return f"{self.id} v{self.version}: the best of each task → {kept}"

    def state_keys(self, table: str) -> pl.Schema:
        return KEYED

    def tables(self) -> Sequence[str]:
        return [GROUPS, *(b.name for b in self.bests)]

    def table_schemas(self) -> Mapping[str, pl.Schema]:
        return {GROUPS: self.state_schema}

    def runner(self, task: TaskContext) -> Runner:
        return Whole() if task.batch else BestPartialsRunner(self, task)


class Whole(Runner):
    """Rows as they are, as one group."""

    def step(self, run: StepRun, *inputs: Flowing | None) -> Flowing | None:
        batch = joined(inputs, weighted=False)
        return None if batch is None else Batch(in_one_group(batch.rows), batch.meta)


class PartialsRunner(Runner):
    """The partials of one task."""

    def __init__(self, operator: Partials, task: TaskContext) -> None:
        self.operator, self.retracts = operator, operator.inputs[0].changes
        self.folding = Folding(operator, [EVERYTHING], operator.bounds, weighted=self.retracts)
        self.exchange = PartialExchange(operator, [EVERYTHING], operator.merging, weighted=self.retracts)

    def step(self, run: StepRun, *inputs: Flowing | None) -> Flowing | None:
        batch = joined(inputs, weighted=self.retracts)
        if batch is None:
            return None
        frame = in_one_group(self.folding.arguments(run, batch))
        merged = self.exchange.merged(self.folding.partials(frame)).get_columns()
        states = [series.alias(name) for name, series in zip(self.exchange.types, merged[1:-1], strict=True)]
        rows = pl.DataFrame([merged[0], *states, *self.best(run, frame)])
        return Batch(rows.select(list(self.operator.schema)), merged[-1].to_frame())

    def best(self, run: StepRun, frame: pl.DataFrame) -> Sequence[pl.Series]:
        """The columns of best values."""
        return ()


class BestPartialsRunner(PartialsRunner):
    """The partials of one task, and its best values."""

    def __init__(self, operator: BestPartials, task: TaskContext) -> None:
        super().__init__(operator, task)
        self.schema, self.bests = operator.state_schema, operator.bests
        self.keys = frame_of([{EVERYTHING: True}], KEYED)
        # It belongs to the task: rows stay where they are.
        self.shards = np.array([task.first_shard], np.uint16)
        self.full = encode_keys(task.tables[GROUPS], self.shards, self.keys.get_columns())
        self.multisets = [
            Multiset(b, [EVERYTHING], [EVERYTHING], task.tables[b.name], operator.where, weighted=True)
            for b in self.bests
        ]

    def best(self, run: StepRun, frame: pl.DataFrame) -> Sequence[pl.Series]:
        (found,) = run.state.get(self.full)
        before = frame_of([{}], self.schema) if found is None else decode_values(self.schema, [found])
        came = [c for m in self.multisets for c in m.partials(run.state, frame, self.keys, self.shards, before)]
        names = [(b.name, part) for b in self.bests for part in b.parts]
        by_name = {c.name: c for c in came}
        after = pl.DataFrame([by_name[new(*name)].alias(old(*name)).cast(self.schema[old(*name)]) for name in names])
        run.state.put(self.full, encode_values(self.schema, after))
        return [
            values[old(*name)].alias(side(of, *name))
            for of, values in ((BEFORE, before), (AFTER, after))
            for name in names
        ]


def in_one_group(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame, with the column by which all rows are one group."""
    return frame.with_columns(pl.lit(value=True).alias(EVERYTHING))


def parts_schema(bounds: Sequence[Bound]) -> pl.Schema:
    """The columns of partials."""
    merged = {column: dtype for b in bounds if merges(b) for column, dtype in b.states().items()}
    best = {
        side(of, b.name, part): dtype
        for of in (BEFORE, AFTER)
        for b in bounds
        if not merges(b)
        for part, dtype in b.parts.items()
    }
    return pl.Schema({**KEYED, **merged, **best})
