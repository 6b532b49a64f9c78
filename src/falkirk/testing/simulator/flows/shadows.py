"""A shadow beside an app (`falkirk.runtime.app.shadow_app`), and what it has made when the app takes it over."""

from __future__ import annotations

from dataclasses import replace

from falkirk.checkpoint.ids import Millis, Offset
from falkirk.runtime.app.app import Until
from falkirk.runtime.layout.layout import ShadowRecord
from falkirk.stream.definition.names import changelog_topic, shadow_app
from falkirk.stream.stages.plan import Plan
from falkirk.testing.cluster import SETTINGS, Cluster
from falkirk.testing.simulator.cluster.broker import SimBroker


def shadow_beside(app: Cluster, plan: Plan, rebuilt: str, upto: int) -> Cluster:
    """What rebuilds an operator of `plan` beside an app that has read so many records of each partition. It has a cluster of
    its own still."""
    stage = app.shadow_stage(plan, rebuilt)
    reads = {i.topic: app.counts[i.topic] for i in stage.inputs}
    shadow = Cluster(Plan(shadow_app(plan.app), (stage,)), reads)
    until = Until({i.place: Offset(upto) for bound in shadow.tasks for i in bound.inputs}, Millis(app.broker.now))
    shadow.tasks = tuple(replace(bound, until=until) for bound in shadow.tasks)
    return shadow


def made_by(shadow: Cluster, broker: SimBroker) -> dict[str, ShadowRecord]:
    """What the app's next layout takes over, by stage: the changelogs up to where they end now."""
    topics = {s.id: changelog_topic(SETTINGS.prefix, shadow.plan.app, s.id) for s in shadow.plan.stages}
    return {
        stage: ShadowRecord(topic, topic, tuple(Offset(log.end) for log in broker.partitions(topic)))
        for stage, topic in topics.items()
    }
