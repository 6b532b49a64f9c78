"""What NexMark's queries cost in the circuit alone: no broker, one task for each stage, state in RocksDB.

    python bench/nexmark_steps.py [--events N] [--step ROWS] [--only 4 --only 9] [--profile]
    python bench/nexmark_steps.py --save        the three slowest of results/nexmark.json, for RESULTS.md

CPU seconds of this process for a million records read, and the share of each operator. Kafka's client is not in it, nor
are the digest and the log of a step; so it is steadier than bench/nexmark.py, and what it does not show has not changed.
"""

from __future__ import annotations

import cProfile
import json
import pstats
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import polars as pl
from nexmark_report import slowest
from processes import ROOT
from report import write

import falkirk as fk
from falkirk.checkpoint.overlay import Overlay
from falkirk.state.engine import MIB, Engine, Memory
from falkirk.stream.circuit.broadcast import Keeper
from falkirk.stream.circuit.circuit import StageCircuit
from falkirk.stream.dataflow.circuit import Slice, StepInput
from falkirk.stream.dataflow.records import Records
from falkirk.stream.dataflow.topics import Layout

sys.path.insert(0, str(ROOT / "examples" / "nexmark"))

import events as generator
import fill
import queries
import texts

CLOCK = 1_800_000_000_000
EVENTS, STEP = 300_000, 50_000
RESULTS = ROOT / "bench" / "results"


def records(topic: str, frame: pl.DataFrame, first: int) -> Records:
    """A frame as records of one partition."""
    keys = frame[fill.KEYS[topic]].cast(pl.String).cast(pl.Binary).to_list()
    offsets = list(range(first, first + frame.height))
    return Records(offsets, keys, list(fk.Json().encode(frame)), [CLOCK] * frame.height)


def steps(count: int, size: int) -> list[dict[str, Records]]:
    """The events of each step, by topic."""
    found, at = [], Counter[str]()
    for start in range(0, count, size):
        some = generator.events(start, min(start + size, count))
        step = {}
        for topic, frame in (("person", some.people), ("auction", some.auctions), ("bid", some.bids)):
            step[topic] = records(topic, frame, at[topic])
            at[topic] += frame.height
        found.append(step)
    return found


