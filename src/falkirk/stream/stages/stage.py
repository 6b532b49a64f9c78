"""A stage as the planner makes it: operators fused between exchanges, and what they read and write."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from falkirk.state import schema
from falkirk.state.shards import shard_range
from falkirk.stream.dataflow.circuit import Circuit, Evolution
from falkirk.stream.dataflow.event_time import WATERMARKS
from falkirk.stream.dataflow.handling import Handling
from falkirk.stream.dataflow.operator import RESERVED, Operator
from falkirk.stream.dataflow.topics import Input, Layout, Output
from falkirk.stream.definition.regime_plan import RegimePlan
from falkirk.stream.formats import Format, Key
from falkirk.stream.operators.sources.requests import HttpSource
from falkirk.stream.operators.sources.source import Source
from falkirk.stream.operators.sources.table import TableSource
from falkirk.stream.stages.kept import kept_by, kept_earlier


def source_inputs(source: Source) -> list[Input]:
    """A source as inputs of a stage: one for each topic, as far as they are known."""
    several = None if isinstance(source.topics, str) else source.topics
    one = Input(
        source.id, source.topic, "source", source.start, "headers" in source.metadata.values(),
        source.latest_per_key, several, source.spread or (several is not None and not source.checked), source.spread,
        source.time is not None, source.made if isinstance(source, HttpSource) else None, source.every,
    )  # fmt: skip
    return [replace(one, topic=topic) for topic in several] if isinstance(several, tuple) else [one]


def stage_name(members: Sequence[Operator], inputs: Sequence[Input]) -> str:
    """A stage is known by its first operator with an id that lasts: one with state, or else what it begins with."""
    stateful = [o.id for o in members if o.stateful]
    return stateful[0] if stateful else members[0].root or inputs[0].id


@dataclass(frozen=True, eq=False, slots=True)
class Edge:
    """A topic between two stages."""

    id: str
    topic: str
    before: Operator
    after: Operator
    port: int
    """Which input of `after` it is."""
    key: Key | None
    """What decides which task gets a row; None: the task with the sender's number."""
    columns: tuple[str, ...]
    """Those that are needed behind it."""
    timed: bool = False
    """Whether it carries the watermarks of its senders: an operator behind it asks for them."""

    @property
    def changes(self) -> bool:
        """Does it carry weights?"""
        return self.before.changes

    @property
    def table(self) -> bool:
        """Is it looked up in?"""
        return self.port in self.after.table_ports


def keeps_time(sources: Iterable[Source], edges: Iterable[Edge]) -> bool:
    """Whether a stage with these inputs keeps their times."""
    return any(source.watermarked for source in sources) or any(edge.timed for edge in edges)


def kept_of(keeping: Iterable[Operator], sources: Iterable[Source], edges: Iterable[Edge]) -> dict[str, int]:
    """What a stage keeps: how many tables, by their words."""
    return kept_by(keeping) | ({WATERMARKS: 1} if keeps_time(sources, edges) else {})


@dataclass(frozen=True, eq=False, slots=True)
class SharedTable:
    """A broadcast table: read by each worker, for all its tasks."""

    source: TableSource
    value: Format
    columns: tuple[str, ...]
    """Those that are looked up."""
    epochs: str | None
    """The topic that says which epochs are complete, where the table is the result of a batch part of the flow."""

    @property
    def input(self) -> Input:
        """What is read."""
        return Input(self.source.id, self.source.topic, "source", table=True, headers=self.epochs is not None)


@dataclass(frozen=True, eq=False, slots=True)
class PhysicalStage:
    """See `falkirk.stream.stages.plan.Stage`."""

    app: str
    id: str
    operators: tuple[Operator, ...]
    """Without sources, in the order of definition."""
    sources: Mapping[Source, Format]
    """With the format that decodes the columns which are used here."""
    edges_in: tuple[Edge, ...]
    edges_out: tuple[Edge, ...]
    regime: RegimePlan
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    keeping: tuple[Operator, ...]
    """The operators with state."""
    state_schema: str
    dead_letters: str
    """The flow's topic of them; an operator may have another."""
    handled: Mapping[Operator, Handling]
    """What becomes of what fails, in each operator that can go on."""
    circuits: Callable[[PhysicalStage, int, Layout], Circuit]
    evolutions: Callable[[Any], Evolution]
    """How its tasks run, which lies in rooms above this one: the planner says it."""
    shared: tuple[SharedTable, ...] = ()

    @property
    def stateful(self) -> bool:
        return bool(self.keeping) or self.watermarked

    @property
    def watermarked(self) -> bool:
        """Whether its tasks keep the times of their inputs."""
        return keeps_time(self.sources, self.edges_in)

    @property
    def time_table(self) -> int:
        """The number of the table with these times in keys of state."""
        return schema.numbers(self.state_schema)[schema.id_of(WATERMARKS)][0]

    @property
    def tables(self) -> Mapping[tuple[str, str], int]:
        """Operator's id and table's name → the table's number in keys of state."""
        known = schema.numbers(self.state_schema)
        return {(o.id, t): n for o in self.keeping for t, n in zip(sorted(o.tables()), known[o.id], strict=True)}

    @property
    def remembered(self) -> int | None:
        """For how many milliseconds of event time its state depends on a row, after the row's time; None: for ever."""
        spans = [o.remembered for o in self.operators]
        known = [span for span in spans if span is not None]
        evolved = any(line.sign for line in schema.lines(self.state_schema))
        return None if evolved or self.shared or len(known) < len(spans) else sum(known)

    @property
    def calls_others(self) -> bool:
        return any(o.calls_others for o in self.operators)

    @property
    def most_rows(self) -> int | None:
        return min((most for o in self.operators if (most := o.most_rows) is not None), default=None)

    @property
    def all_to_one(self) -> str:
        """What sends all rows to one of its tasks, however many there are; "": nothing."""
        for edge in self.edges_in:
            key = edge.key.columns if edge.key is not None else ()
            if key and all(map(edge.before.constant, key)):
                named = [column for column in key if not column.startswith(RESERVED)]
                same = f"{', '.join(named)} {'is' if len(named) == 1 else 'are'} the same in each of them"
                after = f"{edge.after.kind} {edge.after.id}"
                return f"all rows of {after} go to one task: {same if named else 'it has no key'}"
        return ""

    @property
    def partitioned_by(self) -> Literal["topic", "shards"]:
        return "topic" if self.sources else "shards"

    def first_shard(self, task: int, tasks: int) -> int:
        """The shard under which one of so many tasks keeps what belongs to the task rather than to a key. Where a topic's
        partitions cut the keys, every task has all shards."""
        return 0 if self.partitioned_by == "topic" else shard_range(task, tasks).start

    @property
    def scales(self) -> bool:
        return not self.sources and bool(self.edges_in) and all(edge.key is not None for edge in self.edges_in)

    @property
    def fingerprint(self) -> str:
        return hashlib.blake2b(self.state_schema.encode(), digest_size=16).hexdigest()

    def with_recorded_schema(self, name: str, state_schema: str, rebuilt: Collection[str] = ()) -> PhysicalStage:
        now = schema.evolved(
            state_schema, kept_of(self.keeping, self.sources, self.edges_in), kept_earlier(self.keeping), rebuilt
        )
        return replace(self, id=name, state_schema=now)

    def reading(self, inputs: tuple[Input, ...]) -> PhysicalStage:
        return replace(self, inputs=inputs)

    def circuit(self, partition: int, layout: Layout) -> Circuit:
        return self.circuits(self, partition, layout)

    def evolution(self, circuit: Any) -> Evolution:
        return self.evolutions(circuit)
