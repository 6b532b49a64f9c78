"""Read a partition to its end; fence owners of transactions in the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from falkirk.checkpoint.ids import Offset, OwnerId, TopicPartition
from falkirk.checkpoint.ownerships import Ownerships, owners
from falkirk.checkpoint.ports import Log, Read
from falkirk.checkpoint.records import Released, TaskRecord, decode
from falkirk.errors import StateError

NOTHING_THERE = "nothing: the partition ends there. Was it truncated, or did its brokers lose committed records?"

LOST_RECORDS = (
    "the topic was truncated, or the broker lost committed data: restore the topic, or give the flow another name, under "
    "which it starts from scratch"
)

Records = list[tuple[Offset, TaskRecord]]
"""The records of one steps partition, with their offsets."""


def decoded(read: Read) -> Records:
    """The task records in a read of a steps partition. Raises StateError if one cannot be read."""
    records = []
    for record in read.records:
        if record.value is None:
            continue
        try:
            records.append((record.offset, decode(record.value)))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StateError(
                f"the record at offset {record.offset} of the steps topic cannot be read: {error}",
                hint="was it written by a later version of Falkirk, or by something else?",
            ) from error
    return records


@dataclass(slots=True)
class Tail:
    """The task records of a steps partition from some offset on, and the position after them."""

    records: Records = field(default_factory=list)
    position: Offset = Offset(0)


async def read_to_marks(
    log: Log, starts: Mapping[TopicPartition, Offset], lost: Callable[[TopicPartition, Records], bool]
) -> dict[TopicPartition, Tail]:
    """Everything committed in steps partitions, from `starts` to their present ends.

    The last stable offset may lag behind a commit that has returned. So the end is marked (`Log.mark`), and the read waits
    until it gets there. An open transaction below it would block the read until its time-out: its owner is fenced, and the
    end marked again. A partition that turns out to be `lost` is not read further: a worker that wakes after its
    successor took over must not fence it. If nobody can be fenced, `Log.report_obstacle` says so, and at last ends the wait.
    """
    tails = {p: Tail(position=start) for p, start in starts.items()}
    marks = await log.mark(list(starts))
    for p, start in starts.items():
        check_kept(p, start, marks[p])
    gone: set[TopicPartition] = set()
    while behind := {p: (t.position, marks[p]) for p, t in tails.items() if t.position < marks[p] and p not in gone}:
        stuck = {}
        for p, more in (await log.read_committed(behind)).items():
            stands = more.position == tails[p].position
            tails[p].records += decoded(more)
            tails[p].position = more.position
            if lost(p, tails[p].records):
                gone.add(p)
            elif stands:
                stuck[p] = (more.position, marks[p])
        if stuck and await fence_openers(log, stuck, tails):
            marks = await log.mark(list(starts))
    return tails


def check_kept(partition: TopicPartition, known: Offset, mark: Offset) -> None:
    """A log still goes as far as it was known before. Raises StateError."""
    if known > mark:
        raise StateError(
            f"the steps topic was known up to offset {known}, and now it ends at {mark}",
            where=f"{partition.topic}[{partition.partition}]",
            hint=LOST_RECORDS,
        )


async def read_ownerships(log: Log, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Ownerships]:
    """Who owned each task, from all that its partition holds now, also open and aborted transactions."""
    position = dict(await log.start(partitions))
    marks = await log.mark(partitions)
    found = {p: Ownerships() for p in partitions}
    while behind := {p: (position[p], marks[p]) for p in partitions if position[p] < marks[p]}:
        for p, read in (await log.read_uncommitted(behind)).items():
            for _, record in decoded(read):
                found[p].add(record)
            if read.position == position[p]:
                log.report_obstacle(p, *behind[p], NOTHING_THERE)
            position[p] = read.position
    return found


async def fence_openers(
    log: Log, stuck: Mapping[TopicPartition, tuple[Offset, Offset]], tails: Mapping[TopicPartition, Tail]
) -> bool:
    """Fence the writer of the first undecided record of each partition; return whether any was fenced.

    The last stable offset is the first offset of the earliest open transaction: its owner wrote that record.
    """
    fenced: set[OwnerId] = set()
    for p, read in (await log.read_uncommitted(stuck)).items():
        records = decoded(read)
        owner = None
        if records:
            _, first = records[0]
            known = owners(tails[p].records + records)
            owner = known.get(first.nonce) if isinstance(first, Released) else first.owner
        log.report_obstacle(
            p, *stuck[p], f"an open transaction of {owner}" if owner else await obstacle(log, p, *stuck[p])
        )
        if owner is not None and owner != log.owner and owner not in fenced:
            await log.fence(owner)
            fenced.add(owner)
    return bool(fenced)


async def obstacle(log: Log, partition: TopicPartition, position: Offset, mark: Offset) -> str:
    """What blocks a read of committed records, in words, where no record says whose it is."""
    read = (await log.read_uncommitted({partition: (position, mark)}))[partition]
    if read.records:
        return "an open transaction, and its records do not say whose"
    return NOTHING_THERE


async def fence_rivals(
    log: Log, steps: Sequence[TopicPartition], wanted: Callable[[TopicPartition], bool] = lambda _: True
) -> None:
    """Clause 5b: fence every other owner who, by the steps partitions, may still write.

    Partitions that are no longer `wanted` are left alone: the group has given them to another, who may be the rival.
    """
    rivals: dict[OwnerId, list[TopicPartition]] = {}
    for p, ownerships in (await read_ownerships(log, list(steps))).items():
        for owner in ownerships.unclean() - {log.owner}:
            rivals.setdefault(owner, []).append(p)
    for rival in sorted(rivals):
        if any(map(wanted, rivals[rival])):
            await log.fence(rival)
