"""Source topics for development. On a cluster a missing topic is an error: whoever owns it makes it."""

from __future__ import annotations

from falkirk.connectors.kafka.topics import Topics
from falkirk.runtime.survey import parts
from falkirk.stream.plan import Plan

PARTITIONS = 4


def make_missing_sources(plan: Plan, topics: Topics) -> list[str]:
    """Make the topics that the flow reads and that are not there, empty; return their names."""
    wanted = {i.topic for part in parts(plan) for i in part.inputs if i.kind == "source" and i.resolved}
    tables = {table.source.topic for table in plan.shared} - {o.topic for part in parts(plan) for o in part.outputs}
    wanted |= tables
    missing = sorted(wanted - topics.describe(wanted).keys())
    for topic in missing:
        topics.create(topic, PARTITIONS, 1, {"cleanup.policy": "compact"} if topic in tables else {})
    return missing
