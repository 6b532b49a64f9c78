"""Between the circuit's words and the protocol's: what a step emits, and what it has read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from falkirk.checkpoint.ids import InputPartition, Offset
from falkirk.checkpoint.ports import Output, Writes
from falkirk.checkpoint.records import Move
from falkirk.stream.dataflow.circuit import Emitted, Moving, ShadowChunk


def moving_of(move: Move, ends: Mapping[InputPartition, Offset], taken: ShadowChunk | None = None) -> Moving:
    """For the circuit: what a moving step does, for a task that has read up to `ends`."""
    reached = {(r.partition.place.topic, r.partition.partition): r.end for r in move.again}
    return Moving(move.since, reached, whole=all(r.end == ends[r.partition] for r in move.again), taken=taken)


def outputs_of(emitted: Sequence[Emitted]) -> list[Output]:
    """A circuit's emissions as writes."""
    return [
        Output(e.output, Writes(e.topic, e.partitions, e.keys, e.values, e.timestamps, e.headers, bundles=e.bundles))
        for e in emitted
    ]
