"""Jobs at their corners: exactly what comes out."""

from __future__ import annotations

import base64
import random
from typing import Any

import msgspec
import polars as pl
import pytest

import falkirk as fk
from falkirk.errors import SourceError, UserCodeError
from falkirk.state.shards import murmur2_of
from falkirk.stream.batch import Job, Piece
from falkirk.stream.dataflow.process import moment
from falkirk.stream.dataflow.records import Records
from falkirk.stream.dataflow.topics import AHEAD, Accepts
from falkirk.testing.batch import epoch
from falkirk.testing.memory import MemoryApp, Record

JSON = fk.Json()
BID = fk.Json({"auction": fk.Int64, "price": fk.Int64})


def bids(app: MemoryApp, *given: tuple[int, int | None], topic: str = "bids") -> None:
    for auction, price in given:
        value = msgspec.json.encode({"auction": auction, "price": price})
        app.append(topic, str(auction).encode(), value, timestamp=100 + len(app.records(topic)))


def auctions(**more: Any) -> fk.Flow:
    flow = fk.Flow("a", regime=fk.Batch())
    stats = flow.source("bids", key="auction", value=BID, **more).group_by("auction", id="stats")
    stats.agg(n=fk.len(), top=fk.max("price"), sum=fk.sum("price")).sink("stats", key="auction", value=JSON)
    return flow


def pairs(records: list[Record]) -> list[tuple[bytes | None, bytes | None]]:
    return sorted(((r.key(), r.value()) for r in records), key=repr)


def test_a_result_is_one_record_a_group_in_its_keys_partition_with_the_greatest_timestamp() -> None:
    app = MemoryApp(auctions(), {"bids": 2})
    bids(app, (7, 20), (8, 1), (7, 30), (7, None))
    written = epoch(app, result_partitions=5)["stats"]
    assert pairs(written) == [
        (b"7", b'{"auction":7,"n":3,"top":30,"sum":50}'),
        (b"8", b'{"auction":8,"n":1,"top":1,"sum":1}'),
    ]
    assert {(r.key(), r.timestamp()[1]) for r in written} == {(b"7", 103), (b"8", 101)}
    assert all(r.partition() == (murmur2_of(r.key() or b"") & 0x7FFFFFFF) % 5 for r in written)


def test_a_division_bounds_what_is_read() -> None:
    app = MemoryApp(auctions())
    bids(app, (7, 1), (7, 2), (7, 4), (7, 8))
    written = epoch(app, division={("bids", 0): (1, 3)})["stats"]
    assert pairs(written) == [(b"7", b'{"auction":7,"n":2,"top":4,"sum":6}')]


@pytest.mark.parametrize("division", [{}, {("bids", 0): (0, 0)}])
def test_an_empty_division_gives_nothing(division: Any) -> None:
    app = MemoryApp(auctions())
    bids(app, (7, 1))
    assert epoch(app, division=division) == {"stats": [], "dead letters": []}


def test_when_all_rows_are_filtered_nothing_comes_out() -> None:
    flow = fk.Flow("f", regime=fk.Batch())
    few = flow.source("bids", value=BID).filter(fk.col("price") > 100)
    few.group_by("auction", id="g").agg(n=fk.len()).sink("out", key="auction", value=JSON)
    few.key_by("auction").process(lambda row, key: row, id="p").sink("rows", value=JSON)
    app = MemoryApp(flow)
    bids(app, (7, 1), (8, 2))
    assert epoch(app) == {"out": [], "rows": [], "dead letters": []}


