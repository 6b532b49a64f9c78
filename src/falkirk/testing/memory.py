"""Only the circuits of a flow, over topics that are lists: any division, and no protocol. For tests of the operators; for
tests of a flow, use `falkirk.testing.App`.

    >>> import falkirk as fk
    >>> flow = fk.Flow("words")
    >>> words = flow.source("words", key="word", value=fk.Json({"word": fk.String}))
    >>> words.group_by("word").agg(n=fk.len()).sink("counts", key="word", value=fk.Json())
    >>> app = MemoryApp(flow)
    >>> app.append("words", b"a", b'{"word":"a"}')
    >>> app.run()
    >>> [r.value() for r in app.records("counts")]
    [b'{"word":"a","n":1}']

Each step runs twice over the same state; other bytes the second time are an error, because a replay would fail on them.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from falkirk.checkpoint.ids import Offset
from falkirk.checkpoint.overlay import Overlay
from falkirk.state.shards import murmur2_of
from falkirk.stream.circuit.broadcast import NEVER, Keeper, Run
from falkirk.stream.dataflow.circuit import Circuit, SharedRows, Slice, StepInput, StepOutput
from falkirk.stream.dataflow.records import Records
from falkirk.stream.dataflow.topics import Input, Layout, Output
from falkirk.stream.flow.flow import Flow
from falkirk.stream.stages.plan import Stage


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a topic, as a circuit sees it."""

    the_partition: int
    the_offset: int
    the_key: bytes | None
    the_value: bytes | None
    millis: int = 0
    the_headers: tuple[tuple[str, bytes], ...] = ()

    def key(self) -> bytes | None:
        return self.the_key

    def value(self) -> bytes | None:
        return self.the_value

    def offset(self) -> int:
        return self.the_offset

    def partition(self) -> int:
        return self.the_partition

    def timestamp(self) -> tuple[int, int]:
        return 1, self.millis

    def __len__(self) -> int:
        return len(self.the_key or b"") + len(self.the_value or b"")

    def headers(self) -> list[tuple[str, bytes]] | None:
        return list(self.the_headers) or None


