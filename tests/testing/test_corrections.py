"""Another version of the code after a crash, under the lazy regime: what was said is put right, once."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from random import Random
from typing import Any

import pytest

import falkirk as fk
from falkirk.checkpoint.ids import TopicPartition
from falkirk.errors import DivergenceError

BID = fk.Json({"auction": int, "price": int})
ROWS = [{"auction": i % 7, "price": i * 37 % 101} for i in range(60)]


def tables(least: int = 0, scale: int = 1) -> fk.Flow:
    """Two stages, of which the second counts what the first says and takes back; two numbers that a version may change."""
    flow = fk.Flow("auctions", regime=fk.LazyCheckpoint())
    bids = flow.source("bids", key="auction", value=BID).filter(fk.col("price") >= least)
    tops = bids.group_by("auction", id="tops").agg(top=fk.max("price"), n=fk.len())
    tops.filter(fk.col("n") > 1).sink("tops", key="auction", value=fk.Json())
    tops.with_columns(band=fk.col("top") * scale // 50).group_by("band", id="bands").agg(
        auctions=fk.len(), bids=fk.sum("n")
    ).sink("bands", key="band", value=fk.Json())
    return flow


def held(app: fk.testing.App) -> dict[str, Any]:
    """What its tables hold."""
    return {name: {k: v for k, v in sink.table.items() if v is not None} for name, sink in app.sinks.items()}


def made_by(flow: fk.Flow, rows: list[dict[str, int]]) -> dict[str, Any]:
    """What the flow makes of all input, by itself."""
    return held(fk.testing.run(flow, {"bids": rows}, partitions=2))


def running(flow: fk.Flow, rows: list[dict[str, int]], **options: Any) -> fk.testing.App:
    app = fk.testing.App(flow, partitions=2, step_rows=4, **options)
    app.send("bids", rows)
    app.run()
    return app


@pytest.mark.parametrize("change", [{"least": 30}, {"least": 90}, {"least": 200}, {"scale": 3}], ids=str)
def test_tables_are_what_the_new_code_makes_of_all_input(change: dict[str, int]) -> None:
    app = running(tables(), ROWS[:40])
    with pytest.raises(DivergenceError, match="--on-divergence correct"):
        app.change(tables(**change), host=True)
    with pytest.raises(DivergenceError, match="--on-divergence correct"):
        app.run()
    app.change(tables(**change), host=True, on_divergence="correct")
    app.run()
    assert held(app) == made_by(tables(**change), ROWS[:40])
    app.send("bids", ROWS[40:])
    app.run()
    assert held(app) == made_by(tables(**change), ROWS)


def test_what_was_corrected_is_compared_with_its_correction_from_then_on() -> None:
    app = running(tables(), ROWS[:20])
    app.change(tables(30), host=True, on_divergence="correct")
    app.send("bids", ROWS[20:40])
    app.run()
    written = {name: len(sink.records) for name, sink in app.sinks.items()}
    app.change(tables(30), host=True, on_divergence="stop")
    app.run()
    assert {name: len(sink.records) for name, sink in app.sinks.items()} == written
    with pytest.raises(DivergenceError, match=r"what step \d+ corrected from step 1 on"):
        app.change(tables(60), host=True)
    app.change(tables(60), host=True, on_divergence="correct")
    app.run()
    assert held(app) == made_by(tables(60), ROWS[:40])


@pytest.mark.slow
def test_code_that_is_changed_many_times_with_crashes_between_leaves_the_tables_of_the_last() -> None:
    for seed in range(4):
        rng, app, sent, scale = Random(seed), running(tables(), ROWS[:5], on_divergence="correct"), 5, 1
        for _ in range(5):
            host = rng.random() < 0.5
            # A function of a grouped result goes on with its state only as it is: else it would take back what never came.
            scale = rng.choice([1, 2]) if host else scale
            app.change(tables(rng.choice([0, 30, 70]), scale), host=host)
            more = rng.randrange(12)
            app.send("bids", ROWS[sent : sent + more])
            sent += more
            for _ in range(rng.randrange(4)):
                app.step()
            if rng.random() < 0.5:
                app.crash(host=True)
        app.change(tables(40, 3), host=True)
        app.run()
        assert held(app) == made_by(tables(40, 3), ROWS[:sent]), seed


def numbers(factor: int, fails: int = -1) -> fk.Flow:
    """Rows that are only added, by a function that knows how many there were."""

    def number(row: dict[str, Any], key: fk.KeyContext) -> dict[str, int]:
        n = (key.get() or {"n": 0})["n"] + 1
        key.put({"n": n})
        if n == fails:
            raise ValueError(f"number {n}")
        return {"auction": row["auction"], "n": n if n <= 2 else n * factor or 2}

    flow = fk.Flow("numbers", regime=fk.LazyCheckpoint(), dead_letters="letters", on_error=fk.DeadLetter())
    of_key = flow.source("bids", key="auction", value=BID).key_by("auction")
    numbered = of_key.process(number, id="number", state={"n": int}, returns={"auction": int, "n": int})
    numbered.sink("numbered", key="auction", value=fk.Json())
    numbered.group_by("n", id="most").agg(rows=fk.len()).sink("most", key="n", value=fk.Json())
    return flow


def test_of_a_stream_what_is_missing_is_added_and_what_cannot_be_taken_back_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = running(numbers(1), ROWS[:28])
    before = Counter((r.key, r.value["n"]) for r in app.sinks["numbered"].records)
    with caplog.at_level(logging.WARNING, logger="falkirk"):
        app.change(numbers(10), host=True, on_divergence="correct")
        app.run()
    after = Counter((r.key, r.value["n"]) for r in app.sinks["numbered"].records)
    due = Counter((i % 7, n if n <= 2 else 10 * n) for i in range(7) for n in (1, 2, 3, 4))
    assert due - after == Counter()
    assert after - due == before - due
    assert (before - due).total() == 14
    told = [r.getMessage() for r in caplog.records if "cannot be retracted" in r.getMessage()]
    assert [message for message in told if "numbered" in message]
    # Of rows that were only added, the stage behind the exchange counts what was said wrongly, too.
    assert held(app)["most"] == {n: {"n": n, "rows": 7} for n in (1, 2, 3, 4, 30, 40)}


def test_records_that_are_alike_are_counted() -> None:
    app = running(numbers(1), ROWS[:28])
    app.change(numbers(0), host=True, on_divergence="correct")
    app.run()
    after = Counter((r.key, r.value["n"]) for r in app.sinks["numbered"].records)
    assert after == {(i, n): 3 if n == 2 else 1 for i in range(7) for n in (1, 2, 3, 4)}
    assert held(app)["most"] == {n: {"n": n, "rows": 21 if n == 2 else 7} for n in (1, 2, 3, 4)}


def test_letters_of_what_fails_now_are_added() -> None:
    app = running(numbers(1), ROWS[:28])
    app.change(numbers(1, fails=3), host=True, on_divergence="correct")
    app.run()
    assert len(app.dead_letters) == 14
    app.crash(host=True)
    app.run()
    assert len(app.dead_letters) == 14


def test_a_function_that_never_gives_the_same_is_corrected_at_each_crash() -> None:
    seen = itertools.count()
    flow = fk.Flow("counted", regime=fk.LazyCheckpoint())
    counts = flow.source("bids", key="auction", value=BID).group_by("auction", id="counts").agg(n=fk.len())
    numbered = counts.map(lambda row: {**row, "of": next(seen)}, returns={"auction": int, "n": int, "of": int})
    numbered.sink("counts", key="auction", value=fk.Json())
    app = running(flow, ROWS[:20], on_divergence="correct")
    for more in range(20, 60, 20):
        app.crash(host=True)
        assert min(row["of"] for row in held(app)["counts"].values()) > 20
        app.send("bids", ROWS[more : more + 20])
        app.run()
        due = Counter(row["auction"] for row in ROWS[: more + 20])
        assert {key: row["n"] for key, row in held(app)["counts"].items()} == due


def test_of_a_compacted_table_the_last_record_of_each_key_is_enough() -> None:
    app = running(tables(), ROWS[:40])
    for p in app._cluster.broker.partitions("tops"):
        p.compact(app._cluster.broker.now, 10**9)
    app.change(tables(30), host=True, on_divergence="correct")
    app.run()
    found = {}
    for p in app._cluster.broker.partitions("tops"):
        for m in app._cluster.read(TopicPartition("tops", p.name.partition), 0):
            found[m.key()] = m.value()
    due = made_by(tables(30), ROWS[:40])["tops"]
    assert {int(k or b"") for k, v in found.items() if v is not None} == due.keys()


@pytest.mark.parametrize("topic", ["tops", "falkirk.auctions.edge.bands"])
def test_where_what_was_said_is_gone_nothing_is_corrected(topic: str) -> None:
    app = running(tables(), ROWS[:40])
    for p in app._cluster.broker.partitions(topic):
        p.delete(p.end - 1)
    with pytest.raises(DivergenceError, match="no longer in its topic"):
        app.change(tables(30), host=True, on_divergence="correct")


def named(least: int) -> fk.Flow:
    """A sink behind a function: what it says of a key cannot be told from the group's state."""
    flow = fk.Flow("named", regime=fk.LazyCheckpoint())
    bids = flow.source("bids", key="auction", value=BID).filter(fk.col("price") >= least)
    counts = bids.group_by("auction", id="counts").agg(n=fk.len())
    words = counts.map(lambda row: {"name": f"a{row['auction']}", "n": row["n"]}, returns={"name": str, "n": int})
    words.sink("named", key="name", value=fk.Json())
    return flow


