"""Copies of versions that lack a clause, while the checkpoint store is away or damaged: see `weaken`."""

from __future__ import annotations

from falkirk.checkpoint.ids import TaskId
from falkirk.state.store import Progress
from falkirk.testing.simulator.disk import Copies, Snapshot
from falkirk.testing.simulator.domain import Domain
from falkirk.testing.simulator.plan import Crash, Damage, Outage, Pause, Plan
from falkirk.testing.simulator.weakened.weakening import ONE_LAZY, Patch, Schedule, Weakening

_copy, _upload = Domain.copy, Copies.upload
COMMIT = "committer: sends EndTxn(commit)"


async def at_once(*_: object) -> None:
    """Nobody waits for a checkpoint store that is away: its contents count as missing."""


async def copied_or_not(self: Domain, task: TaskId, version: Snapshot) -> Progress:
    """A version counts as copied even while the checkpoint store is away."""
    floor = await _copy(self, task, version)
    return version[1] if floor is None else floor


def upload_and_trust(self: Copies, task: TaskId, version: Snapshot) -> Progress:
    """Nothing is kept for the case that the newest copy is damaged."""
    _upload(self, task, version)
    return version[1]


COPIES: dict[str, Weakening] = {
    "outage-is-empty": Weakening(
        "a checkpoint store that is away counts as empty, where a task needs what is in it",
        (Patch(Copies, "until_back", at_once),),
        Schedule(
            ONE_LAZY,
            Plan(
                (
                    Outage(worker=0, at=16, on=COMMIT, turns=150),
                    Crash(worker=0, at=9, on=COMMIT + ": done", keep=1, back_after=100),
                )
            ),
            workers=3,
        ),
    ),
    "trim-uncopied": Weakening(
        "step records are trimmed below a version that was made and could not be copied",
        (Patch(Domain, "copy", copied_or_not),),
        Schedule(
            ONE_LAZY,
            Plan(
                (
                    Outage(worker=0, on="recovery of 0: asks for the start of steps-0", turns=150),
                    Pause(worker=0, at=3, on="committer: sends offsets: done", turns=49),
                )
            ),
            workers=3,
        ),
    ),
    "trim-to-newest": Weakening(
        "step records are trimmed below the newest copy, not the one before",
        (Patch(Copies, "upload", upload_and_trust),),
        Schedule(
            ONE_LAZY,
            Plan(
                (
                    Pause(worker=0, at=14, on=COMMIT, turns=65),
                    Damage(worker=0, at=7, on="committer: has queued records for steps"),
                )
            ),
            workers=3,
        ),
    ),
}
