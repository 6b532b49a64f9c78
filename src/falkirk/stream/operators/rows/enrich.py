"""Columns that others answer: a user's async function of each row, which may call a service.

    output(row) = row ⊕ answer(row)        of the attempt that was the last one of the step that committed

An answer is no function of its row, so nothing may compute it again. It is recorded in what the step writes, in one
transaction with the step: its sinks' records, and edges to later stages. Recovery must then run no step of this stage again:

    rows ──▶ calls ──┬──▶ row-wise operators ──▶ sinks        the same stage: eager, or without state
                     └──logged edge──▶ operators with state   other stages, which read the answers there

The planner sees to both: operators with state do not join this stage, because the placement of its rows counts as unknown;
and a stage with calls and state, which would be lazy, logs its changes (`calls_others`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from falkirk.blame import FIX, raised
from falkirk.errors import UserCodeError
from falkirk.stream.dataflow.batch import Batch
from falkirk.stream.dataflow.calls import Caller, CallPlan, OpeningError, Unanswered
from falkirk.stream.dataflow.catching import Catching, fitting, rows_for
from falkirk.stream.dataflow.operator import Flowing, Operator, Runner, TaskContext, joined
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.dataflow.task_counts import CallCounts

ROUNDS = 10
"""A step takes at most this many rows for each of the calls that run at a time: else a backlog would make steps so long that
their end is not in sight, and a crash would repeat as many calls."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Enrich(Operator):
    """Each row with the columns that a user's async function gives for it."""

    kind: ClassVar[str] = "enrich"
    can_fail: ClassVar[bool] = True
    calls_others: ClassVar[bool] = True
    calls: CallPlan
    added: pl.Schema
    """The columns of an answer."""

    @property
    def most_rows(self) -> int | None:
        return ROUNDS * self.calls.concurrency

    @property
    def words(self) -> str:
        return f"enrich {self.id}: calls for {', '.join(self.added)}"

    @property
    def notes(self) -> Sequence[str]:
        plan = self.calls
        again = f", up to {1 + plan.retries} times a row" if plan.retries else ""
        pace = f"{plan.concurrency} calls at a time in each task, {plan.timeout:g} s each{again}"
        if self.batch:
            return pace, "Spark may compute a part of an epoch again, and then makes its calls again"
        return pace, "a committed step's calls are never made again; those of a step that a crash ends are"

    def runner(self, task: TaskContext) -> Runner:
        return EnrichRunner(self, task.number)


class EnrichRunner(Runner):
    """One `enrich` in one task."""

    def __init__(self, operator: Enrich, task: int) -> None:
        self.operator = operator
        self.caller = Caller(operator.calls, f"{operator.id}/{task}")

    def step(self, run: StepRun, *inputs: Flowing | None) -> Flowing | None:
        batch = joined(inputs, weighted=False)
        if batch is None:
            return None
        catching = Catching(self.operator, run, batch)
        given = dict(rows_for(batch.rows.select(list(self.operator.inputs[0].schema)), catching.row))
        found = self._answers(run, list(given.values()), all_of_them=catching.goes_on)
        made: list[Any] = []
        answered: list[int] = []
        for i, answer in zip(given, found, strict=True):
            if isinstance(answer, Unanswered):
                catching.row(i, answer.error)
            else:
                made.append(answer)
                answered.append(i)
        frame, kept = fitting(catching, made, answered, self.operator.added)
        catching.close(len(batch))
        if len(kept) < len(batch):
            batch = batch.gather(pl.Series(kept, dtype=pl.UInt32))
        return Batch(batch.rows.with_columns(frame.get_columns()).select(list(self.operator.schema)), batch.meta)

    def calls(self) -> CallCounts | None:
        return self.caller.counts()

    def close(self) -> None:
        self.caller.close()

    def _answers(self, run: StepRun, rows: Sequence[dict[str, Any]], *, all_of_them: bool) -> list[Any]:
        try:
            return self.caller.answers(rows, run.step.cancellation, all_of_them=all_of_them)
        except OpeningError as opening:
            raise UserCodeError(
                raised(f"the opening of {self.operator.kind} {self.operator.id!r}", opening.error),
                where=self.operator.where,
                hint=FIX,
            ) from opening.error
