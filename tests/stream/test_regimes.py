"""A regime is one object: a regime made up here runs, and no other code asks which regime it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import ClassVar

import msgspec
import polars as pl
import pytest

import falkirk as fk
from falkirk.checkpoint.ports import Writes
from falkirk.checkpoint.records import RecordedStep
from falkirk.checkpoint.regimes import Lazy, LogBounds, Means, Recovery, Stateless
from falkirk.checkpoint.tasks import ClosedStep, Owned, Task
from falkirk.durations import DurationLike
from falkirk.errors import DefinitionError, DivergenceError
from falkirk.runtime.layout.compatibility import stage_records
from falkirk.runtime.layout.wanted_topics import logs_of
from falkirk.stream.definition.regimes import Checkpoint, Regime
from falkirk.stream.flow.explain import explain
from falkirk.testing.simulator.explore import attempt, crashes, moves, pauses, sample
from falkirk.testing.simulator.toy import Toy

BID = fk.Json({"auction": int, "price": int})
ROWS = [{"auction": i % 7, "price": i * 37 % 101} for i in range(60)]


@dataclass(frozen=True)
class Hasty(fk.EagerCheckpoint):
    """Eager, with another name and pace."""

    kind: ClassVar[str] = "hasty"
    step: DurationLike = "5ms"
    every: DurationLike = "1s"


@dataclass(frozen=True)
class Leisurely(Checkpoint):
    """Lazy, and no subclass of that."""

    kind: ClassVar[str] = "leisurely"
    recovery: ClassVar[type[Recovery]] = Lazy
    step: DurationLike = "10s"


class Journal(Recovery):
    """Each step logs all its changes as one record, and the records are applied, by number."""

    name: ClassVar[str] = "journal"
    needs: ClassVar[tuple[str, ...]] = ("journal",)
    rebuilds: ClassVar[bool] = True
    order: ClassVar[int] = -1
    applied: ClassVar[list[int]] = []
    """The steps that recoveries have applied."""

    def logs(self, step: ClosedStep) -> list[Writes]:
        (place,), record = self.log_partitions, step.record
        changes = msgspec.msgpack.encode(list(step.overlay.changes.items()))
        return [Writes(place.topic, [place.partition], [b"%020d" % record.step], [changes], tracked=True)]

    async def recover(self, means: Means, owned: Owned, steps: Sequence[RecordedStep], bounds: LogBounds) -> bool:
        (place,), store = self.log_partitions, owned.opened()
        at, position, found = store.progress.step, bounds.begins[place], dict[bytes, bytes | None]()
        while position < bounds.ends[place]:
            changes, position = await means.log.read_changes(place, position, bounds.ends[place])
            found |= changes
        for offset, record in steps:
            if record.step > at:
                value = found.get(b"%020d" % record.step) or msgspec.msgpack.encode([])
                state = dict(msgspec.msgpack.decode(value, type=list[tuple[bytes, bytes | None]]))
                store.write(state, store.progress.at(record.step, offset + 1, 0, record.clock))
                self.applied.append(record.step)
        return True


@dataclass(frozen=True)
class Journaled(Checkpoint):
    """A regime with a recovery of its own."""

    kind: ClassVar[str] = "journaled"
    recovery: ClassVar[type[Recovery]] = Journal


def auctions(regime: Regime) -> fk.Flow:
    flow = fk.Flow("auctions", regime=regime)
    bids = flow.source("bids", key="auction", value=BID)
    bids.group_by("auction", id="tops").agg(top=fk.max("price")).sink("tops", key="auction", value=fk.Json())
    return flow


@pytest.mark.parametrize("regime", [Hasty(), Leisurely(), Journaled()], ids=["hasty", "leisurely", "journaled"])
def test_a_regime_that_is_made_up_here_loses_nothing_in_crashes(regime: Checkpoint) -> None:
    result = fk.testing.run(auctions(regime), {"bids": ROWS}, crash_at=[1, 3, 6], partitions=2)
    tops = pl.DataFrame(ROWS).group_by("auction").agg(top=pl.col("price").max())
    assert {key: row["top"] for key, row in result.sinks["tops"].table.items()} == dict(tops.iter_rows())


def test_a_recovery_that_is_made_up_here_brings_the_state_back() -> None:
    """By its own log alone, in a topic of its own, under the name that the layout records."""
    Journal.applied.clear()
    fk.testing.run(auctions(Journaled()), {"bids": ROWS}, crash_at=[1, 3, 6], partitions=2)
    assert len(Journal.applied) > 3
    (stage,) = auctions(Journaled()).plan().stages
    assert logs_of(stage, "auctions", "falkirk") == ["falkirk.auctions.journal.tops"]
    (record,) = stage_records((stage,), {"tops": 1})
    assert (record.regime, record.recovery) == ("journal", Journal)


@pytest.mark.parametrize("seed", range(12))
def test_it_survives_crashes_pauses_and_moves_in_the_simulator(seed: int) -> None:
    make = partial(Toy, tasks=1 + seed % 2, recovery=Journal, inputs=4)
    assert attempt(make, sample(seed, kinds=(crashes, pauses, moves)), seed=seed) is None


def test_a_journal_that_is_not_applied_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Journal, "recover", Stateless.recover)
    with pytest.raises((AssertionError, fk.FalkirkError)):
        fk.testing.run(auctions(Journaled()), {"bids": ROWS}, crash_at=[1, 3, 6], partitions=2)


def test_its_name_and_its_pace_are_its_own() -> None:
    (stage,) = auctions(Hasty()).plan().stages
    assert (stage.regime.kind, stage.regime.step) == ("hasty", timedelta(milliseconds=5))
    assert "stage tops: hasty, steps of up to 5ms, a version every 1s" in explain(auctions(Hasty()))


def test_state_goes_on_from_one_regime_to_another_with_the_same_recovery() -> None:
    """The layout records the recovery, because state depends on that alone."""

    def recorded(regime: Regime) -> str:
        (record,) = stage_records(auctions(regime).plan().stages, {"tops": 1})
        return record.regime

    assert recorded(Hasty()) == recorded(fk.EagerCheckpoint()) == "eager"
    assert recorded(Leisurely()) == recorded(fk.LazyCheckpoint()) == "lazy"


def test_what_is_asked_of_a_lazy_part_is_asked_of_every_regime_that_runs_steps_again() -> None:
    flow, seen = fk.Flow("counted", regime=Leisurely()), iter(range(10_000))
    by_auction = flow.source("bids", key="auction", value=BID).key_by("auction")
    numbered = by_auction.process(lambda row, key: {**row, "price": next(seen)}, id="number")
    numbered.sink("numbered", key="auction", value=fk.Json())
    with pytest.raises(DivergenceError, match="run again, gives another output"):
        fk.testing.run(flow, {"bids": ROWS}, crash_at=[4])

    bids = fk.Flow("moved", regime=Leisurely()).source("bids", key="auction", value=BID)
    earlier = fk.From(1, {"top": fk.Int64}, by=lambda row: row)
    with pytest.raises(DefinitionError, match="state of the leisurely regime cannot be migrated"):
        bids.group_by("auction", id="tops", version=2, migrate=earlier).agg(top=fk.max("price"))


# -- nobody asks which regime it is ------------------------------------------------------------------------------------

SOURCE = Path(fk.__file__).parent
THEIR_OWN = {SOURCE / "stream/definition/regimes.py", SOURCE / "stream/definition/regime_plan.py"}
THEIR_OWN |= set((SOURCE / "checkpoint/regimes").glob("*.py"))
KINDS = {"eager", "lazy", "batch"}
CLASSES = {"EagerCheckpoint", "LazyCheckpoint", "Checkpoint", "RegimePlan", "BatchPlan", "Eager", "Lazy", "Stateless"}
FLAGS = {"changelog", "logged", "replayed", "replays", "stateful"}
"""Words that would tell a task's regime in another way."""


