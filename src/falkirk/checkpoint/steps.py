"""Close a step: make its circuit's output into records to send, and the step record for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from falkirk.checkpoint.digest import digest
from falkirk.checkpoint.ids import InputPartition, Millis, Offset, OwnerId, TopicPartition
from falkirk.checkpoint.overlay import Overlay
from falkirk.checkpoint.ports import Output
from falkirk.checkpoint.records import Move, OutputRange, SelectiveCheckpoint, StepRecord
from falkirk.checkpoint.tasks import ClosedStep, Owned, next_division, next_step

HEADER = "falkirk"
"""On every output record: the task, step and sequence number that made it, b"stats/0 17 3"."""


class Maker(NamedTuple):
    """What made an output record."""

    task: str
    step: int
    sequence: int
    """The record's number in all that the step wrote to its partition."""


def maker(header: bytes) -> Maker | None:
    """What made a record, by its header; None if it is not a record of Falkirk.

    >>> maker(b"stats/0 17 3"), maker(b"hello")
    (Maker(task='stats/0', step=17, sequence=3), None)
    """
    try:
        task, step, sequence = header.decode().split(" ")
        return Maker(task, int(step), int(sequence))
    except ValueError:
        return None


def close_step(
    owned: Owned,
    owner: OwnerId,
    last: StepRecord | None,
    ends: Mapping[InputPartition, Offset],
    clock: Millis,
    outputs: Sequence[Output],
    overlay: Overlay,
    *,
    rows: int = 0,
    dead: int = 0,
    skipped: int = 0,
    move: Move | None = None,
    selective: SelectiveCheckpoint | None = None,
) -> ClosedStep:
    """The step after `last`, ready to be committed. `ends` says where it stopped reading each input partition."""
    step = next_step(last)
    # Digest before the headers are added: they are not part of what the circuit computed.
    computed = digest([o.writes for o in outputs])
    ranges = add_headers(outputs, f"{owned.task.id} {step}")
    division = next_division(last, ends)
    base = Offset(owned.opened().progress.base)
    task = owned.task
    record = StepRecord(
        task=str(task.id),
        step=step,
        nonce=owned.nonce,
        owner=owner,
        clock=clock,
        division=division,
        outputs=ranges,
        digest=computed,
        rows=rows,
        dead=dead,
        base=base,
        skipped=skipped,
        layout=task.layout,
        move=move,
        selective=selective,
    )
    # The group is in the app's own cluster, and knows nothing of topics in others.
    own_cluster = {r.partition.place: r.end for r in division if not r.partition.cluster}
    return ClosedStep(owned, record, [o.writes for o in outputs], overlay, own_cluster)


def add_headers(outputs: Sequence[Output], step: str) -> tuple[OutputRange, ...]:
    """Add the header that names its maker to every record of a `step`, as "stats/0 17". Returns how many records of each
    output went to each partition. Outputs to one topic are numbered together: no two records have the same header."""
    written: Counter[TopicPartition] = Counter()
    ranges, header = [], step.encode() + b" %d"
    for output in outputs:
        writes = output.writes
        partitions = np.asarray(writes.partitions)
        sequence = np.empty(len(partitions), dtype=np.int64)
        for partition in np.unique(partitions).tolist():
            here = partitions == partition
            place, count = TopicPartition(writes.topic, partition), int(here.sum())
            sequence[here] = np.arange(written[place], written[place] + count)
            written[place] += count
            ranges.append(OutputRange(output.name, partition, count))
        if writes.headers is None:
            writes.headers = [[(HEADER, header % number)] for number in sequence.tolist()]
        else:
            own = zip(writes.headers, sequence.tolist(), strict=True)
            writes.headers = [[*headers, (HEADER, header % number)] for headers, number in own]
    return tuple(ranges)
