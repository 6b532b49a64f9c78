"""Full disks that lack a clause: see `weaken`."""

from __future__ import annotations

from contextlib import suppress

from falkirk.checkpoint.tasks import Owned
from falkirk.errors import DiskError
from falkirk.state.store import Changes, Progress
from falkirk.testing.simulator.disk import SimStore, Snapshot
from falkirk.testing.simulator.domain import Domain
from falkirk.testing.simulator.plan import Expel, Full, Plan
from falkirk.testing.simulator.weakened.weakening import COMMIT, ONE, ONE_LAZY, Patch, Schedule, Weakening

_write, _made = SimStore.write, Domain.made


def write_or_not(self: SimStore, changes: Changes, progress: Progress) -> None:
    """A write that the disk refuses is forgotten."""
    with suppress(DiskError):
        _write(self, changes, progress)


async def made_in_part(self: Domain, owned: Owned) -> Snapshot:
    """What there was room for is taken for the version."""
    try:
        return await _made(self, owned)
    except DiskError:
        store = owned.opened()
        return dict(list(store.scan(b"", b"\xff"))[::2]), store.progress


DISKS: dict[str, Weakening] = {
    "ignore-full-disk": Weakening(
        "a worker whose disk refuses a step goes on with the next one",
        (Patch(SimStore, "write", write_or_not),),
        Schedule(ONE, Plan((Full(worker=0, on=COMMIT + ": done", at=2, turns=8),))),
    ),
    "copy-part-of-version": Weakening(
        "a version is copied though the disk has refused a part of it",
        (Patch(Domain, "made", made_in_part),),
        Schedule(
            ONE_LAZY,
            Plan(
                (Full(worker=0, on="upkeep of 0: makes a version", turns=10), Expel(worker=0, on="copies the version"))
            ),
        ),
    ),
}
