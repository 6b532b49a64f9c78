"""The answers to HTTP requests: one record for each request and step, under the request's name. A gateway that reads it
answers, as the step that wrote it has committed: see docs/internals/http.md.

    inputs                record of a step for a request
    rows and requests     {"digest": …, "rows": […]}     rows are complete: they come in the step that reads the request
    requests              {"digest": …}                  the request has been taken; alone, it is the whole answer
    rows                  {"rows": […]}                  the rows come in a later step, from another task
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from falkirk.stream.dataflow.batch import TS, Batch
from falkirk.stream.dataflow.catching import Catching
from falkirk.stream.dataflow.operator import Flowing, Runner, TaskContext, joined
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.dataflow.topics import Accepts
from falkirk.stream.definition.requests import DIGEST, REQUEST, RequestsPlan
from falkirk.stream.formats import Json
from falkirk.stream.operators.sinks.sink import Sink, SinkRunner, Written, encoded

ROWS, TAKEN = "rows", "digest"
_ENCODE = Json().encode


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class AnswerSink(Sink):
    """Answers to the requests of an HTTP source."""

    kind: ClassVar[str] = "answer"
    plan: RequestsPlan
    has_rows: bool
    """Whether its first input is rows of answers."""
    has_requests: bool
    """Whether its last input is the requests."""

    @property
    def answers_kept(self) -> Mapping[str, str]:
        return self.plan.of_answers

    @property
    def mark(self) -> str:
        return "" if self.has_rows and self.has_requests else ROWS if self.has_rows else TAKEN

    def reads(self, port: int, needed: Set[str]) -> Set[str]:
        if port == 0 and self.has_rows:
            return set(self.inputs[0].schema)
        return {REQUEST, DIGEST}

    def runner(self, task: TaskContext) -> Runner:
        return AnswerRunner(self, task.partitions.get(self.topic, 1), task.accepts.get(self.topic))


class AnswerRunner(SinkRunner):
    """Writes the answers of one task."""

    def __init__(self, sink: AnswerSink, partitions: int, accepts: Accepts | None = None) -> None:
        super().__init__(sink, partitions, accepts)
        self._has_rows, self._has_requests = sink.has_rows, sink.has_requests
        self._columns = [name for name in sink.inputs[0].schema if name != REQUEST] if sink.has_rows else []

    def step(self, run: StepRun, *inputs: Flowing | None) -> None:
        """Emit an answer for each request of this step, in the order in which they came."""
        requests = joined(inputs[-1:], weighted=False) if self._has_requests else None
        rows = joined(inputs[:1], weighted=False) if self._has_rows else None
        digests = {} if requests is None else dict(requests.rows.select(REQUEST, DIGEST).iter_rows())
        found = {} if rows is None else self._rows(run, rows)
        # Rows without a request answer nobody.
        names = [name for name in dict.fromkeys([*digests, *found]) if name is not None]
        if not names:
            return
        shown = Batch(
            pl.DataFrame({REQUEST: names}, {REQUEST: pl.String()}),
            pl.DataFrame({TS: [int(run.step.clock)] * len(names)}, {TS: pl.Int64()}),
        )
        values = [self._value(name, digests, found) for name in names]
        records = Written([name.encode() for name in names], values, shown.meta[TS])
        self._emit(run, shown, records, self._placed(records.keys, None, np.zeros(len(names), np.int64)))

    def _rows(self, run: StepRun, batch: Batch) -> dict[str, list[bytes]]:
        """The rows of each request, as JSON, in their order. Those that JSON cannot hold fail. Raises UserCodeError if the
        app must stop."""
        found: dict[str, list[bytes]] = {}
        # A frame without columns has no rows.
        rows = batch.rows.select(self._columns)
        values, misfits = encoded(_ENCODE, rows) if self._columns else ([b"{}"] * len(batch), {})
        catching = Catching(self.sink, run, batch)
        for i, why in sorted(misfits.items()):
            catching.row(i, why)
        catching.close(len(batch))
        for name, row in zip(batch.rows[REQUEST].to_list(), values, strict=True):
            if row is not None:
                found.setdefault(name, []).append(row)
        return found

    def _value(self, name: str, digests: dict[str, str | None], found: dict[str, list[bytes]]) -> bytes:
        parts = []
        if name in digests:
            parts.append(b'"digest":"%b"' % (digests[name] or "").encode())
        if self._has_rows:
            parts.append(b'"rows":[%b]' % b",".join(found.get(name, ())))
        return b"{%b}" % b",".join(parts)


def answer_schema(rows: pl.Schema | None, *, requests: bool) -> pl.Schema:
    """The fields of an answer's record, given the columns of its rows.

    >>> dict(answer_schema(pl.Schema({"request": pl.String(), "n": pl.Int64()}), requests=True))
    {'digest': String, 'rows': List(Struct({'n': Int64}))}
    """
    fields: dict[str, pl.DataType] = {TAKEN: pl.String()} if requests else {}
    if rows is not None:
        of_row: Sequence[pl.Field] = [pl.Field(name, dtype) for name, dtype in rows.items() if name != REQUEST]
        fields[ROWS] = pl.List(pl.Struct(of_row))
    return pl.Schema(fields)
