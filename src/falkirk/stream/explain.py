"""A flow's plan in words, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from falkirk.stream import operators as op
from falkirk.stream.describe import described
from falkirk.stream.flow import Flow
from falkirk.stream.plan import PREFIX, Layout
from falkirk.stream.stage import PhysicalStage


def explain(flow: Flow, layout: Layout | None = None, prefix: str = PREFIX) -> str:
    """Stages, operators, edges, regimes, topics and tasks, a line each. With a layout, tasks are counted; `prefix` is that
    of the run.

    >>> import falkirk as fk
    >>> flow = fk.Flow("words")
    >>> words = flow.source("lines", value=fk.Text())
    >>> words.group_by("value", id="count").agg(n=fk.len()).sink("counts", key="value", value=fk.Json())
    >>> print(explain(flow))  # doctest: +ELLIPSIS
    flow words: 2 stages
    <BLANKLINE>
    stage lines: eager, steps of up to 100ms, a version every 10s
      tasks   one for each partition of lines
      read    source lines: topic lines, from earliest
      write   edge count: topic falkirk.words.edge.count, by value
      write   dead letters: topic falkirk.words.dead-letters
    <BLANKLINE>
    stage count: eager, steps of up to 100ms, a version every 10s
      tasks   one for each partition of falkirk.words.edge.count
      read    edge count: topic falkirk.words.edge.count
      do      group_by count: value → n = len; state placed by value  (...)
      write   sink counts: topic counts, by value
    """
    plan = flow.plan(prefix)
    stages = [s for s in plan.stages if isinstance(s, PhysicalStage)]
    head = f"flow {plan.app}: {len(stages)} stage{'s' if len(stages) > 1 else ''}"
    return "\n\n".join([head, *("\n".join(_stage(s, layout)) for s in stages)])


def _stage(stage: PhysicalStage, layout: Layout | None) -> Iterable[str]:
    regime = stage.regime
    yield (
        f"stage {stage.id}: {regime.kind}, steps of up to {_time(regime.step)}, a version every {_time(regime.every)}"
    )
    topics = ", ".join(i.topic for i in stage.inputs)
    count = max(layout.partitions.get(i.topic, 0) for i in stage.inputs) if layout else 0
    yield f"  tasks   {f'{count}: ' if count else ''}one for each partition of {topics}"
    for source, value in stage.sources.items():
        keyed = f", keyed by {', '.join(source.key.columns)}" if source.key is not None else ""
        left_out = (
            sorted(source.value.schema.keys() - value.schema.keys()) if source.value.schema and value.schema else []
        )
        unread = f", without {', '.join(left_out)}" if left_out else ""
        yield f"  read    source {source.id}: topic {source.topic}, from {source.start}{keyed}{unread}"
    for edge in stage.edges_in:
        yield f"  read    edge {edge.id}: topic {edge.topic}"
    for operator in stage.operators:
        if not isinstance(operator, op.Sink):
            yield f"  do      {described(operator)}  ({operator.line})"
    for operator in stage.operators:
        if isinstance(operator, op.Sink):
            by = f", by {', '.join(operator.key.columns)}" if operator.key else ""
            yield f"  write   sink {operator.id}: topic {operator.topic}{by}"
    for edge in stage.edges_out:
        by = f", by {', '.join(edge.key.columns)}" if edge.key else ""
        yield f"  write   edge {edge.id}: topic {edge.topic}{by}"
    for output in stage.outputs:
        if output.kind == "dead_letters":
            yield f"  write   dead letters: topic {output.topic}"


def _time(time: timedelta) -> str:
    millis = time // timedelta(milliseconds=1)
    return f"{millis}ms" if millis % 1000 else f"{millis // 1000}s"
