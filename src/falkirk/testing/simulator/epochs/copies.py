"""Copies of one result partition in time: each action of a copy takes a given time.

    copy 0   |skip|init, look|slice|slice| …              each slice is computed, then written
    copy 1        |skip      |init, look|slice| …         begins `stagger` later: it fences copy 0
                                                           ▲ and copy 0 must let it get there

`epochs.py` takes turns, so it finds every order of events. Only where actions take time can a run show that no order makes
two copies fence each other forever. Times in seconds.

    once       the visible rows = slices 0, 1, 2, …
    progress   the last slice is visible before `limit`
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple
from unittest.mock import patch

from falkirk.checkpoint import publishing
from falkirk.checkpoint.ids import Epoch, Offset, OwnerId, TopicPartition
from falkirk.checkpoint.ports import Aborted, Log, Unknown, Writes
from falkirk.checkpoint.publishing import Outcome, Part, PartitionProgress, Pause, Published
from falkirk.testing.simulator.check import Broken
from falkirk.testing.simulator.cluster.broker import SimBroker
from falkirk.testing.simulator.cluster.log import SimLog
from falkirk.testing.simulator.host import Thread
from falkirk.testing.simulator.points import Point, reach

REQUEST = 0.01
"""For a request that carries nothing."""
INIT = 0.1
NEW = "is about to make a new producer"
PAUSE = 0.25
"""Between two checks of another copy's progress."""
PLACE = TopicPartition("epochs", 1)
RESULTS = TopicPartition("results", 0)


class Pace(NamedTuple):
    """How fast a copy is."""

    start: float = 0.0
    compute: float = 0.1
    """For a slice: computed to be published, and computed to be compared with what is visible."""
    write: float = 0.1
    """For a slice."""
    dies: float = float("inf")


class SlowLog(SimLog):
    """Transactions and new producers take time."""

    pace: Pace

    async def renew(self) -> None:
        await reach(Point(NEW, takes=INIT))
        await super().renew()

    async def commit(self) -> Mapping[TopicPartition, Offset]:
        await reach(Point("writes a slice", takes=self.pace.write))
        return await super().commit()


@dataclass(slots=True)
class Slices:
    """`publishing.Result` of this many slices with one row each."""

    slices: int
    pace: Pace

    async def slice(self, number: int) -> Sequence[Writes]:
        await reach(Point("computes a slice", takes=self.pace.compute))
        return [Writes(RESULTS.topic, [RESULTS.partition], [None], [str(number).encode()])]


async def pause(_: str) -> None:
    await reach(Point("waits", takes=PAUSE))


@dataclass(slots=True)
class CopiesWorld:
    """A run: `CopiesWorld([Pace(), Pace(start=10)], slices=20).run(limit=60)`."""

    paces: Sequence[Pace]
    slices: int
    visible: int = 0
    """This many slices are published when the first copy begins."""
    broker: SimBroker = field(default_factory=SimBroker)
    now: float = 0.0
    inits: int = 0

    def run(self, limit: float) -> CopiesWorld:
        """Until every living copy has ended. Raises Broken."""
        self.broker.create("epochs", 2)
        self.broker.create("results", 1)
        self._publish_first()
        due = [(pace.start, number) for number, pace in enumerate(self.paces)]
        heapq.heapify(due)
        threads = [self._thread(pace) for pace in self.paces]
        while due:
            self.now, number = heapq.heappop(due)
            if self.now > limit:
                raise Broken(
                    f"progress: {len(self._rows())} of {self.slices} slices after {limit:g} s, {self.inits} producers"
                )
            thread = threads[number]
            if self.now >= self.paces[number].dies:
                thread.work.close()
                continue
            thread.advance()
            self.broker.settle()
            if not thread.done:
                self.inits += thread.at.what == NEW
                heapq.heappush(due, (self.now + (thread.at.takes or REQUEST), number))
        if self._rows() != list(range(self.slices)):
            raise Broken(f"once: {self._rows()} are visible")
        return self

    def _thread(self, pace: Pace) -> Thread:
        log = SlowLog(self.broker, OwnerId("p0"))
        log.pace = pace
        work = publishing.publish(log, Part(PLACE, Epoch(0), Offset(0)), Slices(self.slices, pace), pause)
        return Thread("copy", work)

    def _publish_first(self) -> None:
        """By a copy that died."""
        if self.visible:
            thread = self._thread(Pace())
            while len(self._rows()) < self.visible:
                thread.advance()
                self.broker.settle()
            thread.work.close()

    def _rows(self) -> list[int]:
        return [int(e.value or b"") for e in self.broker.decided(RESULTS)]


async def fence_first(
    log: Log,
    part: Part,
    _: Callable[[PartitionProgress | None], Awaitable[None]],
    attempt: Callable[[PartitionProgress | None], Awaitable[Outcome]],
    pause: Pause,
) -> Outcome:
    """As `publishing._settle`, but initialise first, and only then compute what is visible; and always wait the same time
    before taking a copy for dead."""

    async def skip(_: PartitionProgress | None) -> None:
        pass

    while True:
        await log.renew()
        progress, hidden = await publishing.look(log, part.place)
        if (over := part.over(progress)) is not None and not hidden:
            return over
        with suppress(Aborted, Unknown):
            if not hidden:
                return await attempt(progress)
        progress = await publishing._watch(log, part, progress, skip, publishing.WAITS, lambda: pause(""))
        if (over := part.over(progress)) is not None:
            return over


async def forget_first(self: publishing._CheckedSlices, visible: Published) -> None:
    """As `_CheckedSlices.check`, but compute again what was computed before."""
    del self._records[1:]
    await _check(self, visible)


def never_longer(self: publishing._Backoff, error: Aborted | Unknown, progress: PartitionProgress | None) -> int:
    """As `_Backoff.pauses`, but the waiting time does not grow."""
    return publishing.WAITS


_check = publishing._CheckedSlices.check

WEAKENINGS = {
    "fence-first": ((publishing, "_settle", fence_first), (publishing._CheckedSlices, "check", forget_first)),
    "never-longer": ((publishing._Backoff, "pauses", never_longer),),
}
"""What replaces what, so that a rule for progress is missing."""


@contextmanager
def lacking(name: str) -> Iterator[None]:
    """Until the block ends, the protocol lacks this rule."""
    with ExitStack() as patches:
        for target, attribute, double in WEAKENINGS[name]:
            patches.enter_context(patch.object(target, attribute, double))
        yield


def sampled(seed: int) -> CopiesWorld:
    """Two or three copies of any pace, some of which die; the first does not."""
    rng = random.Random(seed)

    def pace(start: float) -> Pace:
        return Pace(rng.uniform(0, start), 10 ** rng.uniform(-2, 0.5), 10 ** rng.uniform(-2, 1.3))

    dying = [pace(60)._replace(dies=rng.choice([rng.uniform(5, 90), float("inf")])) for _ in range(rng.randint(1, 2))]
    slices = rng.randint(1, 40)
    return CopiesWorld([pace(30), *dying], slices, rng.randrange(slices))
