"""A stage's circuit: sources and edges in, operators one after another, sinks and edges out.

slices ──▶ decode ──▶ one frame an input ──▶ operators in the order of definition ──▶ records
                                                │ ▲
                                              put get          one batched call for each stateful operator
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from falkirk.errors import SourceError
from falkirk.stream import operators as op
from falkirk.stream.circuit import State, StepInput, StepOutput
from falkirk.stream.engine import rows
from falkirk.stream.engine.batch import Batch, Updates
from falkirk.stream.engine.edges import EdgeReader, EdgeWriter
from falkirk.stream.engine.groups import GroupRunner
from falkirk.stream.engine.partitioners import Partitioners
from falkirk.stream.engine.sinks import SinkRunner
from falkirk.stream.engine.sources import SourceReader
from falkirk.stream.engine.step import StepRun
from falkirk.stream.plan import Layout
from falkirk.stream.stage import Edge, PhysicalStage

Flowing = Batch | Updates
Runner = Callable[[StepRun, Batch], Flowing | None]

_PLAIN: dict[type[op.Operator], Callable[[Any, StepRun, Batch], Batch]] = {
    op.Filter: rows.filtered,
    op.Select: rows.selected,
    op.WithColumns: rows.extended,
    op.Map: rows.mapped,
    op.FlatMap: rows.flat_mapped,
    op.MapBatches: rows.batch_mapped,
}
_USERS = (op.Map, op.FlatMap, op.MapBatches, op.Processing)


class StageCircuit:
    """See `falkirk.stream.circuit.Circuit`."""

    def __init__(self, stage: PhysicalStage, partition: int, layout: Layout) -> None:
        self.stage = stage
        self.partition, self.layout = partition, layout
        traced = any(isinstance(o, _USERS) for o in stage.operators)
        counts = layout.partitions
        self.readers: dict[op.Source | Edge, SourceReader | EdgeReader] = {
            source: SourceReader(source, value, app=stage.app, stage=stage.id, partitions=counts, traced=traced)
            for source, value in stage.sources.items()
        }
        self.readers |= {edge: EdgeReader(edge, traced=traced) for edge in stage.edges_in}
        self.incoming = {(e.before, e.after): e for e in stage.edges_in}
        self.writers = [EdgeWriter(e, partition, counts) for e in stage.edges_out]
        self.sinks = {o: SinkRunner(o, counts.get(o.topic, 1)) for o in stage.operators if isinstance(o, op.Sink)}
        partitioners = self._partitioners()
        self.runners = {o: self._runner(o, partitioners) for o in stage.operators if not isinstance(o, op.Sink)}

    def run(self, step: StepInput, state: State) -> StepOutput:
        """Run one step."""
        run = StepRun(step, state)
        flowing: dict[op.Operator | Edge, Flowing | None] = {i: r.read(run) for i, r in self.readers.items()}
        for operator in self.stage.operators:
            inputs = [flowing[self.incoming.get((before, operator), before)] for before in operator.inputs]
            present = [i for i in inputs if i is not None and len(i)]
            if isinstance(operator, op.Sink):
                if present:
                    self.sinks[operator].run(run, present[0])
            else:
                batches = [i.zset() if isinstance(i, Updates) else i for i in present]
                flowing[operator] = self.runners[operator](run, rows.concatenated(batches)) if batches else None
        for writer in self.writers:
            out = flowing[writer.edge.before]
            batch = out.zset() if isinstance(out, Updates) else out
            if batch is not None and len(batch):
                writer.run(run, batch)
        return StepOutput(run.emitted, rows=run.starts[-1], dead=run.dead)

    def wake_at(self, state: State) -> int | None:
        """When the first timer is due."""
        return None

    def _runner(self, operator: op.Operator, partitioners: Partitioners | None) -> Runner:
        if isinstance(operator, op.Group):
            tables = {table: n for (name, table), n in self.stage.tables.items() if name == operator.id}
            return GroupRunner(operator, tables, partitioners).run
        plain = _PLAIN.get(type(operator))
        # What only marks a place in the graph hands on what it gets.
        return partial(plain, operator) if plain else lambda run, batch: batch

    def _partitioners(self) -> Partitioners | None:
        """The check of where the sources' keys lie; None where an exchange has put them there."""
        keyed = [s for s in self.stage.sources if s.key is not None]
        if not keyed or not self.stage.stateful:
            return None
        where = ", ".join(s.where for s in keyed)
        counts = {self.layout.partitions.get(s.topic, 1) for s in keyed}
        if len(counts) > 1:
            raise SourceError(
                f"the topics have {' and '.join(map(str, sorted(counts)))} partitions, so a key of one is not where it "
                "is in the other",
                where=where,
                hint="give the sources repartition=True",
            )
        return Partitioners(where, self.partition, counts.pop())
