"""A consumer group as its coordinator describes it.

It uses the oldest of librdkafka's calls for this. The newer one, describe_consumer_groups, fails an assertion if the
broker is restarted during the call, and ends the process (librdkafka 2.16).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from struct import unpack_from
from typing import Any

_UUID = len("-cfb98b53-5f7b-4c47-b7ed-9e27336200a2")
"""A static member's id is its instance id and this."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group: where it connects from, and what it is assigned."""

    host: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group whose members subscribe to one topic. It may have no members."""

    stable: bool
    """No rebalance is under way: each member has its assignment, or is about to take or release partitions."""
    members: Mapping[str, Member]
    """By their instance ids."""


def group_of(described: Any) -> Group:
    """The group, from a `confluent_kafka.admin.GroupMetadata`."""
    members = {m.id[:-_UUID]: Member(m.client_host.lstrip("/"), assigned(m.assignment)) for m in described.members}
    return Group(described.state == "Stable", members)


def assigned(assignment: bytes) -> tuple[int, ...]:
    """The partitions in an assignment as members send it: version, topics, each with its name and partitions.

    >>> assigned(bytes.fromhex("0000 00000001 0005 7374657073 00000002 00000003 00000001 00000000")), assigned(b"")
    ((1, 3), ())
    """
    partitions: list[int] = []
    if assignment:
        _version, topics = unpack_from(">hi", assignment)
        at = 6
        for _ in range(topics):
            (name,) = unpack_from(">h", assignment, at)
            (count,) = unpack_from(">i", assignment, at + 2 + name)
            partitions += unpack_from(f">{count}i", assignment, at + 6 + name)
            at += 6 + name + 4 * count
    return tuple(sorted(partitions))
