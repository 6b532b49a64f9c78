"""Where the rows of a job go: which operators bring rows together, at which level, and what lies between them.

    level(source) = 0        level(o) = max level(inputs of o) + 1 if o brings rows together, else without the 1

A segment is what rows pass without leaving their task: from a source, or from what brings rows together, to the next that do
so, and to sinks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from falkirk.stream import operators as op
from falkirk.stream.engine.batch import Batch
from falkirk.stream.engine.rows import concatenated
from falkirk.stream.engine.step import StepRun
from falkirk.stream.exchanges.base import Exchange
from falkirk.stream.exchanges.sinks import SinkExchange, is_checked
from falkirk.stream.forms import GATHERING, ROW_WISE


class Segment:
    """The row-wise operators behind one operator, and what they lead to."""

    def __init__(self, start: op.Operator, operators: Sequence[op.Operator], ends: Set[op.Operator]) -> None:
        self.start = start
        self.between = []
        self.ends: list[op.Operator] = []
        reached = {start}
        for operator in operators:
            if reached.isdisjoint(operator.inputs):
                continue
            if operator in ends:
                self.ends.append(operator)
            else:
                self.between.append((operator, ROW_WISE[type(operator)](operator)))
                reached.add(operator)

    def run(self, run: StepRun, batch: Batch) -> Iterator[tuple[op.Operator, int, Batch]]:
        """What of the rows reaches each end, and by which input, where that makes a difference. Raises UserCodeError."""
        flowing: dict[op.Operator, Batch | None] = {self.start: batch}
        for operator, runner in self.between:
            rows = _joined([flowing.get(before) for before in operator.inputs])
            flowing[operator] = None if rows is None else runner(run, rows)
        for end in self.ends:
            if isinstance(end, op.Lookup):
                yield from ((end, port, rows) for port, i in enumerate(end.inputs) if (rows := flowing.get(i)))
            elif (rows := _joined([flowing.get(before) for before in end.inputs])) is not None:
                yield end, 0, rows


class Wiring:
    """Of one job."""

    def __init__(self, sources: Sequence[op.Source], operators: Sequence[op.Operator]) -> None:
        self.levels: dict[op.Operator, int] = dict.fromkeys(sources, 0)
        self.sinks = [o for o in operators if isinstance(o, op.Sink)]
        self.exchanges: dict[op.Operator, Exchange] = {}
        for o in operators:
            if type(o) in GATHERING:
                self.exchanges[o] = GATHERING[type(o)].batch(o)
            elif isinstance(o, op.Sink) and is_checked(o):
                self.exchanges[o] = SinkExchange(o)
            self.levels[o] = max(self.levels[before] for before in o.inputs) + (o in self.exchanges)
        self.numbered = list(self.exchanges)
        """By number of the exchange."""
        ends = {*self.exchanges, *self.sinks}
        self.segments = {
            start: Segment(start, operators, ends)
            for start in (*sources, *self.exchanges)
            if not isinstance(start, op.Sink)
        }
        self.last = max(self.levels.values())


def _joined(flowing: Sequence[Batch | None]) -> Batch | None:
    present = [batch for batch in flowing if batch is not None and len(batch)]
    return concatenated(present, weighted=False) if present else None
