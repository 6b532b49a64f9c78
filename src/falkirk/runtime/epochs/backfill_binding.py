"""A backfill on a cluster: its topics, and the work of its tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from falkirk.checkpoint.epochs import Epochs, Opened
from falkirk.checkpoint.ids import InputPartition, TopicPartition
from falkirk.runtime.app.app import App, BoundTask
from falkirk.runtime.app.batch_part import BoundBatch
from falkirk.stream.backfill import BackfillJob, BackfillStage, History, HistoryTask
from falkirk.stream.backfill.stage import backfill_stage
from falkirk.stream.batch import Piece
from falkirk.stream.dataflow.topics import Layout


@dataclass(frozen=True, slots=True)
class BoundBackfill(BoundBatch):
    """All streaming stages of an app, to be computed in one epoch."""

    layout: Layout
    incarnation: str
    tasks: tuple[BoundTask, ...]

    @property
    def stages(self) -> tuple[str, ...]:
        """All of them."""
        assert isinstance(self.stage, BackfillStage)
        return tuple(stage.id for stage in self.stage.stages)

    def job(self, epochs: Epochs) -> BackfillJob:
        """The work of the open backfill."""
        assert epochs.opened is not None
        assert isinstance(self.stage, BackfillStage)
        return BackfillJob(
            stage=self.stage,
            layout=self.layout,
            pieces=self._pieces(self.stage, epochs.opened),
            clock=epochs.opened.clock,
            base=epochs.opening,
            result_partitions=self.result_partitions,
            incarnation=self.incarnation,
        )

    def pieces(self, opened: Opened) -> Sequence[Piece | HistoryTask]:
        """The histories that begin: those of tasks that read only sources."""
        assert isinstance(self.stage, BackfillStage)
        pieces = self._pieces(self.stage, opened)
        return BackfillJob(self.stage, self.layout, pieces, opened.clock, -1, self.result_partitions).turns

    def lasts(self) -> list[bool]:
        """For each output, whether only the last record of a key counts: true for grouped results."""
        letters = len(self.outputs) - len(self.stage.sinks)
        return [*(sink.changes for sink in self.stage.sinks), *[False] * letters]

    def _pieces(self, stage: BackfillStage, opened: Opened) -> Mapping[tuple[int, int], Sequence[Piece]]:
        ranges = {r.partition.place: r for r in opened.division}
        inputs = [(one.id, i.id, i.topic) for one in stage.stages for i in one.inputs if i.kind == "source"]
        numbers = {one.id: n for n, one in enumerate(stage.stages)}
        found: dict[tuple[int, int], Sequence[Piece]] = {}
        for bound in self.tasks:
            # A topic that matches a pattern only since the backfill was opened is not in its division.
            found[numbers[bound.stage.id], bound.task.id.partition] = [
                Piece(inputs.index((bound.stage.id, b.input.id, b.input.topic)), *b.place, read.start, read.end)
                for b in bound.inputs
                if b.input.kind == "source" and (read := ranges.get(b.place)) is not None and read.start < read.end
            ]
        return found


def bind_backfill(app: App, histories: Sequence[History] = ()) -> BoundBackfill:
    """The backfill of an app whose layout has one. Raises DefinitionError and ConfigError."""
    assert app.backfill is not None
    stage = backfill_stage(app.plan, histories)
    return BoundBackfill(
        stage,
        app.backfill,
        app.layout.partitions[app.backfill] - 1,
        {
            InputPartition.at(place, app.topics[i.topic].id): place
            for i in stage.inputs
            for p in range(app.layout.partitions[i.topic])
            for place in [TopicPartition(i.topic, p)]
        },
        tuple(app.topics[o.topic] for o in stage.outputs),
        app.layout.accepts,
        app.layout,
        app.incarnation,
        app.tasks,
    )