def test_null_and_nan_are_keys_like_others() -> None:
    flow = fk.Flow("f", regime=fk.Batch())
    numbers = flow.source("in", value=fk.Json({"x": fk.Int64})).with_columns(
        f=fk.when(fk.col("x") == 1)
        .then(float("nan"))
        .when(fk.col("x") == 2)
        .then(0.0)
        .when(fk.col("x") == 3)
        .then(-0.0)
    )
    numbers.group_by("f", id="g").agg(n=fk.len()).sink("groups", key="f", value=JSON)
    own = numbers.group_by("f", id="own").agg(n=Count("x"))
    own.sink("own", key="f", value=JSON)
    numbers.key_by("f").process(Numbered(), id="p").sink("rows", key="f", value=JSON)
    app = MemoryApp(flow, {"in": 2})
    for x in (1, 2, 3, 4, 1, 4, 1):
        app.append("in", None, b'{"x":%d}' % x, partition=x % 2)
    for rng in (None, random.Random(3), random.Random(4)):
        written = epoch(app, rng, buckets=5, result_partitions=4)
        wanted = [(None, 2), (b"0.0", 2), (b"NaN", 3)]
        for sink in ("groups", "own"):
            assert [(k, msgspec.json.decode(v or b"")["n"]) for k, v in pairs(written[sink])] == wanted
            assert [r.partition() for r in written[sink] if r.key() is None] == [0]
        seen = {
            k: max(msgspec.json.decode(r.value() or b"")["n"] for r in written["rows"] if r.key() == k)
            for k, _ in wanted
        }
        assert seen == dict(wanted)


class Count(fk.Aggregate):
    state = {"n": int}  # noqa: RUF012
    returns = int

    def add(self, state: Any, values: list[Any]) -> Any:
        return {"n": (state or {"n": 0})["n"] + len(values)}

    def result(self, state: Any) -> int:
        return int(state["n"])


class Numbered(fk.Process):
    state = {"n": int}  # noqa: RUF012
    returns = {"f": float, "n": int}  # noqa: RUF012

    def on_row(self, row: Any, key: fk.KeyContext) -> Any:
        n = (key.get() or {"n": 0})["n"] + 1
        key.put({"n": n})
        return {"f": row["f"], "n": n}


def test_what_does_not_decode_is_buried_once_and_the_rest_goes_on() -> None:
    app = MemoryApp(auctions())
    bids(app, (7, 1))
    app.append("bids", b"7", b"{oops", timestamp=6)
    app.append("bids", b"7", b"{worse", timestamp=7)
    bids(app, (7, 3))
    written = epoch(app, dead_letters_from={("bids", 0): 2})
    assert pairs(written["stats"]) == [(b"7", b'{"auction":7,"n":2,"top":3,"sum":4}')]
    (letter,) = written["dead letters"]
    told = msgspec.json.decode(letter.value() or b"")
    assert (letter.key(), letter.timestamp()[1]) == (None, 7)
    assert {k: told[k] for k in ("app", "stage", "source", "topic", "partition", "offset", "payload")} == {
        "app": "a", "stage": "stats", "source": "bids", "topic": "bids", "partition": 0, "offset": 2,
        "payload": base64.b64encode(b"{worse").decode(),
    }  # fmt: skip
    assert len(epoch(app)["dead letters"]) == 2


def test_two_sources_are_one_stream() -> None:
    flow = fk.Flow("f", regime=fk.Batch())
    both = flow.source("bids", value=BID).concat(flow.source("more", value=BID), id="both")
    both.group_by("auction", id="g").agg(n=fk.len(), sum=fk.sum("price")).sink("out", key="auction", value=JSON)
    both.key_by("auction").process(Order(), id="p").sink("order", key="auction", value=JSON)
    app = MemoryApp(flow, {"more": 2})
    bids(app, (7, 1), (8, 2), (7, 3))
    bids(app, (8, 10), (7, 20), (9, 30), topic="more")
    for rng in (None, random.Random(1)):
        written = epoch(app, rng)
        assert pairs(written["out"]) == [
            (b"7", b'{"auction":7,"n":3,"sum":24}'),
            (b"8", b'{"auction":8,"n":2,"sum":12}'),
            (b"9", b'{"auction":9,"n":1,"sum":30}'),
        ]
        # All of a source come before the next source's.
        last = {r.key(): msgspec.json.decode(r.value() or b"")["seen"] for r in written["order"]}
        assert last == {b"7": "1 3 20", b"8": "2 10", b"9": "30"}


