"""`falkirk.testing.run`: the protocol as it is, under a flow of the user's."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import narwhals as nw
import polars as pl
import pytest

import falkirk as fk
from falkirk.checkpoint import transaction
from falkirk.checkpoint.regimes import Eager
from falkirk.errors import ConfigError, DivergenceError, UserCodeError
from falkirk.stream.flow.explain import explain

BID = fk.Json({"auction": int, "price": int})
ROWS = [{"auction": i % 7, "price": i * 37 % 101} for i in range(60)]
REGIMES = [fk.EagerCheckpoint(), fk.LazyCheckpoint()]


def auctions(regime: fk.EagerCheckpoint | fk.LazyCheckpoint) -> fk.Flow:
    """Two stages, with an exchange between them that takes rows back."""
    flow = fk.Flow("auctions", regime=regime)
    tops = flow.source("bids", key="auction", value=BID).group_by("auction", id="tops").agg(top=fk.max("price"))
    tops.sink("tops", key="auction", value=fk.Json())
    tops.group_by("top", id="many").agg(auctions=fk.len()).sink("many", key="top", value=fk.Json())
    return flow


@pytest.mark.parametrize("regime", REGIMES, ids=["eager", "lazy"])
def test_the_results_are_those_of_a_plain_computation_however_often_the_worker_dies(regime: Any) -> None:
    result = fk.testing.run(auctions(regime), {"bids": ROWS}, crash_at=[1, 3, 6], partitions=2)
    tops = pl.DataFrame(ROWS).group_by("auction").agg(top=pl.col("price").max())
    assert {key: row["top"] for key, row in result.sinks["tops"].table.items()} == dict(tops.iter_rows())
    many = tops.group_by("top").agg(pl.len())
    assert {key: row["auctions"] for key, row in result.sinks["many"].table.items()} == dict(many.iter_rows())


def test_a_frame_and_its_rows_are_the_same_input() -> None:
    flow = auctions(REGIMES[0])
    of_rows, of_frame = (fk.testing.run(flow, {"bids": rows}) for rows in (ROWS, pl.DataFrame(ROWS)))
    assert of_rows.sinks == of_frame.sinks
    assert of_rows.steps == 10


def test_state_that_lives_outside_of_the_state_is_found_out() -> None:
    flow, seen = fk.Flow("counted"), itertools.count()
    bids = flow.source("bids", key="auction", value=BID)
    bids.map(lambda row: {**row, "price": next(seen)}).sink("numbered", key="auction", value=fk.Json())
    with pytest.raises(AssertionError, match="sink 'numbered' holds something else after crashes"):
        fk.testing.run(flow, {"bids": ROWS}, crash_at=[4])


def test_a_function_of_no_row_is_found_out_when_a_lazy_step_is_run_again() -> None:
    flow, seen = fk.Flow("counted", regime=fk.LazyCheckpoint()), itertools.count()
    by_auction = flow.source("bids", key="auction", value=BID).key_by("auction")
    numbered = by_auction.process(lambda row, key: {**row, "price": next(seen)}, id="number")
    numbered.sink("numbered", key="auction", value=fk.Json())
    with pytest.raises(DivergenceError, match="run again, gives another output"):
        fk.testing.run(flow, {"bids": ROWS}, crash_at=[4])


def test_what_dies_is_the_protocol_that_runs_in_production(monkeypatch: pytest.MonkeyPatch) -> None:
    fk.testing.run(auctions(REGIMES[0]), {"bids": ROWS}, crash_at=[3])
    monkeypatch.setattr(Eager, "logs", lambda self, step: [])
    with pytest.raises((AssertionError, UserCodeError)):  # the second stage is the first to notice
        fk.testing.run(auctions(REGIMES[0]), {"bids": ROWS}, crash_at=[3])


def test_a_commit_that_is_taken_for_lost_shows_as_doubled_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "is_ours", lambda step, record: False)
    with pytest.raises((AssertionError, fk.FalkirkError)):
        fk.testing.run(auctions(REGIMES[0]), {"bids": ROWS}, crash_at=[3])


class Reminder(fk.Process):
    """Says a minute after the last row of a key that nothing came since."""

    state = {"n": int}  # noqa: RUF012
    returns = {"auction": int, "n": int}  # noqa: RUF012

    def on_row(self, row: dict[str, Any], key: fk.KeyContext) -> None:
        key.put({"n": (key.get() or {"n": 0})["n"] + 1})
        key.set_timer(timedelta(minutes=1))

    def on_timer(self, timer: fk.Timer, key: fk.KeyContext) -> Iterator[dict[str, Any]]:
        yield {"auction": key.key[0], "n": (key.get() or {})["n"]}


def test_timers_fire_when_the_clock_has_been_moved_and_the_worker_died() -> None:
    flow = fk.Flow("reminders")
    bids = flow.source("bids", key="auction", value=BID)
    bids.key_by("auction").process(Reminder(), id="reminder").sink("quiet", key="auction", value=fk.Json())
    app = fk.testing.App(flow, partitions=2)
    app.send("bids", ROWS[:10])
    app.run()
    app.advance("59s")
    app.send("bids", [{"auction": 3, "price": 1}])
    app.run()
    assert not app.sinks["quiet"].records
    app.advance("1s")
    app.crash(host=True)
    app.run()
    assert {key: row["n"] for key, row in app.sinks["quiet"].table.items()} == {0: 2, 1: 2, 2: 2, 4: 1, 5: 1, 6: 1}
    assert dict(app.state("reminder").iter_rows())[3] == 2
    assert app.now == datetime(2026, 1, 1, 0, 1, tzinfo=UTC)


def test_tables_dead_letters_times_and_headers() -> None:
    flow = fk.Flow("named")
    names = flow.table("names", key="auction", value=fk.Json({"auction": int, "name": str}))
    sizes = flow.table("sizes", key="price", value=fk.Json({"price": int, "size": str}), broadcast=True)
    bids = flow.source("bids", key="auction", value=BID, metadata={"at": "timestamp", "headers": "headers"})
    named = bids.lookup(names).lookup(sizes, "price").select("auction", "name", "size", "at")
    named.sink("named", key="auction", value=fk.Json())
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    sent = {
        "names": [{"auction": 7, "name": "lamp"}, {"auction": 8, "name": "vase"}, fk.testing.Record(key=8)],
        "sizes": [{"price": 90, "size": "small"}],
        "bids": [
            {"auction": 7, "price": 90, "at": noon},
            fk.testing.Record(value={"auction": 8, "price": 10}, timestamp=noon, headers=[("from", b"here")]),
            ("7", b'{"auction":7,"price":"dear"}'),
            fk.testing.Record(key=9, value='{"auction":9,"price":90}'),
        ],
    }
    result = fk.testing.run(flow, sent, crash_at="everywhere")
    rows = [{**r.value, "at": r.timestamp} for r in result.sinks["named"].records]
    assert [(r["auction"], r["name"], r["size"]) for r in rows] == [
        (7, "lamp", "small"),
        (8, None, None),
        (9, None, "small"),
    ]
    assert [r["at"] for r in rows] == [noon, noon, datetime(2026, 1, 1, tzinfo=UTC)]
    (letter,) = result.dead_letters
    assert (letter["topic"], letter["offset"]) == ("bids", 2)
    assert "cannot read 'dear' as Int64" in letter["reason"]
    assert [r.maker and r.maker.task for r in result.sinks["named"].records] == ["names.on.auction/0"] * 3


def test_batch_parts_run_when_the_stream_has_nothing_left_and_the_stream_sees_their_results() -> None:
    flow = fk.Flow("usual")
    bids = flow.source("bids", key="auction", value=BID)
    usual = bids.with_regime(fk.Batch()).group_by("auction", id="means").agg(usual=fk.mean("price"))
    usual.sink("usual", key="auction", value=fk.Json())
    known = flow.table("usual", key="auction", value=fk.Json({"auction": int, "usual": float}), broadcast=True)
    bids.lookup(known, "auction").sink("looked-up", key="auction", value=fk.Json())
    app = fk.testing.App(flow)
    app.send("bids", [{"auction": 7, "price": 100}, {"auction": 7, "price": 200}])
    app.run()
    assert [row["usual"] for row in app.sinks["looked-up"].rows] == [None, None]
    assert app.sinks["usual"].table == {7: {"auction": 7, "usual": 150.0}}
    app.send("bids", [{"auction": 7, "price": 300}])
    app.run()
    assert app.sinks["looked-up"].rows[-1]["usual"] == 150.0
    assert app.sinks["usual"].table == {7: {"auction": 7, "usual": 200.0}}
    assert dict(app.sinks["usual"].records[-1].headers) == {"falkirk-epoch": b"1"}


def test_an_epoch_of_another_definition_replaces_what_all_epochs_before_have_written() -> None:
    def dear(least: int, history: Any) -> fk.Flow:
        flow = fk.Flow("dear", regime=fk.Batch(history=history))
        bids = flow.source("bids", key="auction", value=BID)
        bids.filter(fk.col("price") > least).group_by("auction", id="dear").agg(n=fk.len()).sink(
            "dear", key="auction", value=fk.Json()
        )
        return flow

    app = fk.testing.App(dear(50, "new"))
    for n in range(2):
        app.send("bids", [{"auction": n, "price": 100}, {"auction": 7, "price": 200}, ("7", b"no bid")])
        app.run()
    assert {key: row["n"] for key, row in app.sinks["dear"].table.items()} == {0: 1, 1: 1, 7: 1}
    app.change(dear(150, "whole"))
    app.run()
    assert {key: row["n"] for key, row in app.sinks["dear"].table.items()} == {7: 2}
    assert len(app.dead_letters) == 4  # another definition may decode other columns
    app.run()
    assert len(app.dead_letters) == 4


def test_what_stops_a_worker_is_raised_and_the_next_step_tries_again() -> None:
    flow, broken = fk.Flow("mended"), [True]

    def mend(row: dict[str, Any]) -> dict[str, Any]:
        if row["price"] == 74 and broken[0]:
            raise ValueError("no such price")
        return row

    flow.source("bids", key="auction", value=BID).map(mend).sink("same", key="auction", value=fk.Json())
    app = fk.testing.App(flow, step_rows=1)
    app.send("bids", ROWS)
    with pytest.raises(UserCodeError, match="offset 2") as raised:
        app.run()
    assert "ValueError: no such price" in str(raised.value)
    broken[0] = False
    app.run()
    assert app.sinks["same"].rows == ROWS


def test_times_that_expressions_make_are_read_back() -> None:
    flow = fk.Flow("times")
    rows = flow.source("rows", value=fk.Json({"text": str, "at": fk.Datetime}))
    local = fk.col("at").dt.convert_time_zone("Europe/Rome")
    made = rows.select("at", made=fk.col("text").str.to_datetime("%Y-%m-%d %H:%M"), local=local, nothing=None)
    made.sink("out", value=fk.Json())
    made.group_by("made").agg(n=fk.len()).sink("counts", key="made", value=fk.Json())
    at = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)
    app = fk.testing.run(flow, {"rows": [{"text": "2026-05-01 12:30", "at": at}]})
    assert app.sinks["out"].rows == [{"at": at, "made": at, "local": at, "nothing": None}]
    assert list(app.sinks["counts"].table.values()) == [{"made": at, "n": 1}]


def test_a_stream_that_nothing_uses_is_warned_of_once() -> None:
    flow = fk.Flow("forgotten")
    rows = flow.source("rows", value=fk.Json({"x": int}))
    rows.filter(fk.col("x") > 1)  # the result is lost
    high, _ = rows.branch(fk.col("x") > 1, fk.col("x") > 0)  # a branch that nobody needs is meant
    rows.concat(high).sink("out", value=fk.Json())
    with pytest.warns(UserWarning, match=r"^nothing uses the stream of filter \(.*test_run.py:\d+\): ") as caught:
        fk.testing.run(flow, {"rows": [{"x": 1}]}, crash_at=[1])
    assert len(caught) == 1
    assert flow.plan().unused[0] in explain(flow).splitlines()[-1]


def test_what_is_wrong_with_a_test_is_said() -> None:
    flow = auctions(REGIMES[0])
    app = fk.testing.App(flow)
    with pytest.raises(ConfigError, match=r"source 'bids' has no column 'prize'\n.*did you mean 'price'"):
        app.send("bids", [{"auction": 1, "prize": 2}])
    with pytest.raises(ConfigError, match="does not fit its columns"):
        app.send("bids", [{"auction": "one", "price": 2}])
    with pytest.raises(ConfigError, match="is sent a list of rows"):
        app.send("bids", {"auction": 1, "price": 2})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is sent a list of rows, not None"):
        app.send("bids", None)  # type: ignore[arg-type]
    for frame in (pl.LazyFrame(ROWS), nw.from_native(pl.DataFrame(ROWS)), pl.DataFrame(ROWS).to_arrow()):
        with pytest.raises(
            ConfigError, match=r"is sent a Polars frame or a list of rows, not \w+\.\w+\n.*pl.from_pandas"
        ):
            app.send("bids", frame)
    with pytest.raises(ConfigError, match="has no source or table called 'bid'"):
        app.send("bid", [])
    with pytest.raises(ConfigError, match="has no state for 'top'"):
        app.state("top")
    with pytest.raises(ConfigError, match="no step 9 to crash at: the run has steps 1 to 3"):
        fk.testing.run(flow, {"bids": ROWS[:2]}, crash_at=[9])
    with pytest.raises(ConfigError, match="reads no topic 'tops'"):
        fk.testing.run(flow, {"bids": ROWS}, partitions={"tops": 2})
    with pytest.raises(ConfigError, match=r"crash_at=3 is no list of steps\n.*crash_at=\[3\]"):
        fk.testing.run(flow, {"bids": ROWS}, crash_at=3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="crash_at='all' does not name steps"):
        fk.testing.run(flow, {"bids": ROWS}, crash_at="all")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="inputs are a dict"):
        fk.testing.run(flow, ROWS)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'app:flow' is not a flow"):
        fk.testing.run("app:flow", {"bids": ROWS})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="now='2026-05-01' is not a datetime"):
        fk.testing.run(flow, {"bids": ROWS}, now="2026-05-01")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no source or table called 7"):
        fk.testing.run(flow, {7: ROWS})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match="a step cannot read 0 records"):
        fk.testing.run(flow, {"bids": ROWS}, step_rows=0)
    with pytest.raises(ConfigError, match=r"no sink called 'top'\n.*did you mean 'tops'"):
        _ = app.sinks["top"]
    with pytest.raises(ConfigError, match=r"'bids' has 1 partition from 0 on, and not 1\n.*partitions=\{'bids': 2\}"):
        app.send("bids", [fk.testing.Record(value={"auction": 1, "price": 2}, partition=1)])


def test_failures_are_counted_over_several_steps() -> None:
    flow = fk.Flow("shares")
    bids = flow.source("bids", key="auction", value=BID)
    handled = fk.DeadLetter(stop_above="0.05%")
    bids.map(lambda row: {"share": 1 // row["price"]}, returns={"share": int}, on_error=handled).sink(
        "out", value=fk.Json()
    )
    app = fk.testing.App(flow, step_rows=1)
    app.send("bids", [{"auction": 1, "price": 0}] * 7)
    with pytest.raises(UserCodeError, match="6 of the last 6 failed, and stop_above= allows 5 of 10,000"):
        app.run()
    assert app.steps == 5
    app.run()  # the worker is another one, and counts from the beginning
    assert len(app.dead_letters) == 7


def test_rows_with_nan_are_the_same_after_crashes() -> None:
    flow = fk.Flow("ratios")
    bids = flow.source("bids", key="auction", value=BID)
    ratios = bids.select("auction", ratio=(fk.col("price") - fk.col("price")).cast(fk.Float64) / 0)
    ratios.sink_parquet("ratios", "/nowhere")
    (row,) = fk.testing.run(flow, {"bids": ROWS[:1]}, crash_at="everywhere").sinks["ratios"].rows
    assert math.isnan(row["ratio"])


TYPED: list[tuple[Any, Any]] = [
    (fk.Decimal(12, 2), Decimal("10.505")),
    (fk.Decimal(12, 2), "ten"),
    (fk.Decimal(4, 2), 100),
    (fk.Decimal(4, 2), True),
    (int, 1.5),
    (int, "17"),
    (int, True),
    (fk.Int32, 2**40),
    (str, 17),
    (bool, 1),
    (fk.Float32, 1e300),
    (float, "1.5"),
    (float, True),
    (bytes, "a"),
    (fk.Date, datetime(2026, 1, 1, tzinfo=UTC)),
    (fk.Datetime, "2026-01-01T00:00:00Z"),
    (list[int], "abc"),
    ({"a": int}, {"b": 1}),
]


@pytest.mark.parametrize(("dtype", "value"), TYPED)
def test_a_value_of_another_type_is_refused_with_its_row_and_column(dtype: Any, value: Any) -> None:
    flow = fk.Flow("typed")
    flow.source("rows", value=fk.Json({"v": dtype})).sink("out", value=fk.Json())
    with pytest.raises(ConfigError) as refused:
        fk.testing.run(flow, {"rows": [{"v": None}, ("raw", b"{}"), {"v": value}]})
    assert f"row 3, column 'v': {value!r} is not " in str(refused.value)


def test_a_wrong_value_in_a_list_or_a_nested_object_is_named_by_its_place() -> None:
    flow = fk.Flow("typed")
    flow.source("rows", value=fk.Json({"v": {"a": list[int]}})).sink("out", value=fk.Json())
    with pytest.raises(ConfigError, match=r"row 1, column 'v\.a\[1\]': 'x' is not Int64"):
        fk.testing.run(flow, {"rows": [{"v": {"a": [1, "x"]}}]})


def test_a_decimal_may_be_text_as_in_json_or_any_number_with_few_enough_digits() -> None:
    flow = fk.Flow("typed")
    flow.source("rows", value=fk.Json({"v": fk.Decimal(12, 2)})).sink("out", value=fk.Json())
    rows: list[Any] = ["10.50", 10.5, Decimal("10.500"), 10, Decimal("1E+1"), "0.000", None]
    result = fk.testing.run(flow, {"rows": [{"v": v} for v in rows]})
    told = ["10.50", "10.50", "10.50", "10.00", "10.00", "0.00", None]
    assert [None if row is None or row["v"] is None else str(row["v"]) for row in result.sinks["out"].rows] == told
