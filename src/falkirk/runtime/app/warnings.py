"""Warnings of what a flow will do on its cluster. They stop no run: each start of a run prints them, and so does
`falkirk check`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta

from falkirk.checkpoint.ids import TopicPartition
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import logger
from falkirk.durations import duration_text
from falkirk.errors import ClusterError
from falkirk.runtime.host.clock import WallClock
from falkirk.stream.dataflow.topics import Input
from falkirk.stream.operators import Join
from falkirk.stream.stages.plan import Plan
from falkirk.wording import counted


def one_task(plan: Plan, sizes: Mapping[str, int]) -> list[str]:
    """The stages of several tasks that send all rows to one of them. `sizes`: how many tasks each stage has."""
    stages = [s for s in plan.planned if s.all_to_one and sizes.get(s.id, 1) > 1]
    return [f"stage {s.id} has {counted(sizes[s.id], 'task')}, and {s.all_to_one}" for s in stages]


def unbounded(plan: Plan) -> list[tuple[str, str]]:
    """The joins whose state grows without end, and what would bound it."""
    joins = [o for s in plan.planned for o in s.operators if isinstance(o, Join) and o.growing]
    return [(f"{join.where} keeps {join.growing}", join.bounded_by) for join in joins]


def expired(plan: Plan, topics: Topics, now: int) -> list[str]:
    """The sinks whose topics would soon delete what the flow writes first: results carry the timestamps of their records, and
    a topic deletes by timestamp. `now`: milliseconds since 1970. Raises ClusterError.

    Sources with `time=` are left out: their results carry event times, which only their records tell.
    """
    sinks = {o.topic for part in plan.parts for o in part.outputs if o.kind == "sink"}
    configs = topics.configs(topics.describe(sinks))
    limits = {topic: found for topic in sorted(configs) if (found := retention(configs[topic])) is not None}
    said = []
    for topic, limit in limits.items():
        old = {i.topic: count for i in sources_of(plan, topic) if (count := older(i, now - limit, topics))}
        if old:
            records = " and ".join(f"{counted(n, 'record')} of {name}" for name, n in old.items())
            said.append(
                f"topic {topic} deletes records that are older than {duration_text(timedelta(milliseconds=limit))} "
                f"(retention.ms), and {records} are older: so are their results"
            )
    return said


def warn_of_expired(plan: Plan, topics: Topics) -> None:
    """Say it, if the cluster can be asked: no run ends for want of a warning."""
    with suppress(ClusterError):
        for words in expired(plan, topics, WallClock().now()):
            logger.warning("%s", words)


def retention(config: Mapping[str, str]) -> int | None:
    """After how many milliseconds a topic deletes a record, by the date that its writer gave it; None: it does not.

    >>> config = {"cleanup.policy": "delete", "retention.ms": "1000", "message.timestamp.type": "CreateTime"}
    >>> retention(config), retention({**config, "retention.ms": "-1"}), retention({**config, "cleanup.policy": "compact"})
    (1000, None, None)
    >>> retention({**config, "message.timestamp.type": "LogAppendTime"})
    """
    dated = config.get("message.timestamp.type") == "CreateTime"
    limit = int(config.get("retention.ms", "-1"))
    return limit if dated and limit >= 0 and "delete" in config.get("cleanup.policy", "") else None


def sources_of(plan: Plan, topic: str) -> Iterator[Input]:
    """The sources whose records become results in a topic, over any number of edges, if they have no time column."""
    seen, waiting = {topic}, [topic]
    while waiting:
        found = waiting.pop()
        for part in plan.parts:
            if all(output.topic != found for output in part.outputs):
                continue
            for i in part.inputs:
                if i.topic in seen:
                    continue
                seen.add(i.topic)
                if i.kind == "edge":
                    waiting.append(i.topic)
                elif not i.dated:
                    yield i


def older(i: Input, than: int, topics: Topics) -> int:
    """About how many records of a source, from where the flow starts on, are older than this: those in front of the first
    record that is not."""
    if i.start == "latest" or (isinstance(i.start, int) and i.start >= than):
        return 0
    there = topics.describe([i.topic])
    places = [TopicPartition(i.topic, p) for p in range(there[i.topic].partitions)] if there else []
    first = topics.offsets(places, i.start if isinstance(i.start, int) else "earliest")
    if isinstance(i.start, Mapping):
        first |= {place: max(at, i.start.get(place.partition, 0)) for place, at in first.items()}  # type: ignore[misc]
    after = topics.offsets(places, than)
    return sum(max(0, after[place] - first[place]) for place in places)
