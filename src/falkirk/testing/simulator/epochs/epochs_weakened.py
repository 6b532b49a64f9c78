"""Epochs whose protocol lacks one clause each, to show what the clause is for.

Each patches the real protocol from outside while a `with` lasts. Seeds are searched for a run that breaks it but not the
whole protocol.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple
from unittest.mock import patch

from falkirk.checkpoint import epochs as protocol
from falkirk.checkpoint import publishing
from falkirk.checkpoint.epochs import Abandoned, Completed, EpochRecord, Epochs, Opened
from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.ports import Aborted, Log, Unknown, Writes
from falkirk.checkpoint.publishing import Outcome, Part, PartitionProgress, Pause, Published
from falkirk.errors import FalkirkError
from falkirk.testing.simulator.check import Broken
from falkirk.testing.simulator.cluster.log import Misuse
from falkirk.testing.simulator.epochs.epoch_actors import Scenario
from falkirk.testing.simulator.epochs.epochs import sampled

Skip = Callable[[PartitionProgress | None], Awaitable[None]]


class Weakening(NamedTuple):
    """A removed clause: what it says, what replaces what, and where it shows."""

    text: str
    target: object
    name: str
    double: object
    scenario: Scenario = Scenario()


async def look_then_init(
    log: Log, part: Part, skip: Skip, attempt: Callable[[PartitionProgress | None], Awaitable[Outcome]], pause: Pause
) -> Outcome:
    """As `_settle`, in the wrong order."""
    while True:
        progress, hidden = await publishing.look(log, part.place)
        await log.renew()
        if (over := part.over(progress)) is not None:
            return over
        if not hidden:
            with suppress(Aborted, Unknown):
                return await attempt(progress)
        await pause("")


async def go_on_blindly(
    log: Log, part: Part, skip: Skip, attempt: Callable[[PartitionProgress | None], Awaitable[Outcome]], pause: Pause
) -> Outcome:
    """Look once; after a fence, continue with what was known."""
    await log.renew()
    progress, _ = await publishing.look(log, part.place)
    if (over := part.over(progress)) is not None:
        return over
    while True:
        with suppress(Aborted, Unknown):
            return await attempt(progress)
        await pause("")
        await log.renew()


async def record_apart(log: Log, part: Part, writes: Sequence[Writes], record: PartitionProgress) -> None:
    """The rows in one transaction, the record in the next."""
    for batches in (writes, [publishing.record_of(part.place, record)]):
        await log.begin()
        for batch in batches:
            await log.send(batch)
        await log.commit()


async def from_the_start(log: Log, part: Part, checked: publishing._CheckedSlices, visible: Published) -> None:
    """Publish every slice, no matter what is already visible."""
    await _publish_from(log, part, checked, part.published(None))


async def differing(self: publishing._CheckedSlices, visible: Published) -> None:
    """Continue behind what is visible without comparing it."""
    while len(self._records) <= min(visible.slices, self.slices):
        await self.slice(len(self._records) - 1)


_publish_from = publishing._publish_from
_over = Part.over


def over_but_for_newer(self: Part, progress: PartitionProgress | None) -> Outcome | None:
    """Ignore a newer epoch's record."""
    if progress is not None and progress.epoch > self.epoch:
        return None
    return _over(self, progress)


async def close_nothing(*_: object) -> Outcome:
    """Abandon without writing to the result partitions."""
    return Outcome.ENDED


def last_counts(self: Epochs, offset: Offset, record: EpochRecord) -> bool:
    """Of several openings of an epoch, the last."""
    if isinstance(record, Opened) and self.opened is not None and record.epoch == self.opened.epoch:
        self.opened, self.opening = record, offset
        return True
    return _admit(self, offset, record)


def any_end(self: Epochs, offset: Offset, record: EpochRecord) -> bool:
    """An end counts for any epoch."""
    if isinstance(record, Completed | Abandoned) and self.open:
        self.ended, self.abandon = record, False
        return True
    return _admit(self, offset, record)


_admit = Epochs.admit


async def act_on_what_is_proposed(
    log: protocol.EpochLog, place: TopicPartition, epochs: Epochs, record: EpochRecord
) -> None:
    """Do not read back whether it counts."""
    with suppress(Unknown):
        await log.append(place, record)
    epochs.admit(Offset(max(0, epochs.read_on)), record)


WEAKENINGS = {
    "look-then-init": Weakening("initialise, then look", publishing, "_settle", look_then_init),
    "go-on-blindly": Weakening("after a fence, look again", publishing, "_settle", go_on_blindly),
    "record-apart": Weakening("rows and record in one transaction", publishing, "_transact", record_apart),
    "from-the-start": Weakening("go on behind the slices that are visible", publishing, "_publish_from", from_the_start),
    "differing": Weakening(
        "slices are compared with those published", publishing._CheckedSlices, "check", differing, Scenario(differ=True)
    ),
    "newer": Weakening("a newer epoch's record ends a task", Part, "over", over_but_for_newer, Scenario(abandon=1)),
    "close-nothing": Weakening("abandoning closes every part first", publishing, "close", close_nothing, Scenario(abandon=1)),
    "last-counts": Weakening("the first opening counts", Epochs, "admit", last_counts),
    "any-end": Weakening("an end counts for its own epoch", Epochs, "admit", any_end, Scenario(abandon=0)),
    "read-back": Weakening("a driver goes by what it reads back", protocol, "propose", act_on_what_is_proposed),
}  # fmt: skip


@contextmanager
def lacking(name: str) -> Iterator[Weakening]:
    """Until the block ends, the protocol lacks this clause."""
    weakening = WEAKENINGS[name]
    with patch.object(weakening.target, weakening.name, weakening.double):
        yield weakening


def broken(scenario: Scenario, seeds: range) -> str | None:
    """How the first of these runs breaks; None if all hold."""
    for seed in seeds:
        world = sampled(seed, scenario)
        try:
            world.run()
        except (Broken, FalkirkError, Misuse) as error:
            return f"seed {seed}: {type(error).__name__}: {error}"
    return None
