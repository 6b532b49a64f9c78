"""What an app needs from its cluster: topics and rights.

    rights     READ of what is read, WRITE of what is written; for the app's own topics all but CREATE
    topics     as `prepare` makes them if it may

An app makes what is missing, if it has the right. If only administrators have it, they make it beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Literal

import msgspec

from falkirk.checkpoint.ids import cluster_of, name_of
from falkirk.connectors.kafka.admin.topic_settings import CONTROL
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.app_topics.control import PARTITIONS, ControlTopic
from falkirk.connectors.kafka.client.config import READER, SOURCE
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout.preflight import others, preflight
from falkirk.runtime.layout.wanted_topics import made_topics
from falkirk.stream.definition.names import control_topic, drivers, own_topics
from falkirk.stream.stages.plan import Plan

ASKED = ("DESCRIBE", "DESCRIBE_CONFIGS")
"""Each topic's partitions, id and settings."""


class NeededTopic(msgspec.Struct, frozen=True):
    """A topic that an app reads or writes."""

    name: str
    role: str
    partitions: int
    exists: bool
    config: Mapping[str, str]
    """Its settings, if it is to be made; what exists is taken as it is."""


class Right(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the app's user must be allowed to do."""

    resource: Literal["topic", "group", "transactional-id"]
    name: str
    prefixed: bool
    """Whether it is for all names with this prefix."""
    operations: tuple[str, ...]
    reason: str
    cluster: str = ""
    """Another cluster than the app's, by its name."""


def needed_topics(plan: Plan, settings: Settings, topics: Topics, *, backfill: bool = False) -> list[NeededTopic]:
    """The app's topics, those that it reads first. Raises FalkirkError if what it reads is not as it must be."""
    control = control_topic(settings.prefix, plan.app)
    with closing(ControlTopic(settings.cluster(), control)) as record:
        found = preflight(plan, settings, topics, record, backfill=backfill)
    missing = dict(found.missing) if topics.describe([control]) else {**found.missing, control: (PARTITIONS, CONTROL)}
    needed = [
        NeededTopic(name, role, missing[name][0], False, missing[name][1])
        if name in missing
        else NeededTopic(name, role, found.counts.get(name, PARTITIONS), True, {})
        for name, role in {**found.roles, control: "control"}.items()
    ]
    return sorted(needed, key=lambda topic: (topic.role != "source", topic.name))


def rights(plan: Plan, settings: Settings, *, serve: bool = False) -> list[Right]:
    """What the app's user needs, if all topics exist. `serve`: and gateways give the records of sinks to subscribers."""
    own = own_topics(settings.prefix, plan.app)
    read = {i.topic for part in plan.parts for i in part.inputs} | {table.source.topic for table in plan.shared}
    written = {o.topic for part in plan.parts for o in part.outputs}
    again = {o.topic for batch in plan.batches for o in batch.outputs if o.kind == "sink"}
    sinks = {o.topic for part in plan.parts for o in part.outputs if o.kind == "sink" and o.outlet is None}
    # Gateways have the app's user, too.
    answers = {o.topic for part in plan.parts for o in part.outputs if o.answers is not None}
    read, written = read | answers, written | made_topics(plan).keys()
    served = sinks - read if serve else set()
    found = [
        Right(
            "topic", own, True, ("READ", "WRITE", *ASKED, "DELETE", "ALTER"), "the app's own topics; DELETE trims them"
        )
    ]
    for name in sorted(name for name in read | written if not name.startswith(own)):
        operations = (
            *(["READ"] if name in read | again | served else []),
            *(["WRITE"] if name in written else []),
            *ASKED,
        )
        words = [*(["read"] if name in read else []), *(["written"] if name in written else [])]
        words += ["compared with what an epoch replaces"] if name in again else []
        words += ["read for subscribers"] if name in served else []
        found.append(Right("topic", name_of(name), False, operations, " and ".join(words), cluster_of(name)))
    found.append(Right("group", plan.app, False, ("READ", "DESCRIBE"), "the workers' group"))
    if plan.batches:
        found.append(Right("group", drivers(plan.app), False, ("READ", "DESCRIBE"), "the drivers' group"))
    asks = "nobody joins it: Kafka's client asks"
    found += [
        Right("group", name, False, ("DESCRIBE",), asks, cluster) for cluster in ["", *others(plan)] for name in GROUPS
    ]
    found.append(Right("transactional-id", f"{plan.app}.", True, ("WRITE", "DESCRIBE"), "the workers' transactions"))
    return found


GROUPS: Sequence[str] = (READER, SOURCE)
"""The group name of readers that are in no group. Nobody joins it, but librdkafka looks for its coordinator."""
