"""Eager: each step logs its state changes.

state(n) = state(v) overwritten by every change since
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from falkirk.checkpoint.ids import Millis, Offset, TopicPartition, after
from falkirk.checkpoint.planning.rates import NOTHING, Cost, Replay
from falkirk.checkpoint.ports import Clock, Log, Writes
from falkirk.checkpoint.reading import LOST_RECORDS, obstacle
from falkirk.checkpoint.records import RecordedStep
from falkirk.checkpoint.regimes.recovery import LogBounds, Means, Recovery
from falkirk.checkpoint.tasks import ClosedStep, Owned
from falkirk.errors import StateError
from falkirk.state.store import Progress

TOMBSTONE_RETENTION = Millis(7 * 24 * 3600 * 1000)
"""delete.retention.ms of changelogs: how long a compacted tombstone stays readable."""


class Eager(Recovery):
    """The end of the changelog is applied, and no step runs again."""

    name: ClassVar[str] = "eager"
    needs: ClassVar[tuple[str, ...]] = ("changelog",)
    logs_changes: ClassVar[bool] = True
    rebuilds: ClassVar[bool] = True
    presumed: ClassVar[Cost] = Cost(0.05, 4e-6)

    @property
    def changelog(self) -> TopicPartition:
        """The task's partition of it."""
        return self.log_partitions[0]

    def logs(self, step: ClosedStep) -> list[Writes]:
        """Every state change, one record a key."""
        changes, place = step.overlay.changes, self.changelog
        if not changes:
            return []
        return [
            Writes(place.topic, [place.partition] * len(changes), list(changes), list(changes.values()), tracked=True)
        ]

    def log_offset_after(self, written: Mapping[TopicPartition, Offset], before: int) -> int:
        """After the step's last change."""
        return written[self.changelog] + 1 if self.changelog in written else before

    async def recover(self, means: Means, owned: Owned, steps: Sequence[RecordedStep], bounds: LogBounds) -> bool:
        """Apply the rest of the changelog. False: the store is too old for that, or became so meanwhile. An empty one is in
        its place, unless it has a base, which the changelog begins after."""
        self.check_age(means.clock, owned, steps)
        progress = owned.opened().progress
        lacks = self.outdated(progress, steps, means.clock.now())
        if not lacks and await self._roll(means.log, means.clock, owned, steps, bounds):
            return True
        owned.opened().close()
        based = progress.base >= 0
        owned.store = await (self.open(means, owned) if based else means.stores.fresh(owned.task.id))
        return False

    def outdated(self, progress: Progress, steps: Sequence[RecordedStep], now: Millis) -> bool:
        """Whether tombstones that a store with this progress lacks may be gone, if it is not empty.

        A tombstone may be gone after `TOMBSTONE_RETENTION`; a key it deleted would come back. Half of it leaves room for
        clocks that disagree and for the time that rolling takes.
        """
        empty = progress.step < 0 and progress.base < 0 and progress.ahead < 0
        return not empty and _outdated(progress, steps, progress.clock, now)

    def replay(self, progress: Progress, steps: Sequence[RecordedStep], bounds: LogBounds) -> Replay:
        """The changelog from the store's position to its end, in one reading. Compaction may have left fewer records."""
        records = bounds.ends[self.changelog] - max(progress.applied, bounds.begins[self.changelog])
        return Replay(1, records) if steps and records > 0 else NOTHING

    def grows(self, step: ClosedStep) -> Replay:
        """Its changes, and the marker of its transaction."""
        changes = len(step.overlay.changes)
        return Replay(0, changes + 1) if changes else NOTHING

    async def _roll(
        self, log: Log, clock: Clock, owned: Owned, steps: Sequence[RecordedStep], bounds: LogBounds
    ) -> bool:
        """Apply the changelog from its beginning or the store's position up to its end.

        False: it took so long that tombstones may have gone before they were read, and the store is useless. Otherwise a
        worker that was suspended for days on the way would bring deleted keys back.

        Only the last write advances the step: before it, the store is at no step. Each write says how much of the changelog
        the store has. So if a recovery is stopped, or dies, the next one need not apply that part again.
        """
        if not steps:
            return True
        store, place = owned.opened(), self.changelog
        begin, mark = bounds.begins[place], bounds.ends[place]
        before = store.progress
        if before.applied > mark:
            raise StateError(
                f"the store of task {owned.task.id} is at offset {before.applied} of its changelog, which ends at {mark}",
                where=f"{place.topic}[{place.partition}]",
                hint=LOST_RECORDS,
            )
        offset, last = steps[-1]
        position = start = max(Offset(before.applied), begin)
        # A tombstone missing in the part that is applied already was compacted away after the older of these.
        since = clock.now() if before.step < 0 and before.base < 0 and before.ahead < 0 else before.clock
        while position < mark:
            owned.go_on()
            owned.rolled = (position - start, mark - start)
            before_chunk = position
            changes, position = await log.read_changes(place, position, mark)
            if position == before_chunk:
                log.report_obstacle(place, position, mark, await obstacle(log, place, position, mark))
            if changes:
                store.write(changes, before.partly(position, since))
            if _outdated(store.progress, steps, since, clock.now()):
                return False
        # Behind the mark: it need not be read when the task is taken over again.
        store.write({}, before.at(last.step, offset + 1, after(mark), last.clock))
        return True

    def check_age(self, clock: Clock, owned: Owned, steps: Sequence[RecordedStep]) -> None:
        """A store with a base lacks no step that is so old that its tombstones may be gone. Raises StateError."""
        progress = owned.opened().progress
        if progress.base < 0 or not self.outdated(progress, steps, clock.now()):
            return
        raise StateError(
            f"the newest state of task {owned.task.id} is of step {progress.step}, and too old to be rolled along its "
            "changelog: what was deleted since could come back",
            where=f"{self.changelog.topic}[{self.changelog.partition}]",
            hint="bring back the state directory that it ran in last, or the checkpoint store that has its versions: a "
            "state that began with a backfill cannot be rebuilt from its changelog alone",
        )


def _outdated(progress: Progress, steps: Sequence[RecordedStep], since: int, now: Millis) -> bool:
    """Whether tombstones of steps that a store lacks may be gone. `since`: when its part of the changelog was current.

    A store at a step, or with a base, lacks what was written since the first step after its own, even if the task was idle
    for long before.
    """
    missed = [record for _, record in steps if record.step > progress.step]
    if max(progress.step, progress.base) >= 0 and missed and missed[0].step == progress.step + 1:
        since = missed[0].clock
    return bool(missed) and now - since > TOMBSTONE_RETENTION // 2
