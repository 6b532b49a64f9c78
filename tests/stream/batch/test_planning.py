"""Which parts of a flow are batch, what they are computed from, and what is refused at the line that wrote it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import falkirk as fk
from falkirk.errors import DefinitionError
from falkirk.stream.batch import BatchStage
from falkirk.stream.batch.stage import fingerprint_of
from falkirk.stream.definition.regime_plan import BatchPlan
from falkirk.stream.stages.plan import Plan

JSON = fk.Json()
BID = fk.Json({"auction": fk.Int64, "price": fk.Int64, "note": fk.String})
BATCH = fk.Batch(every="1h")


def counted(s: fk.Stream, by: str = "auction", name: str | None = None) -> fk.Stream:
    return s.group_by(by, id=name).agg(n=fk.len())


def planned(build: Callable[[fk.Stream], Any], regime: Any = None) -> Plan:
    flow = fk.Flow("f", regime=regime)
    build(flow.source("bids", key="auction", value=BID))
    return flow.plan()


@pytest.mark.parametrize(
    ("regime", "plan"),
    [
        (fk.Batch(), BatchPlan(None, "whole")),
        (fk.Batch(every="1h"), BatchPlan(timedelta(hours=1), "whole")),
        (fk.Batch(every=timedelta(minutes=5), history="new"), BatchPlan(timedelta(minutes=5), "new")),
        (fk.Batch(every=1_000_000), BatchPlan(1_000_000, "whole")),
    ],
)
def test_a_regime_says_when_and_of_what(regime: fk.Batch, plan: BatchPlan) -> None:
    assert regime.plan() == plan


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"every": "soon"}, "every='soon' is not a duration"),
        ({"every": 0}, "every=0 is neither"),
        ({"every": True}, "every=True is neither"),
        ({"every": 1.5}, "every=1.5 is neither"),
        ({"every": timedelta(0)}, "is not a duration"),
        ({"history": "all"}, "history='all' is not known"),
    ],
)
def test_another_when_or_of_what_is_refused(given: Any, says: str) -> None:
    with pytest.raises(DefinitionError, match=says) as caught:
        fk.Batch(**given)
    assert "test_planning.py:" in caught.value.where
    assert caught.value.hint


WRONG: dict[str, tuple[Callable[[fk.Stream], Any], str]] = {
    "a class": (lambda s: s.with_regime(fk.Batch), "is not a regime"),  # type: ignore[arg-type]
    "a stream behind": (
        lambda s: s.with_regime(BATCH).filter(fk.col("price") > 1).with_regime(fk.EagerCheckpoint()),
        "the output of a batch part cannot be a stream again",
    ),
    "a stream right behind": (
        lambda s: s.with_regime(BATCH).with_regime(fk.LazyCheckpoint(), id="again"),
        "the output of a batch part cannot be a stream again",
    ),
    "a stream that takes it in": (lambda s: s.concat(s.with_regime(BATCH)), "one of the streams is batch"),
    "no sink": (lambda s: counted(s.with_regime(BATCH)), "this one has none"),
    "no sink, no state": (lambda s: (s.with_regime(BATCH), s.sink("out", value=JSON)), "this one has none"),
    "new records behind state that saw all": (
        lambda s: counted(s, name="all").with_regime(fk.Batch(history="new")).sink("out", key="auction", value=JSON),
        "group_by 'all' upstream sees all",
    ),
    "new records behind another part's state": (
        lambda s: (
            counted(s.with_regime(BATCH), name="all")
            .with_regime(fk.Batch(history="new"))
            .sink("out", key="auction", value=JSON)
        ),
        "group_by 'all' upstream sees all",
    ),
    "a table without a key": (lambda s: counted(s.with_regime(BATCH)).sink("out", value=JSON), "the sink has none"),
    "two sinks that replace each other's rows": (
        lambda s: (
            counted(s.with_regime(BATCH, id="a"), name="n").sink("out", key="auction", value=JSON),
            s.with_regime(fk.Batch(history="new"), id="b").sink("other", topic="out", key="auction", value=JSON),
        ),
        "each epoch over the whole history would delete the rows of the other",
    ),
    "a process of what can be taken back": (
        lambda s: counted(s.with_regime(BATCH)).key_by("n").process(lambda row, key: row),
        "rows of a grouped result can be taken back",
    ),
}


def test_sinks_of_batch_parts_that_replace_nothing_of_each_other_may_share_a_topic() -> None:
    def build(s: fk.Stream) -> None:
        s.sink("streamed", topic="out", key="auction", value=JSON)
        counted(s.with_regime(BATCH, id="a"), name="n").sink("out", key="auction", value=JSON)
        s.with_regime(BATCH, id="b").sink("keyless", topic="out", value=JSON)

    assert [b.outputs[0].topic for b in planned(build).batches] == ["out", "out"]


def test_one_topic_is_read_from_one_start() -> None:
    flow = fk.Flow("f", regime=fk.Batch())
    both = [flow.source(name, topic="bids", value=BID, start=start) for name, start in (("a", "latest"), ("b", {0: 3}))]
    both[0].concat(both[1]).sink("out", value=JSON)
    with pytest.raises(DefinitionError, match="from different starts") as caught:
        flow.plan()
    assert caught.value.where.count("test_planning.py:") == 2
    assert caught.value.hint


@pytest.mark.parametrize("name", WRONG)
def test_what_makes_no_sense_is_refused_at_its_line(name: str) -> None:
    build, says = WRONG[name]
    with pytest.raises(DefinitionError, match=says) as caught:
        planned(build)
    assert "test_planning.py:" in caught.value.where
    assert caught.value.hint


def test_nothing_is_streamed_for_a_batch_part_alone() -> None:
    plan = planned(lambda s: counted(s.filter(fk.col("price") > 1).repartition("note"), "note").with_regime(BATCH).sink(
        "out", key="note", value=JSON))  # fmt: skip
    # The grouping is under the eager regime: its state can be asked for, so it streams; but no edge leads out of it.
    assert [(s.id, [o.kind for o in s.outputs]) for s in plan.stages] == [
        ("bids", ["edge", "dead_letters"]),
        ("by.note", []),
    ]
    plan = planned(
        lambda s: s.filter(fk.col("price") > 1).repartition("note").with_regime(BATCH).sink("out", value=JSON)
    )
    assert plan.stages == ()
    (stage,) = plan.batches
    assert [o.kind for o in stage.operators] == ["filter", "repartition", "with_regime", "sink"]
    assert [i.topic for i in stage.inputs] == ["bids"]
    assert [(o.id, o.kind) for o in stage.outputs] == [("out", "sink"), ("dead letters", "dead_letters")]


def test_a_flow_may_be_all_batch_and_is_one_part_where_it_is_connected() -> None:
    flow = fk.Flow("f", regime=fk.Batch(), dead_letters="letters")
    bids = flow.source("bids", key="auction", value=BID)
    bids.sink("copies", value=JSON)
    counted(bids, name="g").sink("counts", key="auction", value=JSON)
    flow.source("others", value=fk.Text()).sink("lines", value=fk.Text())
    plan = flow.plan()
    assert plan.stages == ()
    assert [(b.id, [s.id for s in b.sinks]) for b in plan.batches] == [
        ("g", ["copies", "counts"]),
        ("others", ["lines"]),
    ]
    assert {b.outputs[-1].topic for b in plan.batches} == {"letters"}


def test_each_with_regime_begins_a_part_of_its_own() -> None:
    def build(s: fk.Stream) -> None:
        hourly = s.with_regime(fk.Batch(every="1h"), id="hourly")
        daily = hourly.filter(fk.col("price") > 1).with_regime(fk.Batch(every="24h"), id="daily")
        hourly.select("note").sink("notes", value=JSON)
        counted(daily, name="days").sink("days", key="auction", value=JSON)
        s.with_regime(fk.EagerCheckpoint(step="1s"), id="now").sink("now", value=JSON)

    for regime in (None, fk.Batch(every="1h")):
        plan = planned(build, regime)
        assert [(b.id, b.regime.every) for b in plan.batches] == [
            ("hourly", timedelta(hours=1)),
            ("days", timedelta(hours=24)),
        ]
        assert [s.id for s in plan.stages] == ["now"]
        assert [repr(value) for value in plan.batches[0].sources.values()] == [
            "Json({'auction': Int64, 'note': String})"  # the key is checked, and so it is decoded
        ]


def test_new_records_are_enough_for_state_within_the_part_and_for_rows_before_it() -> None:
    plan = planned(
        lambda s: counted(s.map(lambda row: row).with_regime(fk.Batch(history="new")), name="g").sink(
            "out", key="auction", value=JSON
        )
    )
    assert [b.regime.history for b in plan.batches] == ["new"]


def stage(build: Callable[[fk.Stream], Any]) -> BatchStage:
    return planned(build, fk.Batch()).batches[0]


def base(s: fk.Stream, **change: Any) -> None:
    given = {"least": 1, "what": "price", "id": "g", "topic": None, "key": "auction", "note": lambda row: row, **change}
    s = s.filter(fk.col("price") > given["least"]).map(given["note"])
    s.group_by("auction", id=given["id"]).agg(x=fk.max(given["what"])).sink(
        "out", key=given["key"], value=JSON, topic=given["topic"]
    )


@pytest.mark.parametrize(
    "change", [{"least": 2}, {"what": "note"}, {"id": "h"}, {"topic": "other"}, {"key": fk.Key("auction", fk.Int64BE)}]
)
def test_a_fingerprint_tells_results_apart_that_cannot_be_compared(change: Any) -> None:
    same = stage(base).fingerprint
    assert stage(base).fingerprint == same
    assert stage(lambda s: base(s, **change)).fingerprint != same


def test_a_fingerprint_tells_what_the_flow_does_with_what_fails() -> None:
    """Its letters are results too, and records that were skipped have none. What is usual is not told: apps have run so."""

    def fingerprint(on_error: Any) -> str:
        flow = fk.Flow("f", regime=fk.Batch(), on_error=on_error)
        flow.source("bids", value=BID).map(lambda row: row).sink("out", value=JSON)
        return flow.plan().batches[0].fingerprint

    every = [None, fk.Skip(), fk.Stop(), fk.DeadLetter(), fk.DeadLetter("others")]
    assert len({*map(fingerprint, every)}) == len(every)
    usual = stage(base)
    assert usual.fingerprint == fingerprint_of([*usual.sources, *usual.operators], [])


def test_an_epoch_of_new_records_is_not_continued_over_the_whole_history() -> None:
    whole, new = (planned(base, fk.Batch(history=history)).batches[0] for history in ("whole", "new"))  # type: ignore[arg-type]
    assert whole.fingerprint != new.fingerprint


def test_two_stages_of_one_name_are_refused() -> None:
    def build(s: fk.Stream) -> None:
        s.with_regime(BATCH, id="bids").sink("a", value=JSON)
        s.sink("b", value=JSON)

    with pytest.raises(DefinitionError, match="two stages would be named 'bids'"):
        planned(build)
