"""Rows that a sink's topic does not accept: its broker would refuse the whole step, each time that it is tried."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import falkirk as fk
from falkirk.errors import UserCodeError
from falkirk.stream.dataflow.topics import AHEAD, Accepts, Layout
from falkirk.stream.definition.on_error import OnError
from falkirk.testing.memory import MemoryApp

HOUR = 3_600_000
NOW = 1_000 * HOUR
LETTERS = "falkirk.f.dead-letters"
COMPACTED = Accepts(keyless=False)


def app_of(flow: fk.Flow, accepts: Accepts) -> MemoryApp:
    app = MemoryApp(flow)
    app.layout = Layout(app.layout.partitions, {"out": accepts, LETTERS: accepts})
    return app


def rows(flow: fk.Flow, **options: Any) -> fk.Stream:
    return flow.source("in", value=fk.Json({"id": fk.Int64, "k": fk.String}), **options)


def put(app: MemoryApp, *keys: str | None, timestamp: int = NOW) -> None:
    for i, k in enumerate(keys):
        app.append("in", None, msgspec.json.encode({"id": i, "k": k}), timestamp=timestamp)


def run(app: MemoryApp) -> None:
    ((stage, task),) = app.tasks()
    app.step(stage, task, app.waiting(stage, task), clock=NOW)


def letters(app: MemoryApp) -> list[dict[str, Any]]:
    return [msgspec.json.decode(r.value() or b"") for r in app.records(LETTERS)]


def keys(app: MemoryApp) -> list[bytes | None]:
    return [r.key() for r in app.records("out")]


def test_a_null_key_for_a_compacted_topic_stops_the_app_with_the_address_of_its_record() -> None:
    flow = fk.Flow("f")
    rows(flow).sink("out", key="k", value=fk.Json())
    app = app_of(flow, COMPACTED)
    put(app, "a", None)
    with pytest.raises(UserCodeError, match="its key is null, and topic 'out' is compacted") as caught:
        run(app)
    assert caught.value.where.startswith("sink 'out' (")
    assert caught.value.where.endswith("topic in, partition 0, offset 1")
    assert "fk.DeadLetter()" in caught.value.hint


@pytest.mark.parametrize(("flow_wide", "own"), [(fk.DeadLetter(), None), (None, fk.DeadLetter())])
def test_or_it_goes_to_the_dead_letters_as_the_flow_or_the_sink_says(
    flow_wide: OnError | None, own: OnError | None
) -> None:
    flow = fk.Flow("f", on_error=flow_wide)
    rows(flow).sink("out", key="k", value=fk.Json(), on_error=own)
    app = app_of(flow, COMPACTED)
    put(app, "a", None, "b")
    run(app)
    assert keys(app) == [b"a", b"b"]
    (letter,) = letters(app)
    assert (letter["operator"], letter["offset"]) == ("sink out", 1)
    assert letter["reason"].startswith("its key is null")


def test_or_it_is_skipped_and_counted() -> None:
    flow = fk.Flow("f", on_error=fk.Skip())
    rows(flow).sink("out", key="k", value=fk.Json())
    app = app_of(flow, COMPACTED)
    put(app, None, "a")
    ((stage, task),) = app.tasks()
    assert app.step(stage, task, {"in": 2}, clock=NOW).skipped == 1
    assert keys(app) == [b"a"]


def test_a_group_of_a_null_key_has_a_letter_with_its_row() -> None:
    flow = fk.Flow("f", on_error=fk.DeadLetter())
    rows(flow, key=None).group_by("k", id="counts").agg(n=fk.len()).sink("out", key="k", value=fk.Json())
    app = app_of(flow, COMPACTED)
    put(app, "a", None, None)
    for stage, task in app.tasks():
        app.step(stage, task, app.waiting(stage, task), clock=NOW)
    assert keys(app) == [b"a"]
    (letter,) = letters(app)
    assert letter["row"] == {"k": None, "n": 2}


def test_a_topic_that_is_not_compacted_has_the_row_of_a_null_key() -> None:
    flow = fk.Flow("f")
    rows(flow).sink("out", key="k", value=fk.Json())
    app = app_of(flow, Accepts(after=HOUR))
    put(app, "a", None)
    run(app)
    assert keys(app) == [b"a", None]


@pytest.mark.parametrize("accepts", [Accepts(after=HOUR), Accepts()])
def test_a_timestamp_that_a_producer_set_far_ahead_is_bounded_and_its_row_counts(accepts: Accepts) -> None:
    flow = fk.Flow("f")
    rows(flow).sink("out", key="k", value=fk.Json())
    app = app_of(flow, accepts)
    put(app, "past", timestamp=NOW - 5)
    put(app, "far", timestamp=NOW + 10_000 * HOUR)
    run(app)
    assert [r.timestamp()[1] for r in app.records("out")] == [NOW - 5, NOW + AHEAD]


def test_so_is_that_of_a_letter() -> None:
    flow = fk.Flow("f")
    rows(flow).sink("out", key="k", value=fk.Json())
    app = app_of(flow, Accepts(after=HOUR, before=6 * HOUR))
    app.append("in", None, b"{", timestamp=NOW + 10 * HOUR)
    app.append("in", None, b"{", timestamp=NOW - 10 * HOUR)
    run(app)
    assert [r.timestamp()[1] for r in app.records(LETTERS)] == [NOW + AHEAD, NOW - 5 * HOUR]
    assert [letter["timestamp"] for letter in letters(app)] == [NOW + 10 * HOUR, NOW - 10 * HOUR]  # what records say


@pytest.mark.parametrize(
    ("accepts", "millis", "says"),
    [
        (Accepts(after=60_000), NOW + 55_000, "message.timestamp.after.max.ms is 60,000"),
        (Accepts(before=60_000), NOW - 55_000, "message.timestamp.before.max.ms is 60,000"),
    ],
)
def test_what_a_topic_with_narrower_bounds_does_not_accept_fails(accepts: Accepts, millis: int, says: str) -> None:
    flow = fk.Flow("f", on_error=fk.DeadLetter())
    rows(flow).sink("out", key="k", value=fk.Json())
    app = app_of(flow, accepts)
    put(app, "good")
    put(app, "bad", timestamp=millis)
    run(app)
    assert keys(app) == [b"good"]
    (letter,) = letters(app)
    assert says in letter["reason"]


def test_of_a_sink_with_several_topics_each_has_its_own_bounds() -> None:
    flow = fk.Flow("f")
    rows(flow).sink("any", topic=["out", "other"], topic_by="k", key="id", value=fk.Json(), on_error=fk.DeadLetter())
    app = app_of(flow, Accepts(after=60_000))
    put(app, "out", "other", "neither", timestamp=NOW + 70_000)
    run(app)
    assert (len(app.records("out")), len(app.records("other"))) == (0, 1)
    assert sorted(letter["offset"] for letter in letters(app)) == [0, 2]


def test_a_record_that_is_too_large_stops_the_app_with_its_address_and_what_to_do() -> None:
    flow = fk.Flow("f")
    rows(flow).sink("out", key="k", value=fk.Json())
    app = app_of(flow, Accepts(largest=2_000))
    put(app, "a", "b" * 750)
    words = r"a record of 1,5\d\d bytes does not fit into topic 'out': its max.message.bytes, 2,000, .* key is b'bbb"
    with pytest.raises(UserCodeError, match=words) as caught:
        run(app)
    assert caught.value.where.endswith("topic in, partition 0, offset 1")
    assert caught.value.hint.startswith("make the record smaller, or raise the topic's max.message.bytes")
    assert "on_error=fk.DeadLetter()" in caught.value.hint


def test_or_it_goes_to_the_dead_letters_and_the_rest_is_written() -> None:
    flow = fk.Flow("f")
    rows(flow).sink("out", key="k", value=fk.Json(), on_error=fk.DeadLetter())
    app = MemoryApp(flow)
    app.layout = Layout(app.layout.partitions, {"out": Accepts(largest=2_000)})
    put(app, "a", "b" * 750, "c" * 700)
    run(app)
    assert keys(app) == [b"a", b"c" * 700]
    (letter,) = letters(app)
    assert "does not fit into topic 'out'" in letter["reason"]
    assert letter["offset"] == 1


def test_a_row_that_is_too_large_for_its_dead_letter_is_not_kept_there() -> None:
    flow = fk.Flow("f", on_error=fk.DeadLetter())
    longest = rows(flow, key="id").group_by("id", id="longest").agg(k=fk.max("k"))
    longest.sink("out", key="id", value=fk.Json())
    app = app_of(flow, Accepts(largest=2_000))
    for i, k in enumerate(("a", "b" * 1_600)):
        app.append("in", str(i).encode(), msgspec.json.encode({"id": i, "k": k}), timestamp=NOW)
    run(app)
    assert keys(app) == [b"0"]
    (letter,) = letters(app)
    assert "does not fit into topic 'out'" in letter["reason"]
    assert letter["row"].endswith("too large for a dead letter")


def test_the_rows_of_an_answer_that_is_too_large_fail_together() -> None:
    def app_with(on_error: Any) -> MemoryApp:
        flow = fk.Flow("f", on_error=on_error)
        asked = flow.http("in", value=fk.Json({"n": int}))
        columns = {"request": str, "x": str}
        asked.flat_map(lambda row: [{"request": row["request"], "x": "x"}] * row["n"], returns=columns).answer("in")
        app = MemoryApp(flow)
        app.layout = Layout(app.layout.partitions, {"in-answers": Accepts(largest=2_000)})
        for name, n in (("a", 2), ("b", 200), ("c", 3)):
            request = {"request": name, "request_digest": "d", "n": n}
            app.append("in", name.encode(), msgspec.json.encode(request), timestamp=NOW)
        return app

    with pytest.raises(UserCodeError, match=r"the answer has 200 rows, 2,\d+ bytes, which topic") as raised:
        run(app_with(None))
    assert raised.value.where.endswith("topic in, partition 0, offset 1")
    assert raised.value.hint.startswith("make the record smaller")
    app = app_with(fk.DeadLetter())
    run(app)
    found = {r.key(): msgspec.json.decode(r.value() or b"")["rows"] for r in app.records("in-answers")}
    assert {key: len(rows) for key, rows in found.items()} == {b"a": 2, b"b": 0, b"c": 3}
    assert [letter["offset"] for letter in letters(app)] == [1]


def small(changes: Any, regime: Any, **options: Any) -> fk.Flow:
    """A flow with a sink whose column has fewer bits than that of its rows."""
    flow = fk.Flow("f", regime=regime)
    rows = flow.source("in", key="k", value=fk.Json({"k": fk.String, "n": fk.Int64}))
    if changes != "append":
        rows = rows.group_by("k", id="n").agg(n=fk.sum("n"))
    weight = {"weight": fk.Int64} if changes == "weights" else {}
    value = fk.Json({"k": fk.String, "n": fk.Int8, **weight})
    rows.sink("small", key="k", value=value, changes=changes, **options)
    return flow


each_way = pytest.mark.parametrize(
    ("changes", "regime"),
    [
        *((changes, regime()) for changes in ("append", "upsert") for regime in (fk.EagerCheckpoint, fk.Batch)),
        ("weights", fk.LazyCheckpoint()),
    ],
)
SENT = [{"k": k, "n": n} for k, n in (("a", 1), ("b", 300), ("c", 3), ("b", 1), ("d", 301), ("e", 5))]


@each_way
def test_a_row_that_does_not_fit_the_format_stops_the_app_with_what_to_do(changes: Any, regime: Any) -> None:
    with pytest.raises(UserCodeError, match="a number does not fit") as caught:
        fk.testing.run(small(changes, regime), {"in": SENT}, step_rows=10)
    assert caught.value.where.startswith("sink 'small' (")
    assert ("topic in, partition 0, offset 1" in caught.value.where) == (changes == "append")
    assert caught.value.hint.endswith("to continue without such rows: on_error=fk.DeadLetter()")


@each_way
def test_rows_that_do_not_fit_the_format_fail_one_by_one(changes: Any, regime: Any) -> None:
    app = fk.testing.run(small(changes, regime, on_error=fk.DeadLetter()), {"in": SENT}, step_rows=10)
    found = [(row["k"], row["n"]) for row in app.sinks["small"].rows]
    assert sorted(found) == [("a", 1), *([("b", 1)] if changes == "append" else []), ("c", 3), ("e", 5)]
    assert len(app.dead_letters) == 2
    assert all(letter["reason"].startswith("a number does not fit Json") for letter in app.dead_letters)


def narrow(changes: Any, regime: Any, **options: Any) -> fk.Flow:
    """A flow with a sink whose key has fewer bits than its column."""
    flow = fk.Flow("f", regime=regime)
    rows = flow.source("in", value=fk.Json({"id": fk.Int64, "n": fk.Int64}))
    if changes != "append":
        rows = rows.group_by("id", id="n").agg(n=fk.sum("n"))
    weight = {"weight": fk.Int64} if changes == "weights" else {}
    key = fk.Key("id", fk.Int16BE)
    rows.sink("narrow", key=key, value=fk.Json({"id": fk.Int64, "n": fk.Int64, **weight}), changes=changes, **options)
    return flow


IDS = [{"id": id_, "n": 1} for id_ in (1, 70_000, 3, 70_001, 5)]


@each_way
def test_a_key_that_does_not_fit_its_format_stops_the_app_with_what_to_do(changes: Any, regime: Any) -> None:
    with pytest.raises(UserCodeError, match="a number that does not fit Int16BE") as caught:
        fk.testing.run(narrow(changes, regime), {"in": IDS}, step_rows=10)
    assert caught.value.where.startswith("sink 'narrow' (")
    assert caught.value.hint.endswith("to continue without such rows: on_error=fk.DeadLetter()")


@each_way
def test_keys_that_do_not_fit_their_format_fail_one_by_one(changes: Any, regime: Any) -> None:
    app = fk.testing.run(narrow(changes, regime, on_error=fk.DeadLetter()), {"in": IDS}, step_rows=10)
    assert sorted(row["id"] for row in app.sinks["narrow"].rows) == [1, 3, 5]
    assert len(app.dead_letters) == 2
    assert all("does not fit Int16BE" in letter["reason"] for letter in app.dead_letters)
