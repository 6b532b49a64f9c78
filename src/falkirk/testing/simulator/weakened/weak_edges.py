"""Edges between two stages that lack a clause: see `weaken`."""

from __future__ import annotations

import msgspec

from falkirk.checkpoint.ids import InputPartition, TaskId, TopicPartition
from falkirk.checkpoint.overlay import Overlay
from falkirk.checkpoint.ports import Output
from falkirk.checkpoint.records import Range, StepRecord
from falkirk.checkpoint.regimes import Eager, Lazy, Recovery
from falkirk.checkpoint.regimes.floors import Floor, Floors
from falkirk.checkpoint.steps import HEADER
from falkirk.checkpoint.tasks import Owned
from falkirk.stream.dataflow.records import Records
from falkirk.testing.simulator.cluster.broker import SimBroker
from falkirk.testing.simulator.domain import Domain, TaskFloors
from falkirk.testing.simulator.edges.stages import EDGE, TwoStages, rows_of
from falkirk.testing.simulator.plan import Crash, Doubt, Expel, Leave, Move, Outage, Pause, Plan, Turn
from falkirk.testing.simulator.points import Order
from falkirk.testing.simulator.toy import Toy, ToyReplayer
from falkirk.testing.simulator.weakened.weak_copies import copied_or_not
from falkirk.testing.simulator.weakened.weakening import COMMIT, Patch, Schedule, Weakening

_version, _replay, _below, _note = Domain.version, ToyReplayer.replay, Domain.below, Floors.note
_EAGER = TwoStages(inputs=6)
_LAZY = TwoStages(inputs=6, second=Lazy)


async def version_and_trim_to(self: Domain, owned: Owned, last: StepRecord | None) -> None:
    """A version, and then the edge is trimmed to where a step ended."""
    await _version(self, owned)
    edges = self.toy.edges(owned.task.id.partition)
    await self.trimmed(Eager.floor(owned.task.recovery, last, edges), owned.opened().progress)


async def trimmed_to_committed(self: Domain, owned: Owned) -> None:
    """The edge is trimmed to the end of the last committed division."""
    await version_and_trim_to(self, owned, owned.last)


async def trimmed_to_position(self: Domain, owned: Owned) -> None:
    """The edge is trimmed to where the reader is, with steps that are not committed yet."""
    await version_and_trim_to(self, owned, self.core.pipeline.last(owned))


def pending_uncommitted(_: TwoStages, broker: SimBroker, place: InputPartition, at: int) -> list[int]:
    """Whatever is in the edge."""
    return [e.offset for e in broker[place.place].uncommitted(at, broker[place.place].end)[0]]


def read_uncommitted(self: TwoStages, broker: SimBroker, read: Range, trimmed: bool) -> Records:
    """Whatever is in the edge, for all but the checks."""
    if trimmed or read.partition.topic != EDGE:
        return Toy.read(self, broker, read, trimmed)
    found = broker[read.partition.place].uncommitted(read.start, read.end)[0]
    return Records([e.offset for e in found], [e.key for e in found], [e.value for e in found])


async def replay_and_send(self: ToyReplayer, task: TaskId, record: StepRecord, state: Overlay) -> list[Output]:
    """A step that runs again sends its rows again, with another clock."""
    outputs = await _replay(self, task, record, state)
    for w in (output.writes for output in outputs if output.name == EDGE):
        for p, value in zip(w.partitions, w.values, strict=True):
            rows = [(key, (count.n, count.partition, count.offset, self.broker.now)) for key, count in rows_of(value)]
            made = [(HEADER, f"{task} {record.step} 0".encode())]
            place = self.broker[TopicPartition(EDGE, p)]
            place.append(None, msgspec.msgpack.encode(rows), self.broker.now, None, made)
    return outputs


def edges_first(self: Domain, floors: TaskFloors) -> list[Floor]:
    """Edges are trimmed before step records."""
    return _below(self, floors)[::-1]


def note_each(self: Floors, now: float, floor: Floor, step: int = -1) -> None:
    """Each version counts, also a second one of a step."""
    _note(self, now, floor)


EDGES: dict[str, Weakening] = {
    "trim-edge-at-committed": Weakening(
        "an edge is trimmed to the end of its reader's last committed division, though the reader is lazy",
        (Patch(Domain, "version", trimmed_to_committed),),
        Schedule(_LAZY, Plan()),
    ),
    "trim-edge-at-position": Weakening(
        "an edge is trimmed to its reader's position, not to what is committed",
        (Patch(Domain, "version", trimmed_to_position),),
        Schedule(_EAGER, Plan()),
    ),
    "read-edge-uncommitted": Weakening(
        "a reader takes what is in an edge before it is committed",
        (Patch(TwoStages, "pending", pending_uncommitted), Patch(TwoStages, "read", read_uncommitted)),
        Schedule(_EAGER, Plan((Doubt(worker=0, on=COMMIT, at=2, order=Order.REFUSE),))),
    ),
    "send-edge-again": Weakening(
        "a lazy stage that runs steps again sends their rows again, and not the same bytes",
        (Patch(ToyReplayer, "replay", replay_and_send),),
        Schedule(TwoStages(inputs=6, recovery=Lazy), Plan((Crash(worker=0, on=COMMIT + ": done", at=2),))),
    ),
    "trim-edge-uncopied": Weakening(
        "an edge is trimmed behind a version that was made and could not be copied",
        (Patch(Domain, "copy", copied_or_not),),
        Schedule(
            _LAZY,
            Plan(
                (
                    Outage(worker=0, on="upkeep of 0: trims steps-0 behind step 2", turns=150),
                    Move(worker=0, on="upkeep of 1 of domain 1: trims edge-0 behind step 5", task=1, to=1),
                ),
                lazy_broker=True,
            ),
        ),
    ),
    "trim-edge-first": Weakening(
        "an edge is trimmed before the step records that tell an old store that it is overtaken",
        (Patch(Domain, "below", edges_first),),
        Schedule(_LAZY, Plan((Pause(worker=0, on="committer: sends records to changes-0: done", travels=True),), True)),
    ),
    "trim-edge-to-end": Weakening(
        "an edge is trimmed to where the step of the older copy ends, and the step's record stays",
        (Patch(Lazy, "floor", Recovery.floor),),
        Schedule(
            _LAZY,
            Plan(
                (
                    Expel(worker=0, on="recovery of 1 of domain 1: marks the end of steps-1"),
                    Expel(worker=1, on="committer: has queued records for changes"),
                    Turn(at=151, choice=6),
                ),
                lazy_broker=True,
            ),
        ),
    ),
    "trim-edge-twice": Weakening(
        "a second version of one step counts as a second copy, behind which an edge is trimmed",
        (Patch(Floors, "note", note_each),),
        Schedule(
            _LAZY,
            Plan(
                (
                    Leave(worker=0, on="upkeep of 1 of domain 1: copies the version of step 5"),
                    Turn(at=45, choice=3),
                    Turn(at=205, choice=1),
                    Turn(at=212, choice=1),
                    Turn(at=225, choice=1),
                    Turn(at=226, choice=2),
                    Turn(at=228, choice=1),
                    Turn(at=229, choice=1),
                )
            ),
        ),
    ),
}
