"""Source topics that do not exist: `falkirk dev` creates them, and `falkirk topics --create --sources` does on a cluster.

For a run, a missing source topic is an error: a misspelt name must not become an empty topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from falkirk.checkpoint.ids import cluster_of, name_of
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.errors import ConfigError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout.preflight import others, roles_of
from falkirk.stream.stages.plan import Plan

PARTITIONS = 4
"""Of a created topic, if nobody says how many."""


def with_stand_ins(plan: Plan, settings: Settings) -> Settings:
    """The settings with the one existing Kafka in place of each cluster that is not given. Raises ConfigError if two topics
    would become one."""
    missing = set(others(plan)) - settings.clusters.keys()
    there: dict[str, str] = {}
    for topic in roles_of(plan, settings):
        if (cluster := cluster_of(topic)) and cluster not in missing:
            continue
        if (other := there.setdefault(name_of(topic), topic)) != topic:
            raise ConfigError(
                f"one Kafka stands for all clusters here, and topics {other!r} and {topic!r} would be one",
                hint="give one of them a name of its own (topic=), or another Kafka: "
                f"--cluster {cluster or cluster_of(other)}=HOST:PORT",
            )
    stand_ins: Mapping[str, Cluster] = {name: replace(settings.cluster(), name=name, others={}) for name in missing}
    return replace(settings, clusters={**settings.clusters, **stand_ins})


def missing_sources(plan: Plan, topics: Topics) -> dict[str, dict[str, str]]:
    """The topics that the flow reads and that do not exist: the settings of each, by its address. The app itself creates a
    table that it writes, and the topic of an HTTP source; a pattern names no topic."""
    tables = {table.source.topic for table in plan.shared} - {o.topic for part in plan.parts for o in part.outputs}
    read = (i for part in plan.parts for i in part.inputs if i.kind == "source" and i.made is None)
    wanted = {i.topic for i in read if i.resolved} | tables
    missing = sorted(wanted - topics.describe(wanted).keys())
    return {topic: {"cleanup.policy": "compact"} if topic in tables else {} for topic in missing}


def create_missing_sources(plan: Plan, topics: Topics, partitions: int = PARTITIONS) -> list[str]:
    """Create them for development, empty; return their addresses."""
    missing = missing_sources(plan, topics)
    for topic, config in missing.items():
        topics.of(cluster_of(topic)).create(name_of(topic), partitions, 1, config)
    return list(missing)
