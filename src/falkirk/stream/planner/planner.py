"""From the operators of a flow to its stages.

    an edge lies between two operators  ⇔  they have different roots, but a source is read by whoever needs it
    a stage is what remains connected when the edges are cut
    what only the batch regime needs is in no stage: it is computed from the sources (`falkirk.stream.planner.batch`)

A stage never waits for itself: a root is an operator, and all that share it come after it in the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from falkirk.checkpoint.regimes import Eager
from falkirk.errors import DefinitionError
from falkirk.state.schema import TABLES, evolved
from falkirk.stream import operators as op
from falkirk.stream.batch.stage import BatchStage
from falkirk.stream.circuit.circuit import StageCircuit
from falkirk.stream.dataflow.handling import handlings, letter_outputs
from falkirk.stream.dataflow.topics import Input, Output
from falkirk.stream.definition.names import BACKFILL, epochs_topic
from falkirk.stream.definition.pattern import Pattern
from falkirk.stream.definition.regime_plan import RegimePlan
from falkirk.stream.evolution.evolution import StageEvolution
from falkirk.stream.planner.batch import batch_stages
from falkirk.stream.planner.feedback import check_feedback
from falkirk.stream.stages.plan import Plan
from falkirk.stream.stages.projection import columns_needed, columns_read_by, projected
from falkirk.stream.stages.stage import Edge, PhysicalStage, SharedTable, kept_of, source_inputs, stage_name


def plan(graph: op.Graph, prefix: str) -> Plan:
    """The stages, upstream first. The app's own topics are called `prefix`.APP.… Raises DefinitionError for a flow that
    does nothing."""
    useful = graph.upstream(o for o in graph.operators if not o.batch and (o.stateful or o.role == "sink"))
    needed = columns_needed(useful)
    topics = f"{prefix}.{graph.name}"
    asking = set(graph.upstream(o for o in useful if o.asks_time))
    edges = [replace(e, timed=e.before.watermarked and e.after in asking) for e in _edges(topics, useful, needed)]
    letters = graph.dead_letters or f"{topics}.dead-letters"
    batches = batch_stages(graph, letters)
    tables = _shared(graph.name, prefix, useful, needed, batches)
    stages = _ordered(
        [_stage(graph, topics, letters, members, edges, tables, needed) for members in _connected(useful, edges)]
    )
    _check_use(graph, [*useful, *(source for batch in batches for source in batch.sources)])
    _check_letters([*stages, *batches])
    check_feedback(graph)
    _check_ids([*stages, *batches])
    return Plan(graph.name, tuple(stages), tuple(batches), graph.on_failure, _unused(graph), graph.tasks)


Needed = Mapping[op.Operator, frozenset[str]]


def _check_use(graph: op.Graph, used: Sequence[op.Operator]) -> None:
    """Raises DefinitionError if nothing has an effect, or a source has none."""
    if not used:
        raise DefinitionError(
            "the flow has no sink and no other effect",
            where=f"flow {graph.name!r} ({graph.line})",
            hint='add .sink("topic", …)',
        )
    for source in graph.operators:
        if isinstance(source, op.Source) and source not in used:
            raise DefinitionError("nothing uses the source", where=source.where, hint="use it, or remove it")


def _unused(graph: op.Graph) -> tuple[str, ...]:
    """What to say of the streams that nothing uses. A user may take a method for one that changes its stream. Left out are
    branches of which another one is used, and what a query defines."""
    useful = set(graph.upstream(o for o in graph.operators if o.stateful or o.role == "sink"))
    read = {before for o in graph.operators for before in o.inputs}
    branches = {(o.line, o.inputs) for o in useful}
    left = [o for o in graph.operators if o not in useful and o not in read and o not in graph.queries]
    return tuple(
        f"nothing uses the stream of {o.kind} ({o.line})"
        for o in left
        if o.role == "operator" and (o.line, o.inputs) not in branches
    )


def _shared(
    app: str, prefix: str, useful: Sequence[op.Operator], needed: Needed, batches: Sequence[BatchStage]
) -> dict[op.Operator, SharedTable]:
    """The broadcast tables. One that a batch part of the flow writes is seen epoch by epoch."""
    tables: dict[op.Operator, SharedTable] = {}
    written = [(output.topic, batch.id) for batch in batches for output in batch.outputs if output.kind == "sink"]
    parts = dict(written)
    for source in useful:
        if not isinstance(source, op.TableSource):
            continue
        part = parts.get(source.topic)
        if other := next((id_ for topic, id_ in written if topic == source.topic and id_ != part), None):
            raise DefinitionError(
                f"batch parts {other!r} and {part!r} write the table's topic, and each counts its own epochs",
                where=source.where,
                hint="concat the rows into one batch part, or write to two topics and look both up",
            )
        if source.broadcast:
            looked_up = [o.looks_up(port) or set() for o in useful for port, i in enumerate(o.inputs) if i is source]
            columns = tuple(c for c in source.schema if any(c in found for found in looked_up))
            epochs = None if part is None else epochs_topic(prefix, app, part)
            tables[source] = SharedTable(source, projected(source, needed[source]), columns, epochs)
        elif part is not None:
            raise DefinitionError(
                f"batch part {part!r} writes the table's topic, and its epochs would be seen row by row",
                where=source.where,
                hint="give it broadcast=True: then all of an epoch is seen at once",
            )
    return tables


def _is_shared(before: op.Operator, after: op.Operator) -> bool:
    """What is looked up in a broadcast table does not flow from the one to the other."""
    ports = [port for port, i in enumerate(after.inputs) if i is before]
    return all(after.looks_up(port) is not None for port in ports)


def _looked_up(operators: Iterable[op.Operator]) -> list[op.Operator]:
    """The broadcast tables that these look up."""
    return [i for o in operators for port, i in enumerate(o.inputs) if o.looks_up(port) is not None]


def _edges(topics: str, useful: Sequence[op.Operator], needed: Needed) -> list[Edge]:
    edges = []
    for after in useful:
        ports = {before: port for port, before in reversed(list(enumerate(after.inputs)))}
        cut = [b for b in dict.fromkeys(after.inputs) if b.root != after.root and not _read_directly(b, after)]
        cut = [b for b in cut if not _is_shared(b, after)]
        for i, before in enumerate(cut):
            name = after.id if len(cut) == 1 else f"{after.id}.{i}"
            # A row without columns would not be a row: one is carried even if none is needed.
            read = columns_read_by(after, ports[before], needed[after])
            columns = [c for c in before.schema if c in read] or list(before.schema)[:1]
            topic, port = f"{topics}.edge.{name}", ports[before]
            edges.append(Edge(name, topic, before, after, port, after.keys(port), tuple(columns)))
    return edges


def _read_directly(before: op.Operator, after: op.Operator) -> bool:
    """A change of regime right after a source needs no edge: the new stage reads the topic itself."""
    return before.role == "source" and after.changes_regime


def _connected(useful: Sequence[op.Operator], edges: Iterable[Edge]) -> list[list[op.Operator]]:
    """Operators by stage, each in the order of definition. A source alone is no stage: others read its topic."""
    cut = {(e.before, e.after) for e in edges}
    groups = op.connected(
        useful,
        lambda before, after: (
            (before, after) not in cut and not _read_directly(before, after) and not _is_shared(before, after)
        ),
    )
    sending = {e.before for e in edges}
    return [g for g in groups if g[0].role != "source" or len(g) > 1 or g[0] in sending]


def _stage(
    graph: op.Graph,
    topics: str,
    dead_letters: str,
    members: Sequence[op.Operator],
    edges: Sequence[Edge],
    tables: Mapping[op.Operator, SharedTable],
    needed: Needed,
) -> PhysicalStage:
    inside = set(members)
    read = [o for o in members if isinstance(o, op.Source)]
    read += [b for o in members for b in o.inputs if isinstance(b, op.Source) and _read_directly(b, o)]
    sources = {source: projected(source, needed[source]) for source in read}
    edges_in = tuple(e for e in edges if e.after in inside)
    edges_out = tuple(e for e in edges if e.before in inside)
    operators = tuple(o for o in members if o.role != "source")
    inputs = [i for s in sources for i in source_inputs(s)]
    inputs += [Input(e.id, e.topic, "edge", table=e.table) for e in edges_in]
    outputs = [Output(o.id, o.topic, "sink", answers=o.answers_kept) for o in operators if isinstance(o, op.Sink)]
    outputs += [Output(e.id, e.topic, "edge") for e in edges_out]
    outputs += [Output(o.id, o.topic(topics), "edge", o.plan) for o in operators if isinstance(o, op.OutletSink)]
    handled = handlings(graph, [*sources, *operators], dead_letters)
    outputs += letter_outputs(handled, dead_letters)
    stateful = [o for o in operators if o.stateful]
    keeps = kept_of(stateful, sources, edges_in)
    if (kept := sum(keeps.values())) > TABLES:
        raise DefinitionError(
            f"a stage holds {kept} tables of state, and the limit is {TABLES}",
            where=(stateful or members)[0].where,
            hint="cut the stage in two with repartition(…)",
        )
    regime = _recorded((operators or tuple(members))[0].regime.plan(), operators, stateful=bool(keeps))
    stage = PhysicalStage(
        app=graph.name, id=stage_name(members, inputs), operators=operators, sources=sources,
        edges_in=edges_in, edges_out=edges_out, regime=regime, inputs=tuple(inputs), outputs=tuple(outputs),
        dead_letters=dead_letters, handled=handled, circuits=StageCircuit, evolutions=StageEvolution,
        keeping=tuple(stateful), state_schema=evolved("", keeps),
        shared=tuple(dict.fromkeys(tables[i] for i in _looked_up(operators))),
    )  # fmt: skip
    _check_selective(stage)
    return stage


def _recorded(regime: RegimePlan, operators: Sequence[op.Operator], *, stateful: bool) -> RegimePlan:
    """The regime of a stage: with others' answers and state, one that runs no step again. Without state, none does."""
    if not stateful or not regime.recovery.requires.same_outputs or not any(o.calls_others for o in operators):
        return regime
    return replace(regime, kind=Eager.name, recovery=Eager, selective=None)


