"""What a gateway does with the rows of a request before it logs them: `flow.http(…, reduce=…)`.

rows of many requests ──decode──▶ one frame ──row-wise operators──▶ what is left ──▶ one record for each request
       │                             │                                  └ nothing: no record
       └── a row does not fit ───────┴── an operator fails for a row: the whole request is refused, with the row's number

What a request leaves is a function of its body, and of nothing else: not of the time, of other requests, or of the gateway.
A record holds all rows that its request leaves, so that they are logged as a whole or not at all:

    request, request_digest     as for other HTTP sources (`falkirk.stream.definition.requests`)
    rows                        those that are left, in their order
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, cast

import msgspec
import numpy as np
import polars as pl

from falkirk.blame import in_brief
from falkirk.errors import UserCodeError
from falkirk.state.store import State
from falkirk.stream.dataflow.batch import TS, Batch
from falkirk.stream.dataflow.catching import UNKNOWN_TO_PYTHON
from falkirk.stream.dataflow.circuit import StepInput
from falkirk.stream.dataflow.failures import Failures, worded
from falkirk.stream.dataflow.operator import Operator, Runner, TaskContext, joined
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.definition.requests import DIGEST, REQUEST, ROWS
from falkirk.stream.formats import Json
from falkirk.stream.formats.fields import holds

_ROW = "__falkirk_row"
"""The number of the row that a row comes from. The step's origins are numbers of records, which there are none of yet."""

_encode_rows = Json().encode


class Request(NamedTuple):
    """A request with its rows."""

    key: str
    digest: str
    rows: Sequence[bytes]
    """Each a JSON object."""


class Misfit(NamedTuple):
    """Why a request is refused."""

    row: int
    """The first row that does not fit, counted from 0."""
    reason: str


class Reduced(NamedTuple):
    """What is logged of a request."""

    value: bytes | None
    """Of its record; None: no row is left, and there is no record."""
    rows: int
    """How many rows are left."""


@dataclass(frozen=True, eq=False)
class Reduction:
    """The operators of `reduce=`.

    >>> import falkirk as fk
    >>> flow = fk.Flow("example")
    >>> value = fk.Json({"delay": int, "note": str})
    >>> rows = flow.http("delays", value=value, reduce=lambda rows: rows.filter(fk.col("delay") > 0).select("delay"))
    >>> [stage] = flow.plan().stages
    >>> [source] = stage.sources
    >>> late, early, wrong = b'{"delay": 5, "note": "fog"}', b'{"delay": -5}', b'{"delay": "5"}'
    >>> source.reduction.reduced([Request("a", "", [late, early]), Request("b", "", [early])])
    [Reduced(value=b'{"request":"a","request_digest":"","rows":[{"delay":5}]}', rows=1), Reduced(value=None, rows=0)]
    >>> source.reduction.reduced([Request("c", "", [late, wrong])])
    [Misfit(row=1, reason="field 'delay': cannot read '5' as Int64")]
    """

    body: Json
    """The format of a row that a client sends."""
    operators: tuple[Operator, ...]
    """Each follows the one before. They are row-wise, and have no state."""

    @property
    def notes(self) -> Sequence[str]:
        """For those who read a plan, one line for each operator."""
        return [f"in the gateway, before it is logged: {o.words}  ({o.line})" for o in self.operators]

    def reduced(self, requests: Sequence[Request]) -> list[Reduced | Misfit]:
        """What becomes of each request. It does not depend on the others."""
        sizes = [len(request.rows) for request in requests]
        firsts = np.cumsum([0, *sizes])
        owners = np.repeat(np.arange(len(requests)), sizes)
        decoded = self.body.decode([row for request in requests for row in request.rows])
        misfits: dict[int, Misfit] = {}
        for row, reason in decoded.bad:
            owner = int(owners[row])
            misfits.setdefault(owner, Misfit(row - int(firsts[owner]), reason))
        numbers = np.delete(np.arange(len(owners)), [row for row, _ in decoded.bad])
        frame = decoded.frame
        if misfits:
            fits = ~np.isin(owners[numbers], list(misfits))
            frame, numbers = frame.filter(pl.Series(fits)), numbers[fits]
        try:
            encoded, left = self._run(frame)
            # Whose rows these are. They are still in the order of requests.
            whose = owners[numbers[left]]
        except UserCodeError:
            if len(requests) == 1:
                return [self._culprit(frame)]
            return [one for request in requests for one in self.reduced([request])]
        cuts = np.searchsorted(whose, np.arange(len(requests) + 1)).tolist()
        return [misfits.get(i) or _record(one, encoded[cuts[i] : cuts[i + 1]]) for i, one in enumerate(requests)]

    def _run(self, frame: pl.DataFrame) -> tuple[list[bytes], np.ndarray]:
        """What the operators make of these rows, as JSON, and the number of the row that each comes from. Raises
        UserCodeError."""
        # Nothing here reads a state, and what fails is raised.
        run = StepRun(StepInput(0, ()), cast(State, None), Failures("", "", {}, {}))
        numbers = np.arange(frame.height)
        meta = pl.DataFrame({TS: np.zeros_like(numbers), _ROW: numbers})
        batch: Batch | None = Batch(frame, meta)
        for runner in self._runners:
            batch = joined([runner.step(run, batch)], weighted=False)
        if batch is None:
            return [], np.empty(0, np.int64)
        return self._written(batch.rows), batch.meta[_ROW].to_numpy()

    def _written(self, rows: pl.DataFrame) -> list[bytes]:
        """Each as JSON, which the flow can read. Raises UserCodeError."""
        try:
            encoded = _encode_rows(rows)
        except UNKNOWN_TO_PYTHON as error:
            raise UserCodeError(f"what is left of it cannot be written: {in_brief(error)}") from None
        if self._back is not None and (bad := self._back.decode(encoded).bad):
            raise UserCodeError(f"what is left of it cannot be read: {bad[0][1]}")
        return encoded

    def _culprit(self, frame: pl.DataFrame) -> Misfit:
        """The first row for which an operator fails. All rows decode."""
        first, height = 0, frame.height
        while height > 1:
            half = height // 2
            if self._reason(frame[first : first + half]) is None:
                first, half = first + half, height - half
            height = half
        return Misfit(first, self._reason(frame[first : first + 1]) or "it cannot be reduced")

    def _reason(self, frame: pl.DataFrame) -> str | None:
        try:
            self._run(frame)
        except UserCodeError as error:
            return worded(error.what)
        return None

    @property
    def schema(self) -> pl.Schema:
        """Of the rows that are left."""
        return self.operators[-1].schema if self.operators else pl.Schema(self.body.schema or {})

    @cached_property
    def _back(self) -> Json | None:
        """Reads the rows that are left, if they have times: an expression can make one that is in no calendar."""
        times = any(holds(dtype, pl.Date, pl.Datetime) for dtype in self.schema.values())
        return Json(dict(self.schema)) if times else None

    @cached_property
    def _runners(self) -> list[Runner]:
        return [operator.runner(TaskContext()) for operator in self.operators]


def _record(request: Request, rows: Sequence[bytes]) -> Reduced:
    if not rows:
        return Reduced(None, 0)
    left = msgspec.Raw(b"[%b]" % b",".join(rows))
    return Reduced(msgspec.json.encode({REQUEST: request.key, DIGEST: request.digest, ROWS: left}), len(rows))
