"""What outlives a worker under test: a simulated cluster with an app's topics on it, and the disk of one host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from falkirk.checkpoint.ids import Millis, Nonce, Offset, TopicPartition
from falkirk.checkpoint.records import TaskRecord, decode
from falkirk.connectors.kafka.admin.described import TopicInfo
from falkirk.errors import ConfigError
from falkirk.runtime.app.app import lay_out
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout.compatibility import (
    as_recorded,
    check_moved_sinks,
    check_stages,
    check_tasks,
    stage_records,
)
from falkirk.runtime.layout.layout import LayoutRecord, ShadowRecord, StageRecord, TopicRecord
from falkirk.runtime.layout.preflight import growing_of, matched, roles_of
from falkirk.runtime.layout.wanted_topics import topics_to_make
from falkirk.runtime.rebuild.checks import check_ended, check_sent, check_stage
from falkirk.state import schema
from falkirk.stream.dataflow.records import Headers
from falkirk.stream.dataflow.topics import Layout
from falkirk.stream.definition.names import steps_topic
from falkirk.stream.evolution.rebuild_plan import check_known, check_rebuilt
from falkirk.stream.evolution.shadow import ShadowStage, shadow_of
from falkirk.stream.stages.plan import Plan
from falkirk.stream.stages.stage import PhysicalStage
from falkirk.testing.simulator.cluster.broker import SimBroker
from falkirk.testing.simulator.cluster.group import Group
from falkirk.testing.simulator.cluster.partition import Entry
from falkirk.testing.simulator.disk import Copies, Disk
from falkirk.wording import counted

BEGINNING = Millis(int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000))
"""When a test begins, unless it says otherwise."""
SETTINGS = Settings("", "")
ACCEPTED = 1_048_588
"""The largest record, in bytes, that a topic accepts by default; an app's own topics accept twice as many."""
CHUNK = 100
"""Rows of a shadow that a step takes, if nothing else is said."""


class Message:
    """A record that was read: `falkirk.stream.dataflow.records.Message`."""

    __slots__ = ("entry", "place")

    def __init__(self, place: int, entry: Entry) -> None:
        self.place, self.entry = place, entry

    def key(self) -> bytes | None:
        return self.entry.key

    def value(self) -> bytes | None:
        return self.entry.value

    def offset(self) -> int:
        return self.entry.offset

    def partition(self) -> int:
        return self.place

    def timestamp(self) -> tuple[int, int]:
        return 1, self.entry.timestamp

    def headers(self) -> Headers | None:
        return self.entry.headers or None

    def __len__(self) -> int:
        return len(self.entry.key or b"") + len(self.entry.value or b"")