def questions(code: ast.AST) -> Iterator[ast.AST]:
    """Where the code asks which regime it is."""
    for node in ast.walk(code):
        match node:
            case ast.Compare() if any(_is_kind(part) for part in _parts(node)):
                yield node
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[thing, types]):
                if _words(thing) & {"regime", "recovery"} or _words(types) & CLASSES:
                    yield node
            case ast.Match(subject=subject) if _words(subject) & {"regime", "recovery"}:
                yield node
            case ast.Subscript(value=ast.Dict(keys=keys)) if any(_is_kind(key) for key in keys if key):
                yield node
            case ast.Attribute(value=ast.Name(id="task") | ast.Attribute(attr="task"), attr=flag) if flag in FLAGS:
                yield node


def _parts(node: ast.Compare) -> Iterator[ast.expr]:
    for side in (node.left, *node.comparators):
        yield from side.elts if isinstance(side, ast.Tuple | ast.List | ast.Set) else [side]


def _is_kind(node: ast.expr) -> bool:
    """A regime's name or class, or a word for one."""
    match node:
        case ast.Constant(value=str(word)):
            return word in KINDS
        case ast.Attribute(value=of, attr="kind" | "name"):
            return _words(of) & {"regime", "recovery"} != set()
        case ast.Call(func=ast.Name(id="type"), args=[of]):
            return _words(of) & {"regime", "recovery"} != set()
        case ast.Name(id=word) | ast.Attribute(attr=word):
            return word in CLASSES
    return False


