"""Tasks that rebuild state, and lack a clause: see `weaken`."""

from __future__ import annotations

from msgspec.structs import replace

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.overlay import Overlay
from falkirk.checkpoint.records import StepRecord
from falkirk.checkpoint.regimes import Lazy
from falkirk.runtime.worker.task import RunningTask
from falkirk.state.store import State
from falkirk.stream.dataflow.circuit import Circuit, Evolution, RereadInput, ShadowChunk, StepInput, StepOutput
from falkirk.stream.evolution.evolution import StageEvolution
from falkirk.stream.evolution.rebuilding import OperatorRebuild, Rebuilder, RebuildProgress
from falkirk.testing import replays
from falkirk.testing.simulator.flows.rebuilds import Rebuilds
from falkirk.testing.simulator.plan import Crash, Doubt, Plan
from falkirk.testing.simulator.points import Order
from falkirk.testing.simulator.weakened.weakening import COMMIT, Patch, Schedule, Weakening

_rewind, _again, _copy = RunningTask.rewind, StageEvolution.again, Rebuilder._copy
_SEEN = "seen_before"


def rewind_without_looking(self: RunningTask) -> dict[TopicPartition, Offset]:
    """What is left to rebuild is what the aborted step has left."""
    moving, first = self.moving, not hasattr(self, _SEEN)
    setattr(self, _SEEN, True)
    at = _rewind(self)
    self.moving = self.moving if first else moving
    return at


def again_by_the_store(self: StageEvolution, state: State) -> RereadInput | None:
    """The steps that are not decided yet count for nothing."""
    below: object = state
    while isinstance(below, Overlay):
        below = below.below
    return _again(self, Overlay(below))  # type: ignore[arg-type]  # what is below the last overlay is a store


def again_from_the_beginning(self: StageEvolution, state: State) -> RereadInput | None:
    """Whoever takes a task over reads from the beginning, and keeps the tables."""
    found, first = _again(self, state), not hasattr(self.circuit, _SEEN)
    setattr(self.circuit, _SEEN, True)
    return found if found is None or not first else RereadInput(found.inputs, {}, found.taken)


def rerun_as_any_step(circuit: Circuit, _: Evolution, __: StepRecord, step: StepInput, state: Overlay) -> StepOutput:
    """What a rebuild has read again is run as if it were new."""
    return circuit.run(step, state)


def copy_without_its_progress(
    self: Rebuilder, state: State, left: list[OperatorRebuild], mark: RebuildProgress, taken: ShadowChunk
) -> RebuildProgress:
    """How far a shadow has read is not among what is taken of it."""
    return replace(_copy(self, state, left, mark, taken), reached=())


ONE = Rebuilds(inputs=4)

REBUILDS: dict[str, Weakening] = {
    "rebuilt-though-aborted": Weakening(
        "after an abort, a task does not look how much is left to rebuild",
        (Patch(RunningTask, "rewind", rewind_without_looking),),
        Schedule(ONE, Plan((Doubt(worker=0, on="committer: sends offsets", at=4, order=Order.REFUSE),))),
    ),
    "reread-by-the-store": Weakening(
        "what is read again next follows on the last committed step, not on the one that commits",
        (Patch(StageEvolution, "again", again_by_the_store),),
        Schedule(ONE, Plan()),
    ),
    "reread-from-the-beginning": Weakening(
        "whoever takes over a task in the middle of a rebuild reads again from the beginning, into the tables that there are",
        (Patch(StageEvolution, "again", again_from_the_beginning),),
        Schedule(ONE, Plan((Crash(worker=0, on=COMMIT + ": done"),))),
    ),
    "taken-and-read-again": Weakening(
        "what a shadow has made is taken without its progress: what it has read is read again, into its rows",
        (Patch(Rebuilder, "_copy", copy_without_its_progress),),
        Schedule(Rebuilds(inputs=4, beside=2), Plan()),
    ),
    "replay-as-any-step": Weakening(
        "a recorded step of a rebuild is run again as if it had read new input",
        (Patch(replays, "rerun", rerun_as_any_step),),
        Schedule(Rebuilds(recovery=Lazy, inputs=4), Plan((Crash(worker=0, on=COMMIT + ": done", at=1),))),
    ),
}
