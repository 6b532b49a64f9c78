"""A flow over some input on a real Kafka, by one worker in this process: the fixture `falkirk_run` uses it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import msgspec
from confluent_kafka import Message, Producer

from falkirk.checkpoint.ids import Millis, name_of
from falkirk.connectors.kafka.admin.topic_settings import FOREVER
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.clients import client
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.reading.peek import ALL, TopicPeek
from falkirk.errors import ClusterError, ConfigError
from falkirk.runtime.app.app import prepare
from falkirk.runtime.app.sources import with_stand_ins
from falkirk.runtime.app.until_end import UntilEnd
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout.preflight import matched
from falkirk.runtime.processes.draining import Following
from falkirk.runtime.worker.work import work
from falkirk.stream.access.endpoints import views_of
from falkirk.stream.access.producing import Rows, encoded, placed, source_named, topic_of
from falkirk.stream.flow.flow import Flow
from falkirk.stream.stages.plan import Plan
from falkirk.testing.records import Sink, Sinks, sink_of


@dataclass(frozen=True, slots=True)
class Result:
    """What a flow has written."""

    sinks: Mapping[str, Sink]
    """By name; records come partition by partition."""
    dead_letters: list[dict[str, Any]]


Run: TypeAlias = Callable[..., Result]


def run(
    brokers: str, folder: Path, flow: Flow, inputs: Mapping[str, Rows], *, partitions: int | Mapping[str, int] = 1
) -> Result:
    """Run a flow over all of some input, as `falkirk.testing.run` does, on a cluster. Its topics are deleted first, so that
    every run begins from scratch. Raises FalkirkError."""
    prefix = f"test-{uuid4().hex[:8]}"
    plan = matched(flow.plan(prefix), prefix, inputs.keys())
    if plan.batches:
        raise ConfigError(f"flow {flow.name!r} has batch parts, which need a driver", hint="try them with falkirk dev")
    settings = with_stand_ins(plan, Settings(brokers, str(folder / prefix), prefix=prefix))
    topics = Topics(settings.cluster())
    read = {i.topic for stage in plan.stages for i in stage.inputs if i.kind == "source"}
    read |= {table.source.topic for table in plan.shared}
    counts = {t: partitions if isinstance(partitions, int) else partitions.get(t, 1) for t in read}
    topics.delete(sorted({name_of(t) for t in read} | {o.topic for part in plan.parts for o in part.outputs}))
    for topic, count in counts.items():
        topics.create(name_of(topic), count, -1, FOREVER)  # records of a test may have any age
    _write(settings.cluster(), plan, inputs, counts)
    app = prepare(plan, settings, topics)
    end = Following(lambda: UntilEnd(app, settings.cluster(), topics))
    work(app, settings, topics, 0, end.finished, lambda report: None)
    return _written(plan, settings, topics)


def _write(cluster: Cluster, plan: Plan, inputs: Mapping[str, Rows], counts: Mapping[str, int]) -> None:
    producer, unkeyed = client(Producer, {**cluster.settings(), "enable.idempotence": True}), Counter[str]()
    for name, rows in inputs.items():
        source = source_named(plan, name)
        topic = topic_of(source, name)
        for sent in encoded(source, rows, Millis(int(time.time() * 1000))):
            partition, to = placed(sent, topic, counts[topic], unkeyed), name_of(topic)
            producer.produce(to, sent.value, sent.key, partition, timestamp=sent.millis, headers=list(sent.headers))
            producer.poll(0)
    if producer.flush(30):
        raise ClusterError("the input could not be written within 30 s", where=f"brokers {cluster.brokers}")


def _written(plan: Plan, settings: Settings, topics: Topics) -> Result:
    views = {view.name: view for view in views_of(plan) if view.kind == "sink"}
    letters = {o.topic for part in plan.parts for o in part.outputs if o.kind == "dead_letters"}
    infos = topics.describe([*(view.topic for view in views.values()), *letters])

    def all_of(topic: str) -> list[Message]:
        if topic not in infos:
            return []
        with closing(TopicPeek(settings.cluster(), topics, infos[topic])) as peek:
            return sorted(peek.first(ALL), key=lambda m: (m.partition() or 0, m.offset() or 0))

    sinks = {name: sink_of(view, all_of(view.topic)) for name, view in views.items()}  # type: ignore[arg-type]
    return Result(
        Sinks(sinks), [msgspec.json.decode(m.value() or b"{}") for topic in sorted(letters) for m in all_of(topic)]
    )
