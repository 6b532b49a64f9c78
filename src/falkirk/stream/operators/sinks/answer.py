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
from falkirk.stream.dataflow.catching import Catching, Misfit
from falkirk.stream.dataflow.operator import Flowing, Runner, TaskContext, joined
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.dataflow.topics import OVERHEAD, Accepts
from falkirk.stream.definition.requests import DIGEST, REQUEST, RequestsPlan
from falkirk.stream.formats import Json
from falkirk.stream.operators.sinks.sink import LARGE, Sink, SinkRunner, Written, encoded
from falkirk.wording import counted

ROWS, TAKEN = "rows", "digest"
_ENCODE = Json().encode
_AROUND = 512
"""Bytes of a request's name and its digest, at most, and of the JSON around the rows."""


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
        """The rows of each request, as JSON, in their order. Those that JSON cannot hold fail, and the rows of an answer that
        is too large for its topic. Raises UserCodeError if the app must stop."""
        found: dict[str, list[bytes]] = {}
        # A frame without columns has no rows.
        rows = batch.rows.select(self._columns)
        values, misfits = encoded(_ENCODE, rows) if self._columns else ([b"{}"] * len(batch), {})
        names: list[str | None] = batch.rows[REQUEST].to_list()
        for name, row in zip(names, values, strict=True):
            if name is not None and row is not None:  # rows without a request answer nobody
                found.setdefault(name, []).append(row)
        # One failure for each of them: a letter has the whole request, and there may be a million rows.
        for name, why in self._too_large(found).items():
            misfits = {names.index(name): why} | misfits
            del found[name]
        catching = Catching(self.sink, run, batch)
        for i, why in sorted(misfits.items()):
            catching.row(i, why)
        catching.close(len(batch))
        return found

    def _too_large(self, found: dict[str, list[bytes]]) -> dict[str, Misfit]:
        """The requests whose answer is larger than its topic accepts."""
        largest = None if self.accepts is None else self.accepts.largest
        if largest is None:
            return {}
        sizes = {name: sum(map(len, rows)) + len(rows) + _AROUND for name, rows in found.items()}
        limit = f"topic {self.sink.topic!r} does not accept: its max.message.bytes is {largest:,}"
        return {
            name: Misfit(f"the answer has {counted(len(found[name]), 'row')}, {size:,} bytes, which {limit}", LARGE)
            for name, size in sizes.items()
            if size + OVERHEAD > largest
        }

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
