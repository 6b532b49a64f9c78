"""Rows leave Kafka once: publishers that are stopped at every call, and two at a time, leave one chain of whole steps."""

from __future__ import annotations

import random

import pytest
from tests.checkpoint.outlet_contract import STEPS, Log, Published, Step, Worker, any_publishers, crashes_at_every_call

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.outlets import Chunk


class Memory:
    """An outlet."""

    def __init__(self) -> None:
        self.chunks: dict[Offset, Chunk[list[Step]]] = {}

    async def end(self, place: TopicPartition, begin: Offset) -> Offset:
        return max([begin, *(c.end for start, c in self.chunks.items() if start >= begin)])

    async def append(self, chunk: Chunk[list[Step]]) -> bool:
        new = chunk.start not in self.chunks
        self.chunks.setdefault(chunk.start, chunk)
        return new

    def published(self, log: Log) -> list[Step]:
        """The rows, chunk by chunk. Asserts that the chunks are a chain."""
        steps, at = list[Step](), Offset(0)
        for start, chunk in sorted(self.chunks.items()):
            assert start == chunk.start == at, f"a gap or an overlap at {at}"
            steps += chunk.rows
            at = chunk.end
        assert log.begins in {Offset(0), *(chunk.end for chunk in self.chunks.values())}
        return steps


class Careless(Memory):
    """It replaces what is there."""

    async def append(self, chunk: Chunk[list[Step]]) -> bool:
        self.chunks[chunk.start] = chunk
        return True


@pytest.mark.parametrize("most", [1, 2, 9])
def test_a_crash_at_every_call_loses_and_doubles_nothing(most: int) -> None:
    def make() -> tuple[Memory, Published]:
        memory = Memory()
        return memory, memory.published

    crashes_at_every_call(make, most)


@pytest.mark.parametrize("seed", range(300))
def test_any_number_of_publishers_leave_one_chain(seed: int) -> None:
    memory = Memory()
    any_publishers(seed, lambda: memory, memory.published)


def test_an_outlet_that_replaces_files_would_be_noticed() -> None:
    """The test above can fail."""

    def doubles(seed: int) -> bool:
        choice = random.Random(seed)
        log, outlet = Log(STEPS), Careless()
        workers = [Worker(log, outlet, most) for most in (1, 2, 9)]
        try:
            for _ in range(200):
                choice.choice(workers).advance()
                outlet.published(log)
        except AssertionError:
            return True
        return False

    assert any(map(doubles, range(50)))
