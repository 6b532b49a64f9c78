"""Source, filter, grouped aggregate, sink: the shortest flow that does something, against Polars."""

from __future__ import annotations

import random

import msgspec
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import falkirk as fk
from falkirk.testing.memory import MemoryApp


def auction_stats() -> fk.Flow:
    flow = fk.Flow("auction-stats")
    bids = flow.source("bids", key="auction", value=fk.Json({"auction": fk.Int64, "price": fk.Int64}))
    stats = bids.filter(fk.col("price") > 10).group_by("auction", id="stats").agg(n=fk.len(), top=fk.max("price"))
    stats.sink("auction-stats", key="auction", value=fk.Json())
    return flow


def latest(app: MemoryApp, topic: str) -> dict[bytes | None, dict[str, object]]:
    return {key: msgspec.json.decode(value) for key, value in app.latest(topic).items()}


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-5, 40))), st.randoms(use_true_random=False))
def test_the_last_record_of_each_key_is_what_polars_computes(rows: list[tuple[int, int]], rng: random.Random) -> None:
    app = MemoryApp(auction_stats(), {"bids": 3, "auction-stats": 2})
    for i, (auction, price) in enumerate(rows):
        value = msgspec.json.encode({"auction": auction, "price": price})
        app.append("bids", str(auction).encode(), value, timestamp=i)
    app.run(rng)
    frame = pl.DataFrame(rows, {"auction": pl.Int64, "price": pl.Int64}, orient="row").filter(pl.col("price") > 10)
    wanted = frame.group_by("auction").agg(n=pl.len(), top=pl.col("price").max()).rows(named=True)
    assert latest(app, "auction-stats") == {str(row["auction"]).encode(): row for row in wanted}


def test_one_record_a_changed_key_and_step_with_the_greatest_timestamp() -> None:
    app = MemoryApp(auction_stats())
    for i, price in enumerate([20, 30, 5]):
        app.append("bids", b"7", msgspec.json.encode({"auction": 7, "price": price}), timestamp=100 - i)
    app.run()
    (record,) = app.records("auction-stats")
    assert record.value() == b'{"auction":7,"n":2,"top":30}'
    assert record.timestamp() == (1, 100)


def test_what_does_not_decode_goes_to_the_dead_letters_with_its_address() -> None:
    app = MemoryApp(auction_stats())
    app.append("bids", b"7", b'{"auction":7,"price":20}', timestamp=5)
    app.append("bids", b"7", b"{oops", timestamp=6)
    app.run()
    (letter,) = app.records("falkirk.auction-stats.dead-letters")
    told = msgspec.json.decode(letter.value() or b"")
    assert {k: told[k] for k in ("app", "stage", "topic", "partition", "offset", "timestamp", "key", "payload")} == {
        "app": "auction-stats",
        "stage": "stats",
        "topic": "bids",
        "partition": 0,
        "offset": 1,
        "timestamp": 6,
        "key": "Nw==",
        "payload": "e29vcHM=",
    }
    assert "not JSON" in told["reason"]
    assert latest(app, "auction-stats") == {b"7": {"auction": 7, "n": 1, "top": 20}}


def test_a_key_that_its_column_does_not_spell_stops_the_app() -> None:
    app = MemoryApp(auction_stats())
    app.append("bids", b"8", b'{"auction":7,"price":20}')
    with pytest.raises(fk.FalkirkError, match=r"key is b'8', but column auction encodes to b'7'") as caught:
        app.run()
    assert "topic bids, partition 0, offset 0" in caught.value.where
    assert "repartition=True" in caught.value.hint


def test_a_record_without_a_key_stops_the_app_which_says_how_to_read_such_a_topic() -> None:
    app = MemoryApp(auction_stats())
    app.append("bids", None, b'{"auction":7,"price":20}')
    with pytest.raises(fk.FalkirkError, match=r"the record has no key, but column auction encodes to b'7'") as caught:
        app.run()
    assert "give repartition=True: then the records' keys do not count; on_error does not apply" in caught.value.hint
    assert "fk.Key" not in caught.value.hint


def test_keys_that_no_partitioner_put_there_stop_the_app() -> None:
    app = MemoryApp(auction_stats(), {"bids": 3})
    for auction in range(20):
        value = msgspec.json.encode({"auction": auction, "price": 20})
        app.append("bids", str(auction).encode(), value, partition=auction % 3)
    with pytest.raises(fk.FalkirkError, match="neither Java's") as caught:
        app.run()
    assert "topic bids, partition 0, offset" in caught.value.where
    assert "repartition=True" in caught.value.hint


def test_dead_letters_of_several_sources_are_one_output_of_a_step() -> None:
    flow = fk.Flow("app")
    value = fk.Json({"a": fk.Int64})
    flow.source("x", value=value).concat(flow.source("y", value=value)).sink("out", value=fk.Json())
    app = MemoryApp(flow)
    for topic in ("x", "y"):
        for payload in (b"{", b'{"a":1}', b"nothing"):
            app.append(topic, None, payload)
    (stage,) = app.plan.stages
    output = app.step(stage, 0, {"x": 3, "y": 3})
    assert [(e.output, len(e.values)) for e in output.emitted] == [("dead letters", 4), ("out", 2)]
    assert (output.rows, output.dead) == (6, 4)
    letters = [msgspec.json.decode(r.value() or b"") for r in app.records("falkirk.app.dead-letters")]
    assert [(told["topic"], told["offset"]) for told in letters] == [("x", 0), ("x", 2), ("y", 0), ("y", 2)]
