"""Where the rows of a job go: which operators bring rows together, at which level, and what lies between them.

    level(source) = 0        level(o) = max level(inputs of o) + 1 if o brings rows together, else without the 1

A segment is what rows pass without leaving their task: from a source, or from what brings rows together, to the next that do
so, and to sinks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from falkirk.stream import operators as op
from falkirk.stream.dataflow.batch import Batch
from falkirk.stream.dataflow.exchange import Exchange
from falkirk.stream.dataflow.operator import Flowing, TaskContext, joined
from falkirk.stream.dataflow.step import StepRun


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
                self.between.append((operator, operator.runner(TaskContext(batch=True))))
                reached.add(operator)

    def run(self, run: StepRun, batch: Batch) -> Iterator[tuple[op.Operator, int, Batch]]:
        """What of the rows reaches each end, and by which input, where that makes a difference. Raises UserCodeError."""
        flowing: dict[op.Operator, Flowing | None] = {self.start: batch}
        for operator, runner in self.between:
            flowing[operator] = runner.step(run, *(flowing.get(before) for before in operator.inputs))
        for end in self.ends:
            for port, before in enumerate(end.inputs):
                if (rows := joined([flowing.get(before)], weighted=False)) is not None:
                    yield end, port, rows


class Wiring:
    """Of one job."""

    def __init__(self, sources: Sequence[op.Source], operators: Sequence[op.Operator]) -> None:
        self.levels: dict[op.Operator, int] = dict.fromkeys(sources, 0)
        self.sinks = [o for o in operators if o.role == "sink"]
        self.exchanges: dict[op.Operator, Exchange] = {}
        for o in operators:
            if (exchange := o.exchange()) is not None:
                self.exchanges[o] = exchange
            self.levels[o] = max(self.levels[before] for before in o.inputs) + (o in self.exchanges)
        self.numbered = list(self.exchanges)
        """By number of the exchange."""
        ends = {*self.exchanges, *self.sinks}
        self.segments = {
            start: Segment(start, operators, ends) for start in (*sources, *self.exchanges) if start.role != "sink"
        }
        self.last = max(self.levels.values())
