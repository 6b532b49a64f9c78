"""Rows leave Kafka once: publishers that are stopped at every call, and two at a time, leave one chain of whole steps."""

from __future__ import annotations

import random
from collections.abc import Coroutine, Sequence
from itertools import product
from typing import Any

import pytest

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.outlets import Chunk, Trimmed, Turn, publish

PLACE = TopicPartition("archive", 0)
Step = tuple[int, int]
"""A step's number, and its number of rows."""


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

    def __init__(self, log: Log, most: int) -> None:
        self.log, self.most = log, most

    async def begin(self, place: TopicPartition) -> Offset:
        await Suspends()
        return self.log.begins

    async def read(self, place: TopicPartition, start: Offset) -> Chunk[list[Step]] | None:
        await Suspends()
        if start < self.log.begins:
            raise Trimmed("gone")
        found = [(first, step) for first, _, step in self.log.steps if first >= start and step[1]]
        if not found:
            return None
        steps = [step for _, step in found[: self.most]]
        more = len(found) > self.most
        return Chunk(place, start, found[self.most][0] if more else self.log.end, steps, more)

    async def trim(self, place: TopicPartition, below: Offset) -> None:
        await Suspends()
        self.log.begins = max(self.log.begins, below)


class Memory:
    """An outlet. Its calls take effect somewhere between their beginning and their answer."""

    def __init__(self) -> None:
        self.chunks: dict[Offset, Chunk[list[Step]]] = {}

    async def end(self, place: TopicPartition, begin: Offset) -> Offset:
        await Suspends()
        return max([begin, *(c.end for start, c in self.chunks.items() if start >= begin)])

    async def append(self, chunk: Chunk[list[Step]]) -> bool:
        await Suspends()
        new = chunk.start not in self.chunks
        self.chunks.setdefault(chunk.start, chunk)
        await Suspends()
        return new


class Careless(Memory):
    """It replaces what is there."""

    async def append(self, chunk: Chunk[list[Step]]) -> bool:
        await Suspends()
        self.chunks[chunk.start] = chunk
        return True


class Worker:
    """It publishes turn by turn, one port call at a time. A crash forgets all that it knew."""

    def __init__(self, log: Log, outlet: Memory, most: int) -> None:
        self.reader, self.outlet = Reader(log, most), outlet
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


def published(outlet: Memory) -> list[Step]:
    """The rows, chunk by chunk. Asserts that the chunks are a chain."""
    steps, at = [], Offset(0)
    for start, chunk in sorted(outlet.chunks.items()):
        assert start == chunk.start == at, f"a gap or an overlap at {at}"
        steps += chunk.rows
        at = chunk.end
    return steps


STEPS: list[Step] = [(0, 0), (1, 3), (2, 1), (3, 0), (4, 2), (5, 5), (6, 1)]
ROWS = [step for step in STEPS if step[1]]


@pytest.mark.parametrize("most", [1, 2, 9])
def test_a_crash_at_every_call_loses_and_doubles_nothing(most: int) -> None:
    for calls in product(range(1, 9), repeat=2):
        log, outlet = Log(STEPS[:4]), Memory()
        worker = Worker(log, outlet, most)
        for count in calls:
            for _ in range(count):
                worker.advance()
            worker.crash()
            assert published(outlet) == ROWS[: len(published(outlet))]
        for step in STEPS[4:]:
            log.commit(step)
        worker.finish()
        assert published(outlet) == ROWS
        assert log.begins == log.end


@pytest.mark.parametrize("seed", range(300))
def test_any_number_of_publishers_leave_one_chain(seed: int) -> None:
    """Zombies, too: each publisher may be stopped for any time, and goes on with what it knew."""
    choice = random.Random(seed)
    log, outlet = Log([]), Memory()
    workers = [Worker(log, outlet, most) for most in (1, 2, 9)]
    left = list(STEPS)
    while left or choice.random() < 0.97:
        if left and choice.random() < 0.1:
            log.commit(left.pop(0))
        worker = choice.choice(workers)
        worker.crash() if choice.random() < 0.03 else worker.advance()
        assert published(outlet) == ROWS[: len(published(outlet))]
        assert log.begins in {Offset(0), *(chunk.end for chunk in outlet.chunks.values())}
    for worker in workers:
        worker.finish()
    assert published(outlet) == ROWS


def test_an_outlet_that_replaces_files_would_be_noticed() -> None:
    """The test above can fail."""

    def doubles(seed: int) -> bool:
        choice = random.Random(seed)
        log, outlet = Log(STEPS), Careless()
        workers = [Worker(log, outlet, most) for most in (1, 2, 9)]
        try:
            for _ in range(200):
                choice.choice(workers).advance()
                published(outlet)
        except AssertionError:
            return True
        return False

    assert any(map(doubles, range(50)))
