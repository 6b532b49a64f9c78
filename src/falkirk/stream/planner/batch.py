"""From the operators of a flow to its batch stages.

a part is what is connected under one batch regime, from a with_regime on
its stage is the part, and all that its sinks depend on up to the sources, whatever the regime there
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from falkirk.errors import DefinitionError
from falkirk.stream import operators as op
from falkirk.stream.batch.stage import BatchStage
from falkirk.stream.dataflow.handling import handlings, letter_outputs
from falkirk.stream.dataflow.topics import Input, Output
from falkirk.stream.definition.pattern import Pattern
from falkirk.stream.definition.regime_plan import BatchPlan
from falkirk.stream.stages.projection import columns_needed, projected
from falkirk.stream.stages.stage import source_inputs, stage_name


def batch_stages(graph: op.Graph, dead_letters: str) -> list[BatchStage]:
    """In the order of definition. Raises DefinitionError for a part without a sink, or one whose history contradicts what is
    upstream of it, or the sink of another."""
    parts = _parts(graph)
    _check_ends(graph)
    _check_replaced(graph)
    return [_stage(graph, dead_letters, part) for part in parts if any(o.role == "sink" for o in part)]


def _parts(graph: op.Graph) -> list[list[op.Operator]]:
    """Operators by part, each in the order of definition."""
    return op.connected(
        [o for o in graph.operators if o.batch],
        lambda before, after: before.batch and before.regime == after.regime and not after.changes_regime,
    )


def _check_ends(graph: op.Graph) -> None:
    used = set(graph.upstream(o for o in graph.operators if o.batch and o.role == "sink"))
    for operator in graph.operators:
        if operator.batch and operator not in used and (operator.stateful or operator.changes_regime):
            raise DefinitionError(
                "a batch part needs a sink, and this one has none",
                where=operator.where,
                hint='end it with .sink("topic", …), or drop it',
            )


def _check_replaced(graph: op.Graph) -> None:
    """Records of batch parts tell their epoch, and not their sink: what one sink replaces would be another's."""
    sinks = [o for o in graph.operators if isinstance(o, op.Sink) and o.batch and o.key is not None]
    for sink in sinks:
        both = [other for other in sinks if other.topic == sink.topic]
        if len(both) > 1 and sink.regime.plan().history == "whole":
            raise DefinitionError(
                f"two sinks of batch parts write topic {sink.topic!r}, and each epoch over the whole history would delete "
                "the rows of the other",
                where=" and ".join(other.where for other in both),
                hint="concat the rows into one sink, or write to two topics",
            )


def _stage(graph: op.Graph, dead_letters: str, part: list[op.Operator]) -> BatchStage:
    regime: BatchPlan = part[0].regime.plan()
    sinks = [o for o in part if isinstance(o, op.Sink)]
    members = graph.upstream(sinks)
    _check_members(members, part, regime)
    needed = columns_needed(members)
    sources = {o: projected(o, needed[o]) for o in members if isinstance(o, op.Source)}
    inputs = [i for source in sources for i in source_inputs(source)]
    _check_read(sources, inputs)
    operators = tuple(o for o in members if o.role != "source")
    handled = handlings(graph, [*sources, *operators], dead_letters)
    return BatchStage(
        app=graph.name, id=stage_name(part, inputs), regime=regime,
        operators=operators, sources=sources, inputs=tuple(inputs),
        outputs=(*(Output(o.id, o.topic, "sink") for o in sinks), *letter_outputs(handled, dead_letters)),
        dead_letters=dead_letters, handled=handled,
    )  # fmt: skip


def _check_members(members: Sequence[op.Operator], part: Sequence[op.Operator], regime: BatchPlan) -> None:
    """Raises DefinitionError if what a part depends on cannot be computed in epochs, or not from new records alone."""
    if errors := [o for o in members if o.gives_errors]:
        raise DefinitionError(
            "a batch part has no streams of errors",
            where=errors[0].where,
            hint="what fails there goes to the dead letters with on_error=fk.DeadLetter(); or sink what fails in the stream, "
            "and read that topic as a source",
        )
    if beside := [o for o in members if isinstance(o, op.Late | op.Final)]:
        raise DefinitionError(
            "a batch part has no watermark: no row is late, and no window is final before another",
            where=beside[0].where,
            hint="leave out .late and .final(), or use them in the streaming part",
        )
    if again := [o for o in members if o.calls_others and not o.batch]:
        raise DefinitionError(
            "the streaming part calls others, and the batch part would make these calls again for all records",
            where=again[0].where,
            hint="sink the rows with their answers to a topic, and begin the batch part at a source of that topic",
        )
    if regime.history == "new" and (above := [o for o in members if o.stateful and o not in part]):
        raise DefinitionError(
            f'with history="new" it would see new records alone, and {above[0].kind} {above[0].id!r} upstream sees all',
            where=part[0].where,
            hint='begin the batch part before it, or use history="whole"',
        )
    if regime.history == "new" and (changing := [o for o in members if isinstance(o, op.Changed | op.Latest)]):
        raise DefinitionError(
            'with history="new" it would take back rows that it has not seen',
            where=changing[0].where,
            hint='use history="whole"',
        )


def _check_read(sources: Iterable[op.Source], inputs: Sequence[Input]) -> None:
    """Raises DefinitionError if topics have no names, or one is read from two starts."""
    if matching := next((o for o in sources if isinstance(o.topics, Pattern)), None):
        raise DefinitionError(
            "a batch part reads topics that are named, and this source has a pattern",
            where=matching.where,
            hint="give it a list of topics",
        )
    starts = {i.topic: i.start for i in inputs}
    if other := next((i for i in inputs if i.start != starts[i.topic]), None):
        raise DefinitionError(
            f"two sources read topic {other.topic!r} from different starts, and a batch part reads it from one",
            where=" and ".join(o.where for o in sources if o.id in {i.id for i in inputs if i.topic == other.topic}),
            hint="give both the same start=",
        )