class Stages:
    """The stages of a flow, one task each, and the records on their way between them."""

    def __init__(self, flow: fk.Flow, folder: Path) -> None:
        self.plan = flow.plan()
        topics = {i.topic for s in self.plan.stages for i in s.inputs} | {
            o.topic for s in self.plan.stages for o in s.outputs
        }
        layout = Layout(dict.fromkeys(topics, 1), tasks={s.id: 1 for s in self.plan.stages})
        self.circuits: list[Any] = [s.circuit(0, layout) for s in self.plan.stages]
        self.engines = [
            Engine(folder / str(n), Memory(128 * MIB, 64 * MIB), create=True) for n in range(len(self.circuits))
        ]
        self.shared = {table.source.id: kept(table) for s in self.plan.stages for table in s.shared}
        self.written = 0
        self.spent: Counter[str] = Counter()

    def run(self, clock: int, read: dict[str, Records]) -> None:
        """One step of each stage."""
        waiting = dict(read)
        for stage, circuit, engine in zip(self.plan.stages, self.circuits, self.engines, strict=True):
            slices = [Slice(i.id, i.topic, 0, waiting[i.topic]) for i in stage.inputs if i.topic in waiting]
            state = Overlay(engine)
            out = circuit.run(StepInput(clock, slices, self.shared), state)
            self.spend("store", lambda engine=engine, state=state: engine.write(state.changes))
            for e in out.emitted:
                self.written += len(e.values)
                waiting[e.topic] = Records(list(range(len(e.values))), list(e.keys), list(e.values), list(e.timestamps))

    def spend(self, what: str, call: Callable[[], Any]) -> Any:
        """Call, and note the time."""
        begin = time.process_time()
        try:
            return call()
        finally:
            self.spent[what] += time.process_time() - begin

    def watch(self) -> None:
        """Note the time of each operator from here on."""
        for circuit in self.circuits:
            assert isinstance(circuit, StageCircuit)
            for operator, runner in circuit.runners.items():
                runner.step = self._watched(f"{operator.kind} {operator.id}", runner.step)  # type: ignore[method-assign]
            for source, reader in circuit.readers.items():
                reader.read = self._watched(f"read {source.id}", reader.read)  # type: ignore[method-assign]
            for writer in circuit.writers:
                writer.run = self._watched(f"send {writer.edge.id}", writer.run)  # type: ignore[method-assign]

    def _watched(self, what: str, call: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: self.spend(what, lambda: call(*given))

    def close(self) -> None:
        for engine in self.engines:
            engine.close()


def kept(table: Any) -> Any:
    """The broadcast table, filled."""
    from falkirk.stream.circuit.broadcast import NEVER, Run
    from falkirk.testing.memory import DictState

    keeper, state = Keeper(table), DictState()
    keeper.keep(Run(0, NEVER, records(table.source.topic, generator.side_input(), 0)), state, NEVER)
    return keeper.seen(state, NEVER)


def cost(number: int, text: str, read: list[dict[str, Records]], *, watch: bool = False) -> tuple[float, Stages, int]:
    """CPU seconds, and records read."""
    flow = (queries.flow if text == "dsl" else texts.flow)(number, fk.EagerCheckpoint())
    sources = {i.topic for s in flow.plan().stages for i in s.inputs}
    count = sum(len(r) for step in read for topic, r in step.items() if topic in sources)
    with tempfile.TemporaryDirectory() as folder:
        stages = Stages(flow, Path(folder))
        if watch:
            stages.watch()
        begin = time.process_time()
        for n, step in enumerate(read):
            stages.run(CLOCK + 100 * n, step)
        took = time.process_time() - begin
        stages.close()
    return took, stages, count


def where(numbers: Sequence[int], events: int = EVENTS, step: int = STEP) -> dict[str, Any]:
    """The cost of these queries and of their operators, in CPU seconds for a million records."""
    read, found = steps(events, step), {}
    for number in numbers:
        took, stages, count = cost(number, "dsl", read, watch=True)
        each = {what: round(seconds / count * 1e6, 2) for what, seconds in stages.spent.most_common()}
        found[str(number)] = {"circuit": round(took / count * 1e6, 2), "operators": each}
    return {"events": events, "step": step, "queries": found}


def save(events: int, step: int) -> None:
    """Measure the slowest of the results, and write RESULTS.md again."""
    path = RESULTS / "nexmark.json"
    part = json.loads(path.read_text())
    part["where"] = where(slowest(part), events, step)
    path.write_text(json.dumps(part, indent=1) + "\n")
    write(RESULTS, RESULTS.parent / "RESULTS.md")


def shares(stages: Stages, count: int) -> Iterator[str]:
    """Where it goes, operator by operator."""
    for what, seconds in stages.spent.most_common(12):
        yield f"    {seconds / count * 1e6:>7.2f}  {what}"


@click.command()
@click.option("--events", default=EVENTS, show_default=True)
@click.option("--step", default=STEP, show_default=True, help="Events of a step.")
@click.option("--only", type=int, multiple=True, help="Measure this query alone; may be repeated.")
@click.option("--text", type=click.Choice(["dsl", "sql"]), default="dsl", show_default=True)
@click.option("--operators", is_flag=True, help="Show the cost of each operator.")
@click.option("--profile", is_flag=True, help="Show the cost of each function.")
@click.option("--save", "saves", is_flag=True, help="Write the cost of the three slowest queries to the results.")
def main(events: int, step: int, only: tuple[int, ...], text: str, operators: bool, profile: bool, saves: bool) -> None:
    """Show what each query costs."""
    if saves:
        save(events, step)
        return
    read = steps(events, step)
    for number in only or [n for n in queries.QUERIES if text == "dsl" or n in texts.TEXTS]:
        profiler = cProfile.Profile(time.thread_time)
        if profile:
            profiler.enable()
        took, stages, count = cost(number, text, read, watch=operators)
        profiler.disable()
        print(
            f"q{number:<3}{took / count * 1e6:>8.2f} s a million, {stages.written / count:.2f} records written a record",
            flush=True,
        )
        if operators:
            print(*shares(stages, count), sep="\n")
        if profile:
            pstats.Stats(profiler).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    main()
