"""Circuits alone: no broker, one task for each stage, state in RocksDB."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import falkirk as fk
from falkirk.checkpoint.overlay import Overlay
from falkirk.state.engine import MIB, Engine, Memory
from falkirk.stream.circuit.circuit import StageCircuit
from falkirk.stream.dataflow.circuit import Slice, StepInput
from falkirk.stream.dataflow.event_time import Watermark
from falkirk.stream.dataflow.records import Records
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.dataflow.topics import Layout

CLOCK = 1_800_000_000_000
"""When the first step closes."""


@contextmanager
def engine(cache: int = 128 * MIB) -> Iterator[Engine]:
    """A new store, in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder, closing(made(Path(folder), cache)) as store:
        yield store


def made(folder: Path, cache: int = 128 * MIB) -> Engine:
    """A new store in this folder."""
    return Engine(folder, Memory(cache, 64 * MIB), create=True)


class Operator:
    """One operator of a flow, in one task. What comes before it and after it does not run."""

    def __init__(self, flow: fk.Flow, stream: Any) -> None:
        self.operator = stream._op
        (stage,) = [s for s in flow.plan().stages if self.operator in s.operators]
        circuit = stage.circuit(0, Layout({t.topic: 1 for t in (*stage.inputs, *stage.outputs)}))
        assert isinstance(circuit, StageCircuit)
        self._circuit = circuit

    def step(self, state: Overlay, *inputs: Any, watermark: Watermark | None = None) -> Any:
        """What the operator makes of the batches of its inputs."""
        run = StepRun(StepInput(1, []), state, self._circuit.failures)
        if watermark is not None:
            run.watermarks[self.operator] = watermark
        return self._circuit.runners[self.operator].step(run, *inputs)

    def cpu(self, engine: Engine, *inputs: Any, watermark: Watermark | None = None) -> float:
        """CPU seconds of a step, the writing of its changes included."""
        begin = time.process_time()
        state = Overlay(engine)
        self.step(state, *inputs, watermark=watermark)
        engine.write(state.changes)
        return time.process_time() - begin


class Stages:
    """The stages of a flow, one task each, and the records on their way between them."""

    def __init__(self, flow: fk.Flow, folder: Path, filled: Callable[[Any], Any] | None = None) -> None:
        """`filled` gives the rows of a broadcast table, if the flow has one."""
        self.plan = flow.plan()
        topics = {t.topic for s in self.plan.stages for t in (*s.inputs, *s.outputs)}
        layout = Layout(dict.fromkeys(topics, 1), tasks={s.id: 1 for s in self.plan.stages})
        self.circuits: list[Any] = [s.circuit(0, layout) for s in self.plan.stages]
        self.engines = [made(folder / str(n)) for n in range(len(self.circuits))]
        self.shared = {table.source.id: filled(table) for s in self.plan.stages for table in s.shared if filled}
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