class Cluster:
    """The topics that a run would make, and the stores of one host. The clock moves only when it is told to."""

    def __init__(
        self, plan: Plan, partitions: int | Mapping[str, int], names: Collection[str] = (), clock: Millis = BEGINNING
    ) -> None:
        """`names`: topics that patterns match, beside those in `partitions`. `clock`: where it begins."""
        given = partitions.keys() if isinstance(partitions, Mapping) else ()
        self.clock = clock
        self.corrects = False
        """Whether recorded steps that give another output are corrected."""
        self.shadows: Mapping[str, ShadowRecord] = {}
        """What was rebuilt beside the app, by stage: the layouts that follow take it over."""
        self.chunk = CHUNK
        self.calls: Counter[str] = Counter()
        """Of each operator that calls others."""
        self.copies = Copies()
        self.disk = Disk(self.copies, rebuilds=lambda _: True)
        self._nonces = 0
        self._partitions = partitions
        self._recorded: LayoutRecord | None = None
        self.counts: dict[str, int] = {}
        self.broker = SimBroker(now=clock, group=Group(0))
        self._lay_out(matched(plan, SETTINGS.prefix, {*names, *given}))

    def join(self, topic: str, partitions: int) -> None:
        """Make a topic that a pattern of the flow matches. Workers must restart, and then find it."""
        self.counts[topic] = partitions
        self.change(self.plan)

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic so many partitions. Workers must restart, and then read them. Raises ConfigError if the app cannot."""
        if topic not in growing_of(self.plan) or partitions < self.counts[topic]:
            raise ConfigError(
                f"topic {topic!r} cannot have {counted(partitions, 'partition')} from now on",
                hint="only topics of sources without a key, or with repartition=True, get more partitions",
            )
        self.counts[topic] = partitions
        self.change(self.plan)

    def change(self, plan: Plan, losing: Collection[str] = (), rebuilt: Collection[str] = ()) -> None:
        """Continue with another flow, as a run of it would: workers must restart. Raises StateError and SourceError."""
        self._lay_out(matched(plan, SETTINGS.prefix, self.counts.keys()), losing, rebuilt)

    def shadow_stage(self, plan: Plan, rebuilt: str) -> ShadowStage:
        """The stage with an operator that the next flow rebuilds, as a shadow of the app runs it. Raises ConfigError and
        StateError."""
        known = self._recorded
        assert known is not None
        stages = as_recorded(known, matched(plan, SETTINGS.prefix, self.counts.keys()).stages, [rebuilt])
        for stage, was in zip(stages, known.stages, strict=True):
            if ids := schema.change(was.state, stage.state_schema).rebuilt:
                needed = check_rebuilt(stage, ids)
                assert needed is not None
                assert isinstance(stage, PhysicalStage)
                return shadow_of(stage, ids, needed)
        raise AssertionError(f"{rebuilt} is not rebuilt")

    def _lay_out(self, plan: Plan, losing: Collection[str] = (), rebuilt: Collection[str] = ()) -> None:
        known = self._recorded
        check_known(plan, rebuilt)
        plan = replace(plan, stages=tuple(as_recorded(known, plan.stages, rebuilt)))
        were = {} if known is None else {stage.id: stage.tasks for stage in known.stages}
        counts, sizes = _counts(plan, self._partitions, self.counts, were)
        number = 1 if known is None else known.number + 1
        stages = stage_records(plan.stages, sizes, known, number)
        if known is not None:
            check_moved_sinks(known, plan)
            check_tasks(plan, sizes, has_run=True)
            check_stages(known, stages, losing)
            self._check_rebuilds(known, plan, stages)
        self.plan = plan
        self.counts |= counts
        roles = {topic: role for topic, role in roles_of(plan, SETTINGS).items() if topic in self.counts}
        topics = {topic: TopicRecord(topic, self.counts[topic], role) for topic, role in roles.items()}
        self._recorded = LayoutRecord(number, plan.app, stages, topics)
        self.layout = Layout(self.counts, tasks=sizes)
        infos = {name: TopicInfo(name, name, count) for name, count in self.counts.items()}
        self.tasks = lay_out(plan, SETTINGS, number, sizes, infos, self.shadows)
        sinks = {o.topic for part in plan.parts for o in part.outputs if o.kind == "sink"}
        self.limits = {name: ACCEPTED if name in sinks else 2 * ACCEPTED for name in self.counts}
        for name, count in {**self.counts, steps_topic(SETTINGS.prefix, plan.app): len(self.tasks)}.items():
            self.broker.create(name, count)
        for member in self.broker.group.members:
            self.broker.group.expire(member)
        self.broker.group.partitions = len(self.tasks)

    def _check_rebuilds(self, known: LayoutRecord, plan: Plan, now: Sequence[StageRecord]) -> None:
        """As `falkirk.runtime.rebuild.checks.check_rebuilds`, where no input is ever trimmed."""
        place = 0
        for was in known.stages:
            here = [(stage, record) for stage, record in zip(plan.stages, now, strict=True) if record.id == was.id]
            places = [TopicPartition(steps_topic(SETTINGS.prefix, plan.app), place + p) for p in range(was.tasks)]
            place += was.tasks
            for stage, record in here:
                if (needed := check_stage(was, record, stage)) is not None:
                    check_ended(was, record, [self._records(p) for p in places], running=False)
                    check_sent(needed, self._all_of)

    def _all_of(self, edge: str) -> Iterator[tuple[TopicPartition, bytes | None]]:
        for place in (TopicPartition(edge, p) for p in range(self.counts.get(edge, 0))):
            yield from ((place, message.value()) for message in self.read(place, 0))

    def _records(self, place: TopicPartition) -> list[tuple[Offset, TaskRecord]]:
        return [(Offset(m.offset()), decode(value)) for m in self.read(place, 0) if (value := m.value()) is not None]

    def now(self) -> Millis:
        """The port `Clock`."""
        return self.clock

    def nonce(self) -> Nonce:
        """A fresh one."""
        self._nonces += 1
        return Nonce(f"n{self._nonces}")

    def read(self, place: TopicPartition, start: int, most: int | None = None) -> list[Message]:
        """The committed records of a partition from an offset on, or the first of them."""
        partition, at = self.broker[place], start
        found: list[Entry] = []
        while at < partition.stable and (most is None or len(found) < most):
            some, at = partition.committed(at, partition.end if most is None else at + most - len(found))
            found += some
        return [Message(place.partition, e) for e in found]

    def between(self, place: TopicPartition, start: int, end: int) -> list[Message]:
        """The committed records of a partition with start ≤ offset < end."""
        return [Message(place.partition, e) for e in self.broker[place].committed(start, end)[0]]

    def lose_disk(self) -> None:
        """The host's disk is lost: the next worker finds only the cluster."""
        self.disk = Disk(self.copies, rebuilds=lambda _: True)


def _counts(
    plan: Plan, partitions: int | Mapping[str, int], known: Mapping[str, int], were: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, int]]:
    """The partitions of each topic and the tasks of each stage, if some are already known. Raises ConfigError and
    SourceError."""
    read = {i.topic for part in plan.parts for i in part.inputs if i.kind == "source"}
    read |= {table.source.topic for table in plan.shared} - {o.topic for part in plan.parts for o in part.outputs}
    if isinstance(partitions, Mapping) and not known and (unknown := sorted(partitions.keys() - read)):
        raise ConfigError(f"the flow reads no topic {unknown[0]!r}", hint=f"it reads {', '.join(sorted(read))}")
    if unmatched := [i for stage in plan.stages for i in stage.inputs if not i.resolved]:
        raise ConfigError(
            f"no topic matches {unmatched[0].topic}",
            where=f"source {unmatched[0].id}",
            hint='name those there are: fk.testing.run(flow, {"orders-eu": […]}), or partitions={"orders-eu": 2}',
        )
    have = {t: partitions if isinstance(partitions, int) else partitions.get(t, 1) for t in sorted(read)}
    if few := [t for t, n in have.items() if n < 1]:
        raise ConfigError(f"topic {few[0]!r} cannot have {have[few[0]]} partitions", hint="give it one at least")
    have |= known
    sizes, missing = topics_to_make(plan, SETTINGS, have, {}, were)
    return {**have, **{name: count for name, (count, _) in missing.items()}}, sizes
