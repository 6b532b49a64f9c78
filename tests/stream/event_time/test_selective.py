"""Selective rollback: what a task would keep if it went back to where no row before counts any more.

needed(a) ≤ complete(b)   ⇒   state(b) = fold of the circuit over the steps a+1..b, begun with kept(a)

For steps a ≤ b of random runs, whatever their rows, cuts and pauses.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import pytest
from tests.stream.operators.registered import registered

import falkirk as fk
from falkirk.checkpoint.overlay import EmptyReader, Overlay
from falkirk.checkpoint.records import SelectiveCheckpoint
from falkirk.errors import DefinitionError
from falkirk.stream.dataflow.circuit import Slice, StepInput, StepOutput
from falkirk.stream.dataflow.operator import Operator
from falkirk.stream.dataflow.records import Records
from falkirk.stream.stages.plan import Plan, Stage
from falkirk.stream.stages.stage import PhysicalStage
from falkirk.testing.memory import MemoryApp

SELECTIVE = fk.LazyCheckpoint(selective=True)


class Ran(NamedTuple):
    """A step that has run."""

    given: StepInput
    output: StepOutput
    state: dict[bytes, bytes]
    checkpoint: SelectiveCheckpoint | None


class RecordingApp(MemoryApp):
    """It keeps of each step what went in and what came out."""

    def __init__(self, flow: fk.Flow, partitions: Mapping[str, int] | None = None, *, tasks: int = 1) -> None:
        super().__init__(flow, partitions, tasks=tasks)
        self.ran: defaultdict[tuple[str, int], list[Ran]] = defaultdict(list)

    def step(self, stage: Stage, task: int, take: Mapping[str, int], clock: int | None = None) -> StepOutput:
        slices = []
        for i in stage.inputs:
            if n := take.get(i.id, 0):
                at = self.places[stage.id, task, i.id]
                slices.append(Slice(i.id, i.topic, task, Records.of(self.topics[i.topic][task][at : at + n])))
        output = super().step(stage, task, take, clock)
        state = self.states[stage.id, task]
        checkpoint = self.circuits[stage.id, task].selective(Overlay(state))
        self.ran[stage.id, task].append(Ran(StepInput(self.clock, slices), output, dict(state.data), checkpoint))
        return output


Define = Callable[[fk.Flow], None]


def source(flow: fk.Flow, name: str) -> fk.Stream:
    value = fk.Json({"k": int, "v": int, "x": float, "at": int})
    return flow.source(name, key="k", value=value, time="at", late="400ms", idle="50s")


def tumbling(flow: fk.Flow) -> None:
    bids = source(flow, "bids")
    found = bids.group_by("k", fk.tumbling("at", "1s"), id="windows").agg(n=fk.len(), top=fk.max("v"), x=fk.sum("x"))
    found.sink("updates", key=["k", "window_start"], value=fk.Json())
    found.final().sink("finals", value=fk.Json())


def hopping_behind_an_exchange(flow: fk.Flow) -> None:
    bids = source(flow, "bids").group_by("v", fk.hopping("at", "1200ms", every="400ms"), id="windows")
    bids.agg(n=fk.len(), different=fk.n_unique("k")).final().sink("finals", value=fk.Json())


def windows_of_windows(flow: fk.Flow) -> None:
    small = source(flow, "bids").group_by("k", fk.tumbling("at", "500ms"), id="small").agg(n=fk.len())
    ended = small.final(time="window_start").select("k", "n", start="window_start")
    ended.group_by("k", fk.tumbling("start", "2s"), id="large").agg(n=fk.sum("n")).final().sink("f", value=fk.Json())


def windows_of_ends(flow: fk.Flow) -> None:
    small = source(flow, "bids").group_by("k", fk.tumbling("at", "500ms"), id="small").agg(n=fk.len())
    ended = small.final().select("k", "n", end="window_end")
    ended.group_by("k", fk.tumbling("end", "1s"), id="large").agg(n=fk.sum("n")).final().sink("f", value=fk.Json())


def windows_of_ends_behind_an_exchange(flow: fk.Flow) -> None:
    small = source(flow, "bids").group_by("k", fk.tumbling("at", "500ms"), id="small").agg(n=fk.len())
    ended = small.final().select("n", end="window_end")
    ended.group_by("n", fk.tumbling("end", "1s"), id="large").agg(m=fk.len()).final().sink("f", value=fk.Json())


def aggregates_of_the_users_own(flow: fk.Flow) -> None:
    class Changes(fk.Aggregate):
        """How often a value is another than the one before."""

        state: ClassVar[dict[str, type]] = {"last": int, "n": int}
        returns = int

        def add(self, state: dict[str, Any] | None, *columns: list[Any]) -> dict[str, Any]:
            values = ([] if state is None else [state["last"]]) + columns[0]
            n = sum(a != b for a, b in pairwise(values))
            return {"last": values[-1], "n": n + (0 if state is None else state["n"])}

        def result(self, state: dict[str, Any]) -> int:
            return int(state["n"])

    windows = source(flow, "bids").group_by("k", fk.tumbling("at", "1s"), id="windows")
    windows.agg(changes=Changes("v")).sink("changes", key=["k", "window_start"], value=fk.Json())


def join_of(how: Any) -> Define:
    def join(flow: fk.Flow) -> None:
        both = joined(flow, how)
        both.sink("joined", key="k", value=fk.Json(), changes=None if how == "inner" else "weights")

    join.__name__ = f"{how}_join"
    return join


def joined(flow: fk.Flow, how: Any) -> fk.Stream:
    asks = source(flow, "asks").select("k", w="v", then="at")
    return source(flow, "bids").join(asks, on="k", within=("-800ms", "300ms"), how=how, id="near")


def windows_of_a_join(flow: fk.Flow) -> None:
    windows = joined(flow, "inner").group_by("k", fk.tumbling("at", "1s"), id="windows")
    windows.agg(n=fk.len()).final().sink("f", value=fk.Json())


FLOWS = [
    tumbling, hopping_behind_an_exchange, windows_of_windows, windows_of_ends, windows_of_ends_behind_an_exchange,
    aggregates_of_the_users_own, windows_of_a_join, *map(join_of, ("inner", "left", "right", "full", "semi", "anti")),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("define", FLOWS[:-4])
def test_state_is_what_the_steps_since_the_first_row_that_counts_make_of_it(define: Define) -> None:
    assert holds(define, seed=0) == {stage.id for stage in planned(define).stages}, "nothing was left out in the others"


@pytest.mark.slow
@pytest.mark.parametrize("define", FLOWS)
def test_it_is_so_of_all_flows_in_more_runs(define: Define) -> None:
    left_out = set[str]().union(*(holds(define, seed) for seed in range(3)))
    assert left_out == {stage.id for stage in planned(define).stages}


def test_a_result_of_a_window_counts_until_its_end_and_not_until_its_timestamp() -> None:
    """They are a millisecond apart: in this run a window that ends one after the watermark lacked a row."""
    app = ran(windows_of_ends_behind_an_exchange, random.Random(10))
    for (name, task), steps in app.ran.items():
        [stage] = [s for s in app.plan.stages if s.id == name]
        for b, end in enumerate(steps):
            if may := [a for a, begin in enumerate(steps[: b + 1]) if makes_superfluous(begin, end)]:
                check(app, stage, task, steps, may[-1], b)


def planned(define: Define) -> Plan:
    flow = fk.Flow("app", regime=SELECTIVE)
    define(flow)
    return flow.plan()


def holds(define: Define, seed: int) -> set[str]:
    """The equation, for the newest and the oldest step a of some steps b. Returns the stages where steps were left out."""
    app, kept = ran(define, random.Random(seed), rows=120 if "join" in define.__name__ else 80), set[str]()
    for (name, task), steps in app.ran.items():
        [stage] = [s for s in app.plan.stages if s.id == name]
        for b, end in enumerate(steps):
            may = [a for a, begin in enumerate(steps[: b + 1]) if makes_superfluous(begin, end)]
            if may and b % 8 == 0:
                a = may[-1 if b % 16 else 0]
                check(app, stage, task, steps, a, b)
                kept |= {name} if a > 1 else set()
    return kept


def test_every_operator_with_state_that_goes_with_time_is_in_a_flow() -> None:
    tried: set[type[Operator]] = set()
    for define in FLOWS:
        stages = planned(define).stages
        tried |= {type(o) for stage in stages if isinstance(stage, PhysicalStage) for o in stage.keeping}
    says = {kind for kind in registered() if kind.stateful and kind.remembered is not Operator.remembered}
    assert says == tried


def makes_superfluous(begin: Ran, end: Ran) -> bool:
    a, b = begin.checkpoint, end.checkpoint
    return a is not None and b is not None and a.needed <= b.complete


def check(app: RecordingApp, stage: Stage, task: int, steps: list[Ran], a: int, b: int) -> None:
    """The equation; and what follows says the same. Without the clause that step a must be old enough it does not hold."""
    begin, where = steps[a].checkpoint, f"{stage.id}/{task}: steps {a + 1} to {b} of {len(steps)}"
    assert begin is not None
    circuit, state = stage.circuit(task, app.layout), Overlay(EmptyReader())
    state.changes.update(begin.kept)
    for step in steps[a + 1 : b + 1]:
        circuit.run(step.given, state)
    assert {key: value for key, value in state.changes.items() if value is not None} == steps[b].state, where
    assert circuit.selective(state) == steps[b].checkpoint, where
    for step in steps[b + 1 : b + 4]:
        assert circuit.run(step.given, state) == step.output, where


def ran(define: Define, rng: random.Random, rows: int = 80) -> RecordingApp:
    """A flow with rows that come out of order, too late, and after a pause; its tasks run whenever they want."""
    flow = fk.Flow("app", regime=SELECTIVE)
    define(flow)
    topics = [i.topic for stage in flow.plan().stages for i in stage.inputs if i.kind == "source"]
    app, at = RecordingApp(flow, dict.fromkeys(topics, 2), tasks=2), 1_000
    for _ in range(rows):
        at = max(100, (at + 1) // 100 * 100 + 100 * rng.randint(-3, 6)) - rng.choice((0, 1))  # at the bounds of windows
        k, v = rng.randrange(4), rng.randrange(3)
        value = json.dumps({"k": k, "v": v, "x": v / 3, "at": at}).encode()
        app.append(rng.choice(topics), b"%d" % k, value, timestamp=at)
        if rng.random() < 0.2:
            app.run(rng, tick=rng.choice((1, 1, 30_000)))
    app.run(rng)
    return app


def test_the_first_row_that_counts_is_not_later() -> None:
    """The equation needs its condition: from later steps on, windows lack rows."""
    app = ran(tumbling, random.Random(0))
    [stage] = app.plan.stages
    steps = app.ran[stage.id, 0]
    end = max(b for b, step in enumerate(steps) if step.checkpoint)
    first = max(a for a, step in enumerate(steps[:end]) if makes_superfluous(step, steps[end]))
    for later in (a for a in range(first + 1, end) if steps[a].checkpoint is not None):
        try:
            check(app, stage, 0, steps, later, end)
        except AssertionError:
            return
    pytest.fail("no later step was too late")


@pytest.mark.parametrize(
    ("define", "culprit"),
    [
        (lambda bids: bids.group_by("k", id="totals").agg(n=fk.len()).sink("n", key="k", value=fk.Json()), "totals"),
        (lambda bids: bids.deduplicate("k", within="1s", id="once").sink("once", value=fk.Json()), "once"),
        (
            lambda bids: bids.group_by("k", fk.session("at", gap="1s"), id="visits").agg(n=fk.len())
            .sink("n", key=["k", "window_start"], value=fk.Json()),
            "visits",
        ),
    ],
)  # fmt: skip
def test_state_that_depends_on_all_rows_is_refused(define: Callable[[fk.Stream], None], culprit: str) -> None:
    flow = fk.Flow("app", regime=SELECTIVE)
    define(source(flow, "bids"))
    with pytest.raises(DefinitionError, match=f"selective=True does not work for '{culprit}'"):
        flow.plan()
