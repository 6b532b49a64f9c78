"""What NexMark's queries cost in the circuit alone: no broker, one task for each stage, state in RocksDB."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

import falkirk as fk
from falkirk.stream.circuit.broadcast import NEVER, Keeper, Run
from falkirk.stream.dataflow.records import Records
from falkirk.testing.memory import DictState
from harness.circuits import CLOCK, Stages
from parts.nexmark.example import events, fill, queries, texts

EVENTS, STEP = 300_000, 50_000
"""Events in all, and in a step."""


def records(topic: str, frame: pl.DataFrame, first: int) -> Records:
    """A frame as records of one partition."""
    keys = frame[fill.KEYS[topic]].cast(pl.String).cast(pl.Binary).to_list()
    offsets = list(range(first, first + frame.height))
    return Records(offsets, keys, list(fk.Json().encode(frame)), [CLOCK] * frame.height)


def steps(count: int, size: int) -> list[dict[str, Records]]:
    """The events of each step, by topic."""
    found, at = [], Counter[str]()
    for start in range(0, count, size):
        some = events.events(start, min(start + size, count))
        step = {}
        for topic, frame in (("person", some.people), ("auction", some.auctions), ("bid", some.bids)):
            step[topic] = records(topic, frame, at[topic])
            at[topic] += frame.height
        found.append(step)
    return found


def kept(table: Any) -> Any:
    """The broadcast table, filled."""
    keeper, state = Keeper(table), DictState()
    keeper.keep(Run(0, NEVER, records(table.source.topic, events.side_input(), 0)), state, NEVER)
    return keeper.seen(state, NEVER)


def cost(number: int, text: str, read: list[dict[str, Records]], *, watch: bool = False) -> tuple[float, Stages, int]:
    """CPU seconds, and records read."""
    flow = (queries.flow if text == "dsl" else texts.flow)(number, fk.EagerCheckpoint())
    sources = {i.topic for s in flow.plan().stages for i in s.inputs}
    count = sum(len(r) for step in read for topic, r in step.items() if topic in sources)
    with tempfile.TemporaryDirectory() as folder:
        stages = Stages(flow, Path(folder), kept)
        if watch:
            stages.watch()
        begin = time.process_time()
        for n, step in enumerate(read):
            stages.run(CLOCK + 100 * n, step)
        took = time.process_time() - begin
        stages.close()
    return took, stages, count


def where(numbers: Sequence[int], count: int = EVENTS, size: int = STEP) -> dict[str, Any]:
    """The cost of these queries and of their operators, in CPU seconds for a million records."""
    read, found = steps(count, size), {}
    for number in numbers:
        took, stages, records_read = cost(number, "dsl", read, watch=True)
        millions = records_read / 1e6
        each = {what: round(seconds / millions, 2) for what, seconds in stages.spent.most_common()}
        found[str(number)] = {"circuit": round(took / millions, 2), "operators": each}
    return {"events": count, "step": size, "queries": found}
