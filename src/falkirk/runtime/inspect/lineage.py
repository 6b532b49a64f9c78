"""Asks a cluster why a record exists: which app wrote it, and then step by step (`falkirk.runtime.inspect.lineage_step`)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from confluent_kafka import Message as KafkaMessage

from falkirk.checkpoint.driver import run
from falkirk.checkpoint.epochs import Epochs, catch_up
from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.connectors.kafka.admin.described import TopicInfo
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.app_topics.control import ControlTopic
from falkirk.connectors.kafka.app_topics.epochs import KafkaEpochLog
from falkirk.connectors.kafka.reading.peek import TopicPeek
from falkirk.errors import ClusterError, ConfigError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.inspect.lineage_step import LineageNode, Read, Tracer
from falkirk.runtime.layout.layout import LayoutRecord, read_layout
from falkirk.stream.dataflow.provenance import Provenance, provenances
from falkirk.stream.dataflow.records import Message
from falkirk.stream.definition.names import control_topic, epochs_topic


@dataclass(slots=True)
class Answer:
    """Why a record exists."""

    app: str
    record: KafkaMessage
    origins: list[Provenance]
    """For a record of an edge there may be several."""
    made: list[LineageNode]
    """By each of them."""


@dataclass(slots=True)
class LineageReader:
    """Questions to one cluster; it is closed as a context."""

    settings: Settings
    topics: Topics
    _stack: ExitStack = field(default_factory=ExitStack)
    _peeks: dict[str, TopicPeek] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def ask(self, place: TopicPartition, offset: int | None, app: str | None = None) -> Answer:
        """Why the record at an offset exists; None: the last record of the partition. Raises ConfigError and ClusterError."""
        record = self._record(place, offset)
        origins = provenances(record)
        if not origins:
            raise ConfigError(
                f"no app of Falkirk wrote {place.topic}:{place.partition}:{record.offset()}: it has no provenance header",
                hint="ask about a record of a sink, an edge or the dead letters",
            )
        name, layout = self._writer(place.topic, origins[0], app)
        if origins[0].task is not None:
            tracer = Tracer(name, layout, self.settings.prefix, self)
            return Answer(name, record, origins, [tracer.trace(origin) for origin in origins])
        return Answer(name, record, origins, [self._epoch(name, layout, place.topic, origins[0].epoch or 0)])

    def begin(self, place: TopicPartition) -> int:
        """See `falkirk.runtime.inspect.lineage_step.Topics`."""
        return self.topics.offsets([place], "earliest")[place]

    def between(self, place: TopicPartition, start: int, end: int | None) -> Sequence[Message]:
        """See `falkirk.runtime.inspect.lineage_step.Topics`."""
        return self.messages(place, start, end)  # type: ignore[return-value]  # the client's types allow for no record

    def messages(self, place: TopicPartition, start: int, end: int | None) -> list[KafkaMessage]:
        """The records of a range that still exist."""
        first, last = self.begin(place), self.topics.offsets([place], "latest")[place]
        bounds = Offset(max(start, first)), Offset(last if end is None else min(end, last))
        return self._peek(place.topic).between({place.partition: bounds}) if bounds[0] < bounds[1] else []

    def _peek(self, topic: str) -> TopicPeek:
        if topic not in self._peeks:
            peek = TopicPeek(self.settings.cluster(), self.topics, self._info(topic))
            self._peeks[topic] = self._stack.enter_context(closing(peek))
        return self._peeks[topic]

    def _info(self, topic: str) -> TopicInfo:
        if (found := self.topics.describe([topic]).get(topic)) is None:
            raise ClusterError(f"topic {topic!r} does not exist", where=f"brokers {self.settings.brokers}")
        return found

    def _record(self, place: TopicPartition, offset: int | None) -> KafkaMessage:
        self.topics.check_reachable(timeout=5.0)
        if place.partition >= (count := self._info(place.topic).partitions):
            raise ConfigError(
                f"topic {place.topic!r} has no partition {place.partition}", hint=f"it has 0 to {count - 1}"
            )
        if offset is None:
            if last_ones := self._peek(place.topic).last(1, place.partition):
                return last_ones[0]
            raise ConfigError(f"there is no record in partition {place.partition} of topic {place.topic!r}")
        if found := self.messages(place, offset, offset + 1):
            return found[0]
        first, last = self.begin(place), self.topics.offsets([place], "latest")[place]
        raise ConfigError(
            f"there is no record {place.topic}:{place.partition}:{offset}",
            where=f"the partition holds offsets {first} to {last - 1}" if last > first else "the partition is empty",
            hint="a marker of a transaction, an aborted record or one that was compacted away has an offset too"
            if first <= offset < last
            else f"falkirk peek {place.topic} shows its last ones",
        )

    def _writer(self, topic: str, origin: Provenance, app: str | None) -> tuple[str, LayoutRecord]:
        """The app that wrote a record: the one whose layout has the topic among its outputs, and the task."""
        prefix, suffix = control_topic(self.settings.prefix, "\0").split("\0")
        known = [
            name.removeprefix(prefix).removesuffix(suffix)
            for name in self.topics.names()
            if name.startswith(prefix) and name.endswith(suffix)
        ]
        layouts = {name: self._layout(name) for name in known if app in (None, name)}
        found = {name: x for name, x in layouts.items() if x is not None and _wrote(x, topic, origin)}
        who = f"task {origin.task}" if origin.task is not None else f"epoch {origin.epoch}"
        if not found:
            raise ConfigError(
                f"no known app writes {topic!r} by {who}" if app is None else f"app {app!r} does not",
                where=f"apps: {', '.join(known) or 'none'}",
                hint="did it have another --prefix, was it deleted, or does it run on another cluster?",
            )
        if len(found) > 1:
            raise ConfigError(
                f"several apps write {topic!r} by {who}: {', '.join(sorted(found))}", hint="say which with --app"
            )
        return next(iter(found.items()))

    def _layout(self, app: str) -> LayoutRecord | None:
        """None, too, if the app has been deleted since its topics were listed."""
        control_name = control_topic(self.settings.prefix, app)
        with closing(ControlTopic(self.settings.cluster(), control_name)) as control:
            try:
                return read_layout(control)
            except ClusterError:
                if control_name in self.topics.names():
                    raise
                return None

    def _epoch(self, app: str, layout: LayoutRecord, topic: str, number: int) -> LineageNode:
        """The opening of an epoch says what it reads."""
        begins = epochs_topic(self.settings.prefix, app, "")
        for name in sorted(t for t, record in layout.topics.items() if record.role == "epochs"):
            epochs = Epochs()
            with closing(KafkaEpochLog(self.settings.cluster())) as log:
                run(catch_up(log, TopicPartition(name, 0), epochs))
            known = [c.opened for c in epochs.kept] + ([epochs.opened] if epochs.opened is not None else [])
            for opened in known:
                if opened.epoch == number and any(o.topic == topic for o in opened.outputs):
                    reads = [
                        Read(topic=r.partition.place.topic, partition=r.partition.partition, start=r.start, end=r.end)
                        for r in opened.division
                    ]
                    stage = name.removeprefix(begins)
                    return LineageNode(
                        epoch=number, stage=stage, clock=opened.clock, owner=opened.driver or None, reads=reads
                    )
        return LineageNode(epoch=number)


def _wrote(layout: LayoutRecord, topic: str, origin: Provenance) -> bool:
    """Whether an app of this layout may have written such a record to a topic."""
    if origin.task is None:
        return topic in layout.topics and any(record.role == "epochs" for record in layout.topics.values())
    stage = origin.task.rpartition("/")[0]
    return any(s.id == stage and topic in s.outputs for s in layout.stages)
