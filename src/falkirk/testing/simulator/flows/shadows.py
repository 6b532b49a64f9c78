"""What a shadow makes beside an app (`falkirk.stream.evolution.shadow`), for an app that takes it over."""

from __future__ import annotations

from falkirk.checkpoint.ids import TopicPartition
from falkirk.checkpoint.overlay import EmptyReader, Overlay
from falkirk.runtime.layout.layout import ShadowRecord
from falkirk.stream.dataflow.circuit import Slice, StepInput
from falkirk.stream.dataflow.records import Records
from falkirk.stream.definition.names import changelog_topic, shadow_app
from falkirk.stream.stages.plan import Plan
from falkirk.testing.cluster import SETTINGS, Cluster


def shadowed(cluster: Cluster, plan: Plan, rebuilt: str, upto: int) -> dict[str, ShadowRecord]:
    """An operator of `plan` is rebuilt beside the app that runs on the cluster, from as many records of each partition, one a
    step. Returns what the next layout takes over. (The workers of a shadow are not simulated.)"""
    stage = cluster.shadow_stage(plan, rebuilt)
    topic = changelog_topic(SETTINGS.prefix, shadow_app(plan.app), stage.id)
    tasks = [bound for bound in cluster.tasks if bound.stage.id == stage.id]
    cluster.broker.create(topic, len(tasks))
    for bound in tasks:
        p = bound.task.id.partition
        circuit, state = stage.circuit(p, cluster.layout), Overlay(EmptyReader())
        log = cluster.broker[TopicPartition(topic, p)]
        for i in bound.inputs:
            for message in cluster.read(i.place, 0, upto):
                step = Overlay(state)
                read = Slice(i.input.id, i.place.topic, i.place.partition, Records.of([message]))
                circuit.run(StepInput(cluster.clock, [read]), step)
                for key, value in step.changes.items():
                    log.append(key, value, 0, None)
                state.put(list(step.changes), list(step.changes.values()))
    ends = tuple(cluster.broker[TopicPartition(topic, p)].end for p in range(len(tasks)))
    return {stage.id: ShadowRecord(topic, topic, ends)}