def _check_selective(stage: PhysicalStage) -> None:
    """Raises DefinitionError if a stage whose regime rolls back selectively has state that stays when its time is over."""
    if stage.regime.selective is None or not stage.keeping or stage.remembered is not None:
        return
    lasting = next((o for o in stage.keeping if o.remembered is None), stage.keeping[0])
    why = (
        "its stage looks up in a broadcast table" if lasting.remembered is not None else "its state depends on all rows"
    )
    raise DefinitionError(
        f"selective=True does not work for {lasting.id!r}: {why}, not only on those whose time is not complete",
        where=lasting.where,
        hint="group by windows of the time= of a source with late=, or give this part another regime: .with_regime(…)",
    )


def _ordered(stages: Iterable[PhysicalStage]) -> list[PhysicalStage]:
    """Stages upstream first, else in the order of definition."""
    waiting = list(stages)
    done: list[PhysicalStage] = []
    ready: set[str] = set()
    while waiting:
        stage = next(s for s in waiting if all(e.id in ready for e in s.edges_in))
        waiting.remove(stage)
        done.append(stage)
        ready |= {e.id for e in stage.edges_out}
    return done


def _check_letters(stages: Sequence[PhysicalStage | BatchStage]) -> None:
    """Raises DefinitionError where dead letters would be read, or be taken for results, or where a pattern matches what the
    flow writes."""
    letters = {o.topic for stage in stages for o in stage.outputs if o.kind == "dead_letters"}
    others = {i.topic: f"source {i.id!r} reads" for stage in stages for i in stage.inputs if i.kind == "source"}
    others |= {o.topic: f"sink {o.id!r} writes" for stage in stages for o in stage.outputs if o.kind == "sink"}
    written = {o.topic: f"{o.kind} {o.id!r}" for stage in stages for o in stage.outputs if o.kind == "sink"}
    written |= dict.fromkeys(letters, "the dead letters")
    patterns = [(i, i.among) for stage in stages for i in stage.inputs if isinstance(i.among, Pattern)]
    for i, pattern in patterns:
        if topic := next((topic for topic in written if pattern.matches(topic)), None):
            raise DefinitionError(
                f"source {i.id!r} reads the topics that match {i.topic}, and {written[topic]} writes one, {topic!r}",
                hint="use a pattern that does not match this flow's topics, or give the sink another topic",
            )
    for topic in letters & others.keys():
        raise DefinitionError(
            f"dead letters would go to topic {topic!r}, which {others[topic]}", hint="choose a separate topic for them"
        )


def _check_ids(stages: Sequence[PhysicalStage | BatchStage]) -> None:
    seen: dict[str, PhysicalStage | BatchStage] = {}
    for stage in stages:
        if stage.id == BACKFILL and isinstance(stage, BatchStage):
            hint = "give its first operator with state, or its with_regime, another id="
            raise DefinitionError(f"a batch part cannot be named {BACKFILL!r}: the app's backfill is", hint=hint)
    for stage in stages:
        if seen.setdefault(stage.id, stage) is not stage:
            raise DefinitionError(f"two stages would be named {stage.id!r}", hint="give one of its operators an id=")
