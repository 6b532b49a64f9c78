"""A flow's plan as text, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

from falkirk.durations import duration_text
from falkirk.stream import operators as op
from falkirk.stream.batch.stage import BatchStage
from falkirk.stream.dataflow.topics import Layout, Output
from falkirk.stream.definition.names import PREFIX
from falkirk.stream.flow.flow import Flow
from falkirk.stream.formats import Format
from falkirk.stream.stages.plan import USE_IT
from falkirk.stream.stages.stage import PhysicalStage, SharedTable
from falkirk.wording import counted


def explain(flow: Flow, layout: Layout | None = None, prefix: str = PREFIX) -> str:
    """Stages, batch parts, operators, edges, regimes, topics and tasks, one line each.

    With a layout, the text has the number of tasks. `prefix` is the run's prefix for internal topics.

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
    stages = plan.planned
    counts = [counted(n, what) for n, what in ((len(stages), "stage"), (len(plan.batches), "batch part")) if n]
    head = f"flow {plan.app}: {', '.join(counts)}"
    queries = flow.graph.queries
    parts = [*(_stage(s, layout, queries, plan.tasks) for s in stages), *(_batch(b, queries) for b in plan.batches)]
    unused = [f"WARNING {words}: {USE_IT}" for words in plan.unused]
    if plan.tasks is not None and not any(stage.scales for stage in stages):
        unused.append(f"WARNING tasks={plan.tasks} changes nothing: no stage is behind an exchange")
    return "\n\n".join([head, *map("\n".join, parts), *(["\n".join(unused)] if unused else [])])


Queries = Mapping[op.Operator, str]
"""The SQL of operators that a query made."""


def _stage(stage: PhysicalStage, layout: Layout | None, queries: Queries, tasks: int | None) -> Iterable[str]:
    regime = stage.regime
    step, every = duration_text(regime.step), f"a version every {duration_text(regime.every)}"
    if regime.within is not None:
        every = f"versions that let another host recover within {duration_text(regime.within)}"
    if regime.selective is not None and stage.remembered is not None:
        until = duration_text(timedelta(milliseconds=stage.remembered))
        every += f"; rows are not read again when the watermark is {until} past their time"
    yield f"stage {stage.id}: {regime.kind}, steps of up to {step}, {every}"
    topics = ", ".join(i.topic for i in stage.inputs)
    count = max(layout.partitions.get(i.topic, 0) for i in stage.inputs) if layout else 0
    if not count and tasks is not None and stage.scales:
        count = tasks
    yield f"  tasks   {f'{count}: ' if count else ''}one for each partition of {topics}"
    if stage.all_to_one and count != 1:
        yield f"  WARNING {stage.all_to_one}"
    yield from _sources(stage.sources)
    for edge in stage.edges_in:
        yield f"  read    edge {edge.id}: topic {edge.topic}"
    yield from _tables(stage.shared)
    yield from _operators(stage.operators, queries)
    for edge in stage.edges_out:
        by = f", by {', '.join(edge.key.columns)}" if edge.key else ""
        yield f"  write   edge {edge.id}: topic {edge.topic}{by}"
    yield from _dead_letters(stage.outputs)


def _batch(stage: BatchStage, queries: Queries) -> Iterable[str]:
    every, history = stage.regime.every, stage.regime.history
    when = "on demand"
    if every is not None:
        when = (
            f"every {duration_text(every)}" if isinstance(every, timedelta) else f"every {counted(every, 'new record')}"
        )
    yield f"batch {stage.id}: an epoch {when}, of {_HISTORY[history]}"
    yield from _sources(stage.sources)
    yield from _operators(stage.operators, queries, replaced=history == "whole")
    yield from _dead_letters(stage.outputs)


_HISTORY = {"whole": "all that is in the topics", "new": "what is new in the topics"}


def _sources(sources: Mapping[op.Source, Format]) -> Iterable[str]:
    for source, value in sources.items():
        keyed = f", keyed by {', '.join(source.key.columns)}" if source.key is not None else ""
        left_out = (
            sorted(source.value.schema.keys() - value.schema.keys()) if source.value.schema and value.schema else []
        )
        unread = f", without {', '.join(left_out)}" if left_out else ""
        fails = "" if source.on_error is None else f"; what fails {source.on_error.words}"
        time = f", dated by {source.time}" if source.time is not None else ""
        time += f", {source.lateness}" if source.lateness is not None else ""
        yield f"  read    source {source.id}: topic {source.topic}, from {source.start}{keyed}{time}{unread}{fails}"
        yield from (f"          {note}" for note in source.notes)


def _tables(tables: Iterable[SharedTable]) -> Iterable[str]:
    for table in tables:
        seen = "" if table.epochs is None else ", epoch by epoch"
        yield f"  keep    table {table.source.id}: topic {table.source.topic}, in each worker{seen}"


def _operators(operators: Iterable[op.Operator], queries: Queries, *, replaced: bool = False) -> Iterable[str]:
    sinks: list[op.Sink] = []
    outlets: list[op.OutletSink] = []
    query = None
    for operator in operators:
        if (sql := queries.get(operator)) != query and (query := sql) is not None:
            yield f"  sql     {query}"
        if isinstance(operator, op.Sink):
            sinks.append(operator)
        elif isinstance(operator, op.OutletSink):
            outlets.append(operator)
        else:
            yield f"  do      {operator.described()}  ({operator.line})"
            yield from (f"          {note}" for note in operator.notes)
    for sink in sinks:
        by = f", by {', '.join(sink.key.columns)}" if sink.key and sink.key.columns else ""
        how = f", changes as {sink.mode}" if sink.is_log else ", replaced" if by and replaced else ""
        yield f"  write   sink {sink.id}: topic {sink.topic}{by}{how}"
    for one in outlets:
        yield f"  write   {one.written}"


def _dead_letters(outputs: Iterable[Output]) -> Iterable[str]:
    for output in outputs:
        if output.kind == "dead_letters":
            yield f"  write   dead letters: topic {output.topic}"
