"""The contract of outlets: publishers that are stopped at every call, and two at a time, leave one chain of whole steps.

`published` gives the steps that an outlet shows, in the order of the log. It asserts that nothing else is shown, and that the
log begins at the end of a chunk.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Sequence
from itertools import product
from typing import Any

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.outlets import Chunk, Outlet, Trimmed, Turn, publish

PLACE = TopicPartition("archive", 0)
Step = tuple[int, int]
"""A step's number, and its number of rows."""
RowsOf = Callable[[Sequence[Step]], Any]
"""A chunk's rows, as the outlet takes them."""

STEPS: list[Step] = [(0, 0), (1, 3), (2, 1), (3, 0), (4, 2), (5, 5), (6, 1)]
ROWS = [step for step in STEPS if step[1]]


class Suspends:
    """An awaitable that stops its coroutine once, as a port call that takes time."""

    def __await__(self) -> Any:
        yield


class Log:
    """Committed steps: one offset for each row, and one for the marker after each step."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps: list[tuple[Offset, Offset, Step]] = []
        self.begins, self.end = Offset(0), Offset(0)
        for step in steps:
            self.commit(step)

    def commit(self, step: Step) -> None:
        after = Offset(self.end + step[1])
        self.steps.append((self.end, after, step))
        self.end = Offset(after + 1)


class Reader:
    """One publisher's view of a log. It cuts chunks after `most` steps."""

    def __init__(self, log: Log, most: int, rows_of: RowsOf) -> None:
        self.log, self.most, self.rows_of = log, most, rows_of

    async def begin(self, place: TopicPartition) -> Offset:
        await Suspends()
        return self.log.begins

    async def read(self, place: TopicPartition, start: Offset) -> Chunk[Any] | None:
        await Suspends()
        if start < self.log.begins:
            raise Trimmed("gone")
        found = [(first, step) for first, _, step in self.log.steps if first >= start and step[1]]
        if not found:
            return None
        steps = [step for _, step in found[: self.most]]
        more = len(found) > self.most
        end = found[self.most][0] if more else self.log.end
        return Chunk(place, start, end, self.rows_of(steps), more)

    async def trim(self, place: TopicPartition, below: Offset) -> None:
        await Suspends()
        self.log.begins = max(self.log.begins, below)


class Slow:
    """An outlet whose calls take effect somewhere between their beginning and their answer."""

    def __init__(self, outlet: Outlet[Any]) -> None:
        self.outlet = outlet

    async def end(self, place: TopicPartition, begin: Offset) -> Offset:
        await Suspends()
        return await self.outlet.end(place, begin)

    async def append(self, chunk: Chunk[Any]) -> bool:
        await Suspends()
        new = await self.outlet.append(chunk)
        await Suspends()
        return new


class Worker:
    """It publishes turn by turn, one port call at a time. A crash forgets all that it knew."""

    def __init__(self, log: Log, outlet: Outlet[Any], most: int, rows_of: RowsOf = list) -> None:
        self.reader, self.outlet = Reader(log, most, rows_of), Slow(outlet)
        self.at: Offset | None = None
        self.running: Coroutine[Any, Any, Turn] | None = None
        self.idle = False

    def advance(self) -> None:
        """Up to the next port call."""
        if self.running is None:
            self.running = publish(self.reader, self.outlet, PLACE, self.at)
        try:
            self.running.send(None)
            self.idle = False
        except StopIteration as stop:
            self.running, self.at = None, stop.value.at
            self.idle = not stop.value.more

    def crash(self) -> None:
        if self.running is not None:
            self.running.close()
        self.running, self.at, self.idle = None, None, False

    def finish(self) -> None:
        self.idle = False
        while not self.idle:
            self.advance()


Published = Callable[[Log], list[Step]]


def crashes_at_every_call(
    make: Callable[[], tuple[Outlet[Any], Published]], most: int, rows_of: RowsOf = list, calls: int = 8
) -> None:
    """A publisher that crashes twice, at each pair of calls, loses and doubles nothing."""
    for counts in product(range(1, calls + 1), repeat=2):
        log, (outlet, published) = Log(STEPS[:4]), make()
        worker = Worker(log, outlet, most, rows_of)
        for count in counts:
            for _ in range(count):
                worker.advance()
            worker.crash()
            assert (shown := published(log)) == ROWS[: len(shown)]
        for step in STEPS[4:]:
            log.commit(step)
        worker.finish()
        assert published(log) == ROWS
        assert log.begins == log.end


def any_publishers(seed: int, make: Callable[[], Outlet[Any]], published: Published, rows_of: RowsOf = list) -> None:
    """Zombies, too: each publisher may be stopped for any time, and goes on with what it knew."""
    choice = random.Random(seed)
    log = Log([])
    workers = [Worker(log, make(), most, rows_of) for most in (1, 2, 9)]
    left = list(STEPS)
    while left or choice.random() < 0.97:
        if left and choice.random() < 0.1:
            log.commit(left.pop(0))
        worker = choice.choice(workers)
        worker.crash() if choice.random() < 0.03 else worker.advance()
        assert (shown := published(log)) == ROWS[: len(shown)]
    for worker in workers:
        worker.finish()
    assert published(log) == ROWS