def _words(node: ast.AST) -> set[str]:
    """All names in an expression."""
    nodes = list(ast.walk(node))
    return {n.id for n in nodes if isinstance(n, ast.Name)} | {n.attr for n in nodes if isinstance(n, ast.Attribute)}


def test_no_module_outside_the_regimes_asks_which_one_it_is() -> None:
    modules = [path for path in SOURCE.rglob("*.py") if path not in THEIR_OWN]
    assert len(modules) > 300
    found = [
        f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 0)}: {ast.unparse(node)}"
        for path in modules
        for node in questions(ast.parse(path.read_text()))
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        'stage.regime.kind == "eager"',
        'word in ("lazy", "batch")',
        "part.regime.kind != other.regime.kind",
        "stage.regime.recovery is Lazy",
        "stage.regime.recovery is regimes.Lazy",
        "type(now.regime) == X",
        "isinstance(before.regime, Batch)",
        "isinstance(thing, X | LazyCheckpoint)",
        "issubclass(stage.regime.recovery, X)",
        '{"eager": 1, "lazy": 2}[word]',
        "match stage.regime:\n    case X(): pass",
        "owned.task.changelog",
        "task.replayed",
        "bound.task.stateful",
        "isinstance(owned.task.recovery, X)",
    ],
)
def test_a_question_after_the_regime_is_found(line: str) -> None:
    assert len(list(questions(ast.parse(line)))) == 1


@pytest.mark.parametrize(
    "line",
    [
        "stage.regime.recovery.requires",
        "task.recovery.keeps_state",
        "before.regime == after.regime",
        'f"{regime.kind}"',
    ],
)
def test_what_a_regime_means_and_what_it_is_called_may_be_asked(line: str) -> None:
    assert not list(questions(ast.parse(line)))


def test_a_task_says_nothing_about_its_regime_beside_its_recovery() -> None:
    assert [field.name for field in fields(Task)] == ["id", "steps", "recovery", "layout"]


@pytest.mark.parametrize("regime", [fk.EagerCheckpoint, fk.LazyCheckpoint])
def test_a_time_for_recoveries_takes_the_place_of_an_interval(regime: type[Checkpoint]) -> None:
    plan = regime(every=fk.RecoverWithin("2s")).plan()
    assert (plan.within, plan.every) == (timedelta(seconds=2), timedelta(minutes=1))
    assert regime(every="5s").plan().within is None
    assert f"{plan.kind}, steps of up to 100ms, versions that let another host recover within 2s" in explain(
        auctions(regime(every=fk.RecoverWithin("2s")))
    )


@pytest.mark.parametrize("time", ["0s", "two seconds", "", 2])
def test_a_time_for_recoveries_that_is_none_is_refused_where_it_is_written(time: object) -> None:
    with pytest.raises(DefinitionError, match=r"RecoverWithin=.* is not a duration") as refused:
        fk.RecoverWithin(time)  # type: ignore[arg-type]
    assert "test_regimes.py:" in refused.value.where
