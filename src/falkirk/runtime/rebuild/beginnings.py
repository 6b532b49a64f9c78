"""Where an app began to read, for operators that are rebuilt from there; and whether that still exists.

edge       its first record: what its readers have passed is deleted at some time
source     where a reset, or start=, let it begin; "earliest": where the topic began when the app first ran
table      compacted: what exists, as only that counts
"""

from __future__ import annotations

from collections.abc import Mapping

from falkirk.checkpoint.ids import InputPartition, Offset
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import SourceError
from falkirk.runtime.layout.layout import Start, TopicRecord
from falkirk.stream.dataflow.topics import Input

WAYS = (
    "migrate the state with migrate=, or continue without it: falkirk plan APP:FLOW --apply --drop ID; or give the flow "
    "another name, under which it starts from scratch"
)


def beginnings(
    inputs: Mapping[InputPartition, Input],
    topics: Topics,
    known: Mapping[str, TopicRecord],
    starts: Mapping[str, Start],
) -> dict[InputPartition, Offset]:
    """Where partitions begin for an app that has read them. Raises SourceError if that is not known, or no longer exists."""
    first = topics.offsets([p.place for p in inputs], "earliest")
    policies = topics.configs({p.place.topic for p in inputs})
    found = {}
    for partition, i in inputs.items():
        topic = partition.place.topic
        here, compacted = first[partition.place], "compact" in policies[topic].get("cleanup.policy", "")
        if i.table and compacted:
            found[partition] = here
            continue
        begin = _beginning(i, partition, here, topics, known.get(topic), starts.get(topic))
        where = f"{i.kind} {i.id}, topic {topic}, partition {partition.partition}"
        if compacted and i.kind == "source":
            raise SourceError(
                f"topic {topic!r} is compacted, so it no longer has all that was read of it", where=where, hint=WAYS
            )
        if begin is None or here > begin:
            began = "there is no record of where the app began" if begin is None else f"the app began at offset {begin}"
            raise SourceError(
                f"{began}, and topic {topic!r} now begins at {here}: the state cannot be rebuilt from the remaining records",
                where=where,
                hint=WAYS,
            )
        found[partition] = begin
    return found


def _beginning(
    i: Input, at: InputPartition, here: Offset, topics: Topics, known: TopicRecord | None, reset: Start | None
) -> Offset | None:
    """Where the app began to read a partition that now begins `here`, or somewhat before; None: unknown."""
    place, start = at.place, i.start
    if i.kind == "edge":
        return Offset(0)
    if reset is not None and reset.chose(at):
        return Offset(reset.offsets[place.partition])
    if isinstance(start, Mapping) and place.partition in start:
        return Offset(start[place.partition])
    if start == "latest":
        return None
    began = Offset(0)
    if known is not None and place.partition < len(known.first):
        began = Offset(known.first[place.partition])
    if isinstance(start, int) and (since := topics.offsets([place], start)[place]) > here:
        return since
    return began