class DictState:
    """State in a dict."""

    def __init__(self) -> None:
        self.data: dict[bytes, bytes] = {}

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self.data.get, keys))

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted((k, v) for k, v in self.data.items() if start <= k < end))

    def put(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        for key, value in zip(keys, values, strict=True):
            if value is None:
                self.data.pop(key, None)
            else:
                self.data[key] = value


class MemoryApp:
    """All tasks of a flow, each with its state and its position in every input."""

    def __init__(self, flow: Flow, partitions: Mapping[str, int] | None = None, *, tasks: int = 1) -> None:
        """`partitions` counts those of topics; all others have one, and edges have `tasks`."""
        self.plan = flow.plan()
        topics: list[Input | Output] = []
        for stage in self.plan.stages:
            topics += [*stage.inputs, *stage.outputs]
        for batch in self.plan.batches:
            topics += [*batch.inputs, *batch.outputs]
        topics += [table.input for table in self.plan.shared]
        counts = {t.topic: tasks if t.kind == "edge" else (partitions or {}).get(t.topic, 1) for t in topics}
        self.layout = Layout(counts)
        self.topics: dict[str, list[list[Record]]] = {topic: [[] for _ in range(n)] for topic, n in counts.items()}
        self.states: defaultdict[tuple[str, int], DictState] = defaultdict(DictState)
        self.places: defaultdict[tuple[str, int, str], int] = defaultdict(int)
        self.circuits: dict[tuple[str, int], Circuit] = {}
        self.clock = 0
        self.tables = [(Keeper(table), DictState()) for table in self.plan.shared]

    def append(
        self, topic: str, key: bytes | None, value: bytes | None, *, partition: int | None = None, timestamp: int = 0
    ) -> None:
        """Write a record, placed as Java's producers would, or in `partition`."""
        parts = self.topics[topic]
        if partition is None:
            partition = (murmur2_of(key or b"") & 0x7FFFFFFF) % len(parts)
        parts[partition].append(Record(partition, len(parts[partition]), key, value, timestamp))

    def records(self, topic: str) -> list[Record]:
        """All records of a topic, partition by partition."""
        return [record for part in self.topics[topic] for record in part]

    def latest(self, topic: str) -> dict[bytes | None, bytes]:
        """What a reader that keeps the last record of each key ends up with; a tombstone removes the key."""
        found: dict[bytes | None, bytes] = {}
        for record in self.records(topic):
            value = record.value()
            if value is None:
                del found[record.key()]
            else:
                found[record.key()] = value
        return found

    def tasks(self) -> list[tuple[Stage, int]]:
        """Every task: a stage has as many as its largest topic has partitions."""
        return [
            (stage, task)
            for stage in self.plan.stages
            for task in range(max(len(self.topics[i.topic]) for i in stage.inputs))
        ]

    def waiting(self, stage: Stage, task: int) -> dict[str, int]:
        """How many records wait for a task, by input."""
        counts = {}
        for i in stage.inputs:
            parts = self.topics[i.topic]
            if task < len(parts):
                counts[i.id] = len(parts[task]) - self.places[stage.id, task, i.id]
        return counts

    def step(self, stage: Stage, task: int, take: Mapping[str, int], clock: int | None = None) -> StepOutput:
        """One step of one task over the next `take` records of each input. Its effects are visible when it returns."""
        self.clock = max(self.clock, clock if clock is not None else self.clock)
        slices = []
        for i in stage.inputs:
            if n := take.get(i.id, 0):
                place = self.places[stage.id, task, i.id]
                found = self.topics[i.topic][task][place : place + n]
                slices.append(Slice(i.id, i.topic, task, Records.of(found, headers=i.headers)))
        circuit = self.circuits.get((stage.id, task))
        if circuit is None:
            circuit = self.circuits[stage.id, task] = stage.circuit(task, self.layout)
        state = self.states[stage.id, task]
        first, second = Overlay(state), Overlay(state)
        given = StepInput(self.clock, slices, self._shared())
        output = circuit.run(given, first)
        again = stage.circuit(task, self.layout).run(given, second)
        assert output == again, f"two runs of one step of {stage.id}/{task} gave {output} and {again}"
        assert first.changes == second.changes, f"two runs of one step of {stage.id}/{task} changed state differently"
        state.put(list(first.changes), list(first.changes.values()))
        for s in slices:
            self.places[stage.id, task, s.input] += len(s.records)
        for e in output.emitted:
            for p, key, value, millis in zip(e.partitions, e.keys, e.values, e.timestamps, strict=True):
                self.append(e.topic, key, value, partition=p, timestamp=millis)
        return output

    def _shared(self) -> dict[str, SharedRows]:
        """The broadcast tables, which hold all that is in their topics."""
        for keeper, state in self.tables:
            about = keeper.about(state)
            for p, part in enumerate(self.topics[keeper.table.source.topic]):
                at = about.positions.get(p, 0)
                if at < len(part):
                    keeper.keep(Run(p, NEVER, Records.of(part[at:])), state, NEVER)
                    about.positions[p] = Offset(len(part))
            keeper.tell(state, about)
        return {keeper.table.source.id: keeper.seen(state, NEVER) for keeper, state in self.tables}

    def run(self, rng: random.Random | None = None, *, tick: int = 1) -> None:
        """Step until nothing waits: all that waits at once, or, with `rng`, any task and any positive number of records.
        `tick`: the milliseconds that pass before each step."""
        while True:
            ready = [(s, t, counts) for s, t in self.tasks() if any((counts := self.waiting(s, t)).values())]
            if not ready:
                return
            for stage, task, counts in [rng.choice(ready)] if rng else ready[:1]:
                take = {i: rng.randint(0, n) for i, n in counts.items()} if rng else counts
                if not any(take.values()):
                    take = {next(i for i, n in counts.items() if n): 1}
                self.step(stage, task, take, self.clock + tick)