class Order(fk.Process):
    state = {"seen": str}  # noqa: RUF012
    returns = {"auction": int, "seen": str}  # noqa: RUF012

    def on_row(self, row: Any, key: fk.KeyContext) -> Any:
        seen = " ".join(filter(None, [(key.get() or {"seen": ""})["seen"], str(row["price"])]))
        key.put({"seen": seen})
        return {"auction": row["auction"], "seen": seen}


@pytest.mark.parametrize("rng", [None, random.Random(3)])
def test_a_source_of_several_topics_is_read_topic_by_topic(rng: random.Random | None) -> None:
    flow = fk.Flow("a", regime=fk.Batch())
    bids_of = flow.source("bids", topic=["eu", "us"], value=BID, metadata=["topic"])
    bids_of.group_by("topic", id="n").agg(n=fk.len(), sum=fk.sum("price")).sink("n", key="topic", value=JSON)
    bids_of.group_by("auction", id="last").agg(last=fk.max("price")).sink("last", key="auction", value=JSON)
    app = MemoryApp(flow, {"eu": 2, "us": 1})
    bids(app, *((n, n) for n in range(30)), topic="eu")
    bids(app, *((n, 100) for n in range(7)), topic="us")
    written = epoch(app, rng, buckets=3)
    assert pairs(written["n"]) == [
        (b"eu", b'{"topic":"eu","n":30,"sum":435}'),
        (b"us", b'{"topic":"us","n":7,"sum":700}'),
    ]
    assert len(written["last"]) == 30


def test_a_source_may_be_read_by_stream_and_batch() -> None:
    flow = fk.Flow("f")
    source = flow.source(
        "bids", key="auction", value=fk.Json({"auction": fk.Int64, "price": fk.Int64, "note": fk.String})
    )
    dear, cheap = source.branch(fk.col("price") >= 10, fk.col("price") < 10)
    dear.group_by("auction", id="dear").agg(n=fk.len()).sink("dear", key="auction", value=JSON)
    counted = cheap.group_by("auction", id="cheap").agg(n=fk.len())
    counted.with_regime(fk.Batch(every="1h"), id="b").group_by("n", id="by-n").agg(auctions=fk.len()).sink(
        "cheap", key="n", value=JSON
    )
    plan = flow.plan()
    # The grouping upstream of the batch part has state of its own; it is streamed, and computed in the batch once more.
    assert [stage.id for stage in plan.stages] == ["dear"]
    assert [o.id for o in plan.stages[0].outputs] == ["dear", "dead letters"]
    (batch,) = plan.batches
    assert [o.kind for o in batch.operators] == ["filter", "group_by", "with_regime", "group_by", "sink"]
    assert repr(batch.sources[source._op]) == "Json({'auction': Int64, 'price': Int64})"  # type: ignore[index]
    app = MemoryApp(flow)
    bids(app, (7, 1), (8, 2), (7, 3), (9, 40), (9, 4))
    app.run()
    assert app.latest("dear") == {b"9": b'{"auction":9,"n":1}'}
    assert pairs(epoch(app)["cheap"]) == [(b"1", b'{"n":1,"auctions":2}'), (b"2", b'{"n":2,"auctions":1}')]


