"""Reading a partition to its high watermark, with whoever stands in the way fenced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from falkirk.checkpoint.ids import Offset, OwnerId, TopicPartition
from falkirk.checkpoint.names import owners, unclean
from falkirk.checkpoint.ports import Log, Read
from falkirk.checkpoint.records import Released, TaskRecord, decode
from falkirk.errors import StateError

Records = list[tuple[Offset, TaskRecord]]
"""The records of one steps partition, with their offsets."""


def decoded(read: Read) -> Records:
    """The task records in a read of a steps partition. Raises StateError where one cannot be read."""
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


async def read_to_marks(
    log: Log, starts: Mapping[TopicPartition, Offset], lost: Callable[[TopicPartition, Records], bool]
) -> dict[TopicPartition, Read]:
    """Everything committed in steps partitions, from `starts` to the high watermarks as they stand now.

    The last stable offset may lag a commit that has returned, so the watermark is what counts, and the read waits until
    it gets there. An open transaction below it would hold the read up until its time-out: its owner is fenced, and the
    watermark asked again. A partition that turns out to be `lost` is read no further: a worker that wakes after its
    successor took over must not fence it.
    """
    reads = {p: Read(position=start) for p, start in starts.items()}
    marks = await log.end(list(starts))
    gone: set[TopicPartition] = set()
    while behind := {p: (r.position, marks[p]) for p, r in reads.items() if r.position < marks[p] and p not in gone}:
        stuck = {}
        for p, more in (await log.read_committed(behind)).items():
            stands = more.position == reads[p].position
            reads[p].records += more.records
            reads[p].position = more.position
            if lost(p, decoded(reads[p])):
                gone.add(p)
            elif stands:
                stuck[p] = (more.position, marks[p])
        if stuck and await fence_openers(log, stuck, reads):
            marks = await log.end(list(starts))
    return reads


async def read_everything(log: Log, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Records]:
    """All that the partitions hold now, open and aborted transactions included."""
    position = dict(await log.start(partitions))
    marks = await log.end(partitions)
    records: dict[TopicPartition, Records] = {p: [] for p in partitions}
    while behind := {p: (position[p], marks[p]) for p in partitions if position[p] < marks[p]}:
        for p, read in (await log.read_uncommitted(behind)).items():
            records[p] += decoded(read)
            position[p] = read.position
    return records


async def fence_openers(
    log: Log, stuck: Mapping[TopicPartition, tuple[Offset, Offset]], reads: Mapping[TopicPartition, Read]
) -> bool:
    """Fence whoever wrote the first undecided record of each partition; say whether anyone was.

    The last stable offset is the first offset of the earliest open transaction, so the record there is its opener's.
    """
    fenced: set[OwnerId] = set()
    for p, read in (await log.read_uncommitted(stuck)).items():
        records = decoded(read)
        if not records:
            continue
        _, first = records[0]
        known = owners(decoded(reads[p]) + records)
        owner = known.get(first.nonce) if isinstance(first, Released) else first.owner
        if owner is not None and owner != log.owner and owner not in fenced:
            await log.fence(owner)
            fenced.add(owner)
    return bool(fenced)


async def fence_rivals(log: Log, steps: Sequence[TopicPartition]) -> None:
    """Clause 5b: end every other owner who may still write, as the steps partitions tell."""
    seen = await read_everything(log, list(steps))
    for rival in sorted(set().union(*(unclean(records) for records in seen.values())) - {log.owner}):
        await log.fence(rival)
