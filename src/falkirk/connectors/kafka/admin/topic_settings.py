"""The settings of the topics that Falkirk makes.

steps, edges, epochs    LOG           kept forever, dated by the broker
changelogs              COMPACTED     the last value of each key, dated by the broker
control                 CONTROL       the same in small segments
dead letters            FOREVER       kept forever, dated as the records that failed, however old
sinks                   {}, TABLE     the broker's defaults, any date; results of batch parts that are tables
"""

from __future__ import annotations

from collections.abc import Mapping

BROKER_TIME: Mapping[str, str] = {"message.timestamp.type": "LogAppendTime"}
"""The broker dates the records. With the writer's date it would refuse records of a host whose clock is ahead by more than
message.timestamp.after.max.ms (an hour by default), and nothing of that host could commit. The answer to each record also
tells its writer the broker's time: see `falkirk.connectors.kafka.app_topics.clocks`."""

FOREVER: Mapping[str, str] = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
"""Only Falkirk deletes from this topic, and only what every reader has read."""

LOG: Mapping[str, str] = {**FOREVER, **BROKER_TIME}
"""The app's own logs."""

COMPACTED: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "delete.retention.ms": str(7 * 24 * 3600 * 1000),
    "min.cleanable.dirty.ratio": "0.3",
    "segment.bytes": str(128 << 20),
    "max.compaction.lag.ms": str(24 * 3600 * 1000),
    **BROKER_TIME,
}
"""A changelog: the last value of each key, and tombstones for a week."""

_ANY_DATE = ("message.timestamp.after.max.ms", "message.timestamp.before.max.ms")  # Kafka 3.6 and later
_ANY_DATE_BEFORE = ("message.timestamp.difference.max.ms",)  # earlier ones


def any_date(known: Mapping[str, str]) -> dict[str, str]:
    """Settings with which a topic takes a record of any date, old or in the future. A broker refuses a topic with settings
    that it does not know: `known` are those of any existing topic.

    >>> any_date({"message.timestamp.difference.max.ms": "9223372036854775807"})
    {'message.timestamp.difference.max.ms': '9223372036854775807'}
    """
    names = _ANY_DATE if all(name in known for name in _ANY_DATE) else _ANY_DATE_BEFORE
    return {name: str(2**63 - 1) for name in names if name in known}


TABLE: Mapping[str, str] = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(24 * 3600 * 1000)}
"""A batch part's result that is also a table: the rows before an epoch stay, for a day, until it is complete."""

CONTROL: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(2 << 20),
    "max.compaction.lag.ms": str(3600 * 1000),
    # A worker that left says so by a tombstone; a reader that has not looked for an hour needs none.
    "delete.retention.ms": str(3600 * 1000),
    **BROKER_TIME,
}
"""Reports come as long as the app runs: small segments, so that readers read little more than the last of each."""