def test_a_function_that_raises_is_blamed_with_the_records_address() -> None:
    flow = fk.Flow("f", regime=fk.Batch())
    source = flow.source("bids", value=BID)
    source.map(lambda row: {**row, "price": 1 // row["price"]}).sink("out", value=JSON)
    app = MemoryApp(flow, {"bids": 2})
    app.append("bids", None, b'{"auction":1,"price":1}', partition=1)
    app.append("bids", None, b'{"auction":1,"price":0}', partition=1)
    with pytest.raises(UserCodeError, match=r"map '<lambda>' raised ZeroDivisionError.*test_jobs.py") as caught:
        epoch(app)
    assert caught.value.where.endswith("topic bids, partition 1, offset 1")


def test_a_process_that_raises_is_blamed_with_the_piece() -> None:
    flow = fk.Flow("f", regime=fk.Batch())
    source = flow.source("bids", value=BID)
    source.key_by("auction").process(lambda row, key: {**row, "price": 1 // row["price"]}, id="p").sink(
        "out", value=JSON
    )
    app = MemoryApp(flow, {"bids": 2})
    app.append("bids", None, b'{"auction":1,"price":1}', partition=1)
    app.append("bids", None, b'{"auction":1,"price":0}', partition=1)
    with pytest.raises(UserCodeError, match="process 'p' raised ZeroDivisionError") as caught:
        epoch(app)
    assert caught.value.where.endswith("topic bids, partition 1, from offset 0 on")


def test_what_was_made_of_several_records_has_no_address() -> None:
    flow = fk.Flow("f", regime=fk.Batch())
    first = flow.source("bids", value=BID).key_by("auction").process(lambda row, key: row, id="first")
    second = first.key_by("price").process(lambda row, key: {**row, "price": 1 // row["price"]}, id="second")
    second.sink("out", value=JSON)
    app = MemoryApp(flow)
    bids(app, (7, 0))
    with pytest.raises(UserCodeError, match="process 'second' raised ZeroDivisionError") as caught:
        epoch(app)
    assert caught.value.where == second._op.where


def test_columns_may_be_called_as_states_are() -> None:
    flow = fk.Flow("f", regime=fk.Batch())
    rows = flow.source("bids", value=BID).select(row="auction", **{"x.sum": "auction", "x.count": "price"})
    both = ["row", "x.sum"]
    built_in = rows.group_by(both, id="g").agg(x=fk.mean("x.count"))
    built_in.sink("built-in", key=both, value=JSON)
    rows.group_by("x.sum", id="own").agg(x=Count("x.count"), row=fk.max("row")).sink("own", key="x.sum", value=JSON)
    app = MemoryApp(flow, {"bids": 2})
    bids(app, (7, 1), (8, 5), (7, 2), (7, 6))
    for seed in range(3):
        written = epoch(app, random.Random(seed))
        assert [value for _, value in pairs(written["built-in"])] == [
            b'{"row":7,"x.sum":7,"x":3.0}',
            b'{"row":8,"x.sum":8,"x":5.0}',
        ]
        assert [value for _, value in pairs(written["own"])] == [
            b'{"x.sum":7,"x":3,"row":7}',
            b'{"x.sum":8,"x":1,"row":8}',
        ]


def test_what_memory_holds_at_once_makes_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = fk.Flow("f", regime=fk.Batch())
    source = flow.source("bids", value=BID)
    source.group_by("auction", id="g").agg(n=fk.len(), m=fk.mean("price")).sink("built-in", key="auction", value=JSON)
    own = source.group_by("auction", id="own").agg(n=Count("price"), hi=fk.max("price"))
    own.sink("own", key="auction", value=JSON)
    source.key_by("auction").process(Order(), id="p").sink("order", key="auction", value=JSON)
    app = MemoryApp(flow, {"bids": 2})
    rng = random.Random(1)
    bids(app, *[(rng.randrange(12), rng.choice([None, rng.randrange(100)])) for _ in range(200)])
    wanted = {sink: pairs(records) for sink, records in epoch(app).items()}
    assert [len(records) for records in wanted.values()] == [12, 12, 200, 0]
    for module, name in (
        ("dataflow.exchange", "MOST"),
        ("operators.groups.group_batch", "MOST"),
        ("batch.sending", "MOST"),
        ("batch.sending", "_ROWS"),
    ):
        monkeypatch.setattr(f"falkirk.stream.{module}.{name}", 4)
    monkeypatch.setattr("falkirk.stream.operators.processes.process._AT_ONCE", 4)
    monkeypatch.setattr("falkirk.stream.dataflow.packing.LIMIT", 1000)
    for seed in range(3):
        assert {sink: pairs(records) for sink, records in epoch(app, random.Random(seed)).items()} == wanted


def test_a_sum_beyond_int64_is_blamed_with_its_group() -> None:
    app = MemoryApp(auctions())
    bids(app, (7, 2**63 - 1), (7, 1), (8, 1))
    with pytest.raises(UserCodeError, match=f"sum comes to {2**63}, beyond Int64") as caught:
        epoch(app)
    assert caught.value.where.endswith("group {'auction': 7}")


def test_sums_are_exact_however_many_pieces_they_come_from() -> None:
    app = MemoryApp(auctions())
    bids(app, *[(7, 2**63 - 1)] * 5, *[(7, 1 - 2**63)] * 5)
    for seed in range(5):
        assert pairs(epoch(app, random.Random(seed))["stats"]) == [
            (b"7", b'{"auction":7,"n":10,"top":9223372036854775807,"sum":0}')
        ]


def test_sums_of_floats_depend_on_the_pieces_and_not_on_who_adds_them() -> None:
    flow = fk.Flow("f", regime=fk.Batch())
    source = flow.source("in", value=fk.Json({"k": fk.Int64, "x": fk.Float64}))
    inner = source.group_by("k", id="k").agg(x=fk.sum("x"), m=fk.mean("x"))
    inner.sink("inner", key="k", value=JSON)
    inner.group_by("m", id="m").agg(x=fk.sum("x")).sink("outer", key="m", value=JSON)
    app = MemoryApp(flow, {"in": 3})
    rng = random.Random(5)
    for i in range(300):
        app.append(
            "in", None, msgspec.json.encode({"k": rng.randrange(20), "x": rng.uniform(-1e9, 1e9)}), partition=i % 3
        )
    wanted = epoch(app, random.Random(8), buckets=7)
    for seed in range(6):
        assert epoch(app, random.Random(8), tasks=random.Random(seed), buckets=7) == wanted


def test_two_rows_of_one_key_in_a_sink_of_grouped_results_are_an_error() -> None:
    flow = fk.Flow("f", regime=fk.Batch())
    stats = flow.source("bids", value=BID).group_by("auction", id="g").agg(n=fk.len())
    stats.map(lambda row: {**row, "auction": row["auction"] % 10}).sink("out", key="auction", value=JSON)
    app = MemoryApp(flow)
    bids(app, (7, 1), (18, 1))
    assert pairs(epoch(app)["out"]) == [(b"7", b'{"auction":7,"n":1}'), (b"8", b'{"auction":8,"n":1}')]
    bids(app, (27, 1))
    with pytest.raises(UserCodeError, match=r"two rows have the key \{'auction': 7\}") as caught:
        epoch(app, random.Random(1))
    assert "sink 'out'" in caught.value.where


def test_a_key_that_its_column_does_not_spell_is_an_error_as_in_the_stream() -> None:
    app = MemoryApp(auctions())
    app.append("bids", b"8", b'{"auction":7,"price":20}')
    with pytest.raises(SourceError, match=r"key is b'8', but column auction encodes to b'7'"):
        epoch(app)
    moved = MemoryApp(auctions(repartition=True))
    moved.append("bids", b"8", b'{"auction":7,"price":20}')
    assert pairs(epoch(moved)["stats"]) == [(b"7", b'{"auction":7,"n":1,"top":20,"sum":20}')]


def test_records_without_a_key_are_placed_by_their_value() -> None:
    flow = fk.Flow("f", regime=fk.Batch())
    flow.source("lines", value=fk.Text()).sink("out", value=fk.Text())
    app = MemoryApp(flow)
    for line in (b"to", b"be", b"or", b"not"):
        app.append("lines", b"k", line)
    for r in epoch(app, result_partitions=7)["out"]:
        assert r.key() is None
        assert r.partition() == (murmur2_of(r.value() or b"") & 0x7FFFFFFF) % 7


class Reminder(fk.Process):
    """`late` is for the row's own time, and once more an hour later; `now` is set for now whenever it fires."""

    returns = {"auction": int, "says": str}  # noqa: RUF012

    def on_row(self, row: Any, key: fk.KeyContext) -> Any:
        key.set_timer(moment(row["price"]), "late")
        key.set_timer(key.now(), "now")
        return {"auction": row["auction"], "says": f"row at {key.now().timestamp():.0f}"}

    def on_timer(self, timer: fk.Timer, key: fk.KeyContext) -> Any:
        at = round(timer.at.timestamp())
        if timer.name == "now":
            key.set_timer(key.now(), "now")
        elif at < 3600:
            key.set_timer(moment(at * 1000 + 3_600_000), "late")
        return {"auction": key.key[0], "says": f"{timer.name} at {at}"}


def test_timers_that_the_clock_has_passed_fire_after_all_rows_in_their_order() -> None:
    flow = fk.Flow("f", regime=fk.Batch())
    flow.source("bids", value=BID).key_by("auction").process(Reminder(), id="r").sink("out", key="auction", value=JSON)
    app = MemoryApp(flow)
    bids(app, (7, 1_000), (7, 9_000_000), (7, 5_000))
    said = [msgspec.json.decode(r.value() or b"")["says"] for r in epoch(app, random.Random(2), clock=8_000_000)["out"]]
    assert said == ["row at 8000"] * 3 + ["late at 5", "now at 8000", "late at 3605", "now at 8000", "now at 8000"]


def test_parcels_may_be_cut_and_a_level_hands_later_ones_on() -> None:
    flow = fk.Flow("f", regime=fk.Batch())
    source = flow.source("bids", value=BID)
    source.group_by("auction", id="g").agg(n=fk.len()).group_by("n", id="n").agg(of=fk.len()).sink(
        "n", key="n", value=JSON
    )
    source.sink("all", value=JSON)
    job = flow.plan().batches[0].job(clock=0, records=9, result_partitions=1, dead_letters_from={})
    assert (job.levels, job.buckets) == (2, 1)
    records = Records([3, 4], [b"7", b"7"], [b'{"auction":7,"price":1}'] * 2, [5, 6])
    frames = list(job.head(Piece(0, "bids", 0, 3, 5), iter([records])))
    levels = sorted(level for frame in frames for level in frame["level"])
    assert levels == [1, 3, 3]
    passed = [f for f in job.level(1, iter(sorted(frames, key=lambda f: f["level"][0]))) if len(f)]
    assert [f["level"].to_list() for f in passed] == [[2], [3, 3]]
    assert next(f for f in frames if f["level"][0] == 3).equals(passed[1])


def test_buckets_grow_with_the_division() -> None:
    (stage,) = auctions().plan().batches

    def buckets(records: int) -> int:
        job: Job = stage.job(clock=0, records=records, result_partitions=1, dead_letters_from={})
        return job.buckets

    assert [buckets(n) for n in (0, 10_000, 10_001, 200_000)] == [1, 1, 2, 16]
    assert [buckets(n) for n in (4_000_000, 4_000_001, 250_000_000)] == [16, 17, 1000]


@pytest.mark.parametrize("grouped", [False, True])
def test_a_row_that_its_topic_does_not_accept_is_buried_as_in_a_stream(grouped: bool) -> None:
    flow = fk.Flow("a", regime=fk.Batch(), on_error=fk.DeadLetter())
    rows = flow.source("bids", value=BID)
    last = rows.group_by("auction", id="stats").agg(price=fk.max("price")) if grouped else rows
    last.sink("stats", key="auction", value=JSON)
    stage, now = flow.plan().batches[0], 10**12
    accepts = {"stats": Accepts(keyless=False, after=3_600_000)}
    job = stage.job(clock=now, records=2, result_partitions=1, dead_letters_from={}, accepts=accepts)
    values: list[bytes | None] = [b'{"auction":7,"price":1}', b'{"auction":null,"price":2}']
    records = Records([0, 1], [None, None], values, [10**13, 5])
    frame = pl.concat(job.head(Piece(0, "bids", 0, 0, 2), [records]))
    if grouped:
        frame = pl.concat(job.level(1, [frame.sort("level", "exchange", "bucket", "order")]))
    written = frame.sort("exchange").select("exchange", "key", "timestamp").rows()
    assert written == [(0, b"7", now + AHEAD), (1, None, 5)]
    letter = msgspec.json.decode(frame.filter(pl.col("exchange") == 1)["value"][0])
    assert letter["reason"].startswith("its key is null, and topic 'stats' is compacted")