def test_behind_a_function_keys_that_the_old_code_alone_spoke_of_stop_the_task() -> None:
    app = running(named(0), ROWS[:7])
    with pytest.raises(DivergenceError, match="cannot be told from the state"):
        app.change(named(40), host=True, on_divergence="correct")
    app.change(named(0), host=True, on_divergence="stop")
    app.send("bids", ROWS[7:])
    app.run()
    app.change(named(40), host=True, on_divergence="correct")  # by now the new code speaks of each key, too
    app.run()
    assert held(app) == made_by(named(40), ROWS)


def shared(least: int) -> fk.Flow:
    """Two sinks of one stage that write to one topic."""
    flow = fk.Flow("shared", regime=fk.LazyCheckpoint())
    first = flow.source("bids", key="auction", value=BID).deduplicate("auction", id="first")
    first.filter(fk.col("price") >= least).sink("high", topic="both", value=fk.Json())
    first.filter(fk.col("price") < 50).sink("low", topic="both", value=fk.Json())
    return flow


def prices(app: fk.testing.App) -> Counter[int]:
    return Counter(record.value["price"] for record in app.sinks["high"].records)


def test_of_sinks_that_write_to_one_topic_each_is_corrected_by_itself() -> None:
    app = fk.testing.App(shared(60))
    app.send("bids", ROWS[:20])
    app.run()
    assert prices(app) == Counter([0, 10, 20, 37, 47, 74, 84])
    app.change(shared(40), host=True, on_divergence="correct")
    app.run()
    assert prices(app) == Counter([0, 10, 20, 37, 47, 47, 74, 84])


def test_no_two_records_of_a_topic_have_the_same_maker() -> None:
    records = running(shared(0), ROWS[:20]).sinks["high"].records
    assert max(Counter((r.partition, r.maker) for r in records).values()) == 1
