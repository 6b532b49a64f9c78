"""All streaming stages of a flow, as one part that is computed in one epoch: the backfill."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from falkirk.blame import did_you_mean
from falkirk.errors import ConfigError, DefinitionError
from falkirk.stream.backfill.history import History
from falkirk.stream.batch.stage import fingerprint_of
from falkirk.stream.dataflow.operator import Operator
from falkirk.stream.dataflow.topics import Input, Output
from falkirk.stream.definition.names import BACKFILL
from falkirk.stream.definition.regime_plan import BatchPlan
from falkirk.stream.operators.sinks.answer import AnswerSink
from falkirk.stream.operators.sinks.sink import Sink
from falkirk.stream.operators.sources.source import Source
from falkirk.stream.stages.plan import Plan
from falkirk.stream.stages.stage import PhysicalStage


@dataclass(frozen=True, eq=False, slots=True)
class BackfillStage:
    """What a backfill computes."""

    app: str
    stages: tuple[PhysicalStage, ...]
    """Upstream first; their numbers are their places here."""
    inputs: tuple[Input, ...]
    """The sources of all stages, stage by stage. A topic is there as often as stages read it."""
    sinks: tuple[Sink, ...]
    """In the order of their numbers."""
    outputs: tuple[Output, ...]
    """The sinks, in the order of their numbers, then the dead letters."""
    histories: tuple[History, ...] = ()
    """Tables that stand for the beginnings of sources."""

    id = BACKFILL
    regime = BatchPlan(None, "whole")

    @property
    def levels(self) -> tuple[int, ...]:
        """Of each stage: 0 where it reads topics alone, else one more than the highest of those whose edges it reads; a
        history, too, is sorted before it is read."""
        found: list[int] = []
        for stage in self.stages:
            before = [
                found[n] for n, s in enumerate(self.stages[: len(found)]) if set(s.edges_out) & set(stage.edges_in)
            ]
            found.append(1 + max(before) if before else int(any(map(self.begins, stage.inputs))))
        return tuple(found)

    def begins(self, read: Input) -> bool:
        """Whether it is a source's, and a table stands for the beginnings of that."""
        return read.kind == "source" and any(h.source == read.id for h in self.histories)

    def source(self, name: str) -> Source:
        """The source of this name."""
        return next(s for stage in self.stages for s in stage.sources if s.id == name)

    @property
    def fingerprint(self) -> str:
        """Another one where operators, expressions, schemas, sources or sinks are others. What functions do is not looked
        at."""
        everything: list[Operator] = []
        for stage in self.stages:
            everything += [o for o in (*stage.sources, *stage.operators) if o not in everything]
        return fingerprint_of(everything, map(str, self.histories))


def backfill_stage(plan: Plan, histories: Sequence[History] = ()) -> BackfillStage:
    """The backfill of a flow. Raises DefinitionError where there is nothing to backfill, or no one place to begin at, and
    ConfigError for a history of what it does not read."""
    stages = tuple(plan.planned)
    if not stages:
        raise DefinitionError(
            f"flow {plan.app!r} has no streaming part, and there is nothing to backfill",
            hint="what is batch reads its whole history by itself: falkirk run",
        )
    if calling := [o for stage in stages for o in stage.operators if o.calls_others]:
        raise DefinitionError(
            "a backfill cannot record others' answers: Spark may compute a part of it again, and would call again",
            where=calling[0].where,
            hint="run the flow from the start instead",
        )
    if plan.shared:
        raise DefinitionError(
            "a backfill cannot look up in a broadcast table: how far each worker is with it is nobody else's to know",
            where=f"table {', '.join(table.source.id for table in plan.shared)}",
            hint="run the flow from the start instead, or use a table that is not broadcast",
        )
    inputs = tuple(i for stage in stages for i in stage.inputs if i.kind == "source")
    starts = {i.topic: i.start for i in inputs}
    if other := next((i for i in inputs if i.start != starts[i.topic]), None):
        raise DefinitionError(
            f"two sources read topic {other.topic!r} from different starts, and a backfill reads it from one",
            where=f"sources {', '.join(i.id for i in inputs if i.topic == other.topic)}",
            hint="give both the same start=",
        )
    check_histories(histories, inputs)
    check_sinks(stages)
    sinks = tuple(o for stage in stages for o in stage.operators if isinstance(o, Sink))
    letters = dict.fromkeys(o for stage in stages for o in stage.outputs if o.kind == "dead_letters")
    outputs = (*(Output(o.id, o.topic, "sink") for o in sinks), *letters)
    return BackfillStage(plan.app, stages, inputs, sinks, outputs, tuple(histories))


def check_sinks(stages: Sequence[PhysicalStage]) -> None:
    """No sink writes outside Kafka, or each change, or answers requests. Raises DefinitionError."""
    if told := next((o for stage in stages for o in stage.operators if isinstance(o, AnswerSink)), None):
        raise DefinitionError(
            "a backfill answers no requests over HTTP", where=told.where, hint="run the flow from the start instead"
        )
    if log := next((o for stage in stages for o in stage.operators if isinstance(o, Sink) and o.is_log), None):
        raise DefinitionError(
            f'a backfill knows rows and not their changes, and sink {log.id!r} writes changes="{log.mode}"',
            where=log.where,
            hint="run the flow from the start instead",
        )
    for id_, outlet in ((o.id, o.outlet) for stage in stages for o in stage.outputs if o.outlet is not None):
        raise DefinitionError(
            f"a backfill writes to topics only, and sink {id_!r} writes {outlet.what}",
            hint="run the flow from the start instead, or write the past there with Spark",
        )


def check_histories(histories: Sequence[History], inputs: Sequence[Input]) -> None:
    """Each is of a source, which reads one topic, and of each there is one at most. Raises ConfigError."""
    sources = {i.id: i for i in inputs}
    for name, times in Counter(h.source for h in histories).items():
        if name not in sources:
            raise ConfigError(
                f"the flow has no source {name!r}", where="--history", hint=did_you_mean(name, sorted(sources))
            )
        if sources[name].among is not None:
            raise ConfigError(
                f"source {name!r} reads several topics, and a history is of one",
                where="--history",
                hint="define one source for each topic, and concat them",
            )
        if times > 1:
            raise ConfigError(f"source {name!r} has two histories", where="--history", hint="make one table of them")
