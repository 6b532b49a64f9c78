"""What fails: in any mixture with what does not, each input is in the outputs, a letter, a stream of errors, or counted."""

from __future__ import annotations

import base64
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import msgspec
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import falkirk as fk
from falkirk.checkpoint.overlay import Overlay
from falkirk.errors import DefinitionError, SourceError, UserCodeError
from falkirk.stream.dataflow.circuit import Slice, StepInput, StepOutput
from falkirk.stream.dataflow.records import Records
from falkirk.stream.definition.on_error import OnError
from falkirk.testing.batch import epoch
from falkirk.testing.memory import MemoryApp

VALUE = fk.Json({"id": fk.Int64, "k": fk.String, "x": fk.Int64})
LETTERS = "falkirk.f.dead-letters"
NAMES = re.compile(rb"of -?\d+")


def app_of(
    build: Callable[[fk.Stream], fk.Stream | None],
    *,
    source: OnError | None = None,
    flow: OnError | None = None,
    regime: Any = None,
    partitions: int = 1,
) -> MemoryApp:
    """A flow from `in` to `out`."""
    the_flow = fk.Flow("f", regime=regime, on_error=flow)
    end = build(the_flow.source("in", key="k", value=VALUE, on_error=source))
    if end is not None:
        end.sink("out", value=fk.Json())
    return MemoryApp(the_flow, {"in": partitions, "out": partitions}, tasks=partitions)


def put(app: MemoryApp, *xs: Any) -> None:
    for i, x in enumerate(xs):
        value = x if isinstance(x, bytes) else msgspec.json.encode({"id": i, "k": str(i % 3), "x": x})
        app.append("in", str(i % 3).encode(), value, timestamp=1_000 + i)


def values(app: MemoryApp, topic: str = "out") -> list[dict[str, Any]]:
    return [msgspec.json.decode(r.value() or b"") for r in app.records(topic)]


def run(app: MemoryApp) -> StepOutput:
    """One step of the only task over all that waits."""
    ((stage, task),) = app.tasks()
    return app.step(stage, task, app.waiting(stage, task))


def picky(row: dict[str, Any]) -> dict[str, Any]:
    if row["x"] < 0:
        raise ValueError(f"no {row['x']}")
    return row


class Sums(fk.Process):
    """Adds up; what is wrong with a row is noticed when everything was done to its key."""

    state = {"total": int}  # noqa: RUF012
    returns = {"id": int, "k": str, "total": int}  # noqa: RUF012

    def on_row(self, row: dict[str, Any], key: fk.KeyContext) -> Iterator[dict[str, Any]]:
        state = key.get() or {"total": 0}
        state["total"] += row["x"]
        key.put(state)
        key.set_timer(timedelta(days=1), f"of {row['x']}")
        yield {"id": row["id"], "k": row["k"], "total": state["total"]}
        if row["x"] == -1:
            raise ValueError("no -1")
        if row["x"] == -2:
            key.put({"total": "much"})
        if row["x"] == -3:
            yield {"id": "three", "k": row["k"], "total": 0}


OPERATORS: dict[str, Callable[[fk.Stream], fk.Stream]] = {
    "map": lambda s: s.map(picky, on_error=fk.DeadLetter()).select("id"),
    "flat_map": lambda s: s.flat_map(lambda row: iter([picky(row)]), on_error=fk.DeadLetter()).select("id"),
    "map_batches": lambda s: s.map_batches(
        lambda f: f if f["x"].min() is None or f["x"].min() >= 0 else 1 / 0, on_error=fk.DeadLetter()
    ).select("id"),
    "process": lambda s: s.key_by("k").process(Sums(), id="sums", on_error=fk.DeadLetter()).select("id"),
    "behind an edge": lambda s: s.repartition("x").map(picky, on_error=fk.DeadLetter()).select("id"),
}


def upset(app: MemoryApp, rng: random.Random) -> None:
    """Steps that come to nothing, and processes that begin again."""
    for stage, task in app.tasks():
        circuit = app.circuits.get((stage.id, task))
        if circuit is None or rng.random() < 0.5:
            continue
        slices = []
        for i in stage.inputs:
            place = app.places[stage.id, task, i.id]
            found = app.topics[i.topic][task][place : place + rng.randint(0, 5)]
            slices.append(Slice(i.id, i.topic, task, Records.of(found)))
        circuit.run(StepInput(app.clock, slices), Overlay(app.states[stage.id, task]))
        circuit.rewind()
        if rng.random() < 0.3:
            del app.circuits[stage.id, task]


@pytest.mark.parametrize("name", OPERATORS)
@given(
    xs=st.lists(st.integers(-3, 5) | st.just(b"{"), max_size=20),
    rng=st.randoms(use_true_random=False),
    regime=st.sampled_from([fk.EagerCheckpoint(), fk.LazyCheckpoint()]),
)
def test_outputs_and_letters_are_the_inputs(name: str, xs: list[Any], rng: random.Random, regime: Any) -> None:
    app = app_of(OPERATORS[name], regime=regime, partitions=2)
    put(app, *xs)
    while any(any(app.waiting(stage, task).values()) for stage, task in app.tasks()):
        upset(app, rng)
        ready = [(s, t) for s, t in app.tasks() if any(app.waiting(s, t).values())]
        stage, task = rng.choice(ready)
        app.step(stage, task, {i: rng.randint(0, n) for i, n in app.waiting(stage, task).items()}, app.clock + 1)
    letters = values(app, LETTERS)
    good = [i for i, x in enumerate(xs) if isinstance(x, int) and x >= 0]
    assert sorted(row["id"] for row in values(app)) == good
    assert len(letters) == len(xs) - len(good)
    for letter in letters:
        if "row" in letter:
            assert letter["row"]["x"] == xs[letter["row"]["id"]] < 0
        else:
            record = app.topics["in"][letter["partition"]][letter["offset"]]
            assert (letter["topic"], base64.b64decode(letter["payload"])) == ("in", record.value())
            assert (base64.b64decode(letter["key"]), letter["timestamp"]) == (record.key(), record.millis)


@given(st.lists(st.integers(-3, 5), max_size=25), st.randoms(use_true_random=False))
def test_what_a_failing_call_did_to_its_key_is_undone(xs: list[int], rng: random.Random) -> None:
    app = app_of(lambda s: s.key_by("k").process(Sums(), id="sums", on_error=fk.Skip()))
    put(app, *xs)
    app.run(rng)
    alone = app_of(lambda s: s.key_by("k").process(Sums(), id="sums"))
    for i, x in enumerate(xs):
        if x >= 0:
            alone.append("in", str(i % 3).encode(), msgspec.json.encode({"id": i, "k": str(i % 3), "x": x}))
    alone.run(rng)
    assert values(app) == values(alone)
    ((stage, task),) = app.tasks()
    # Timers are as late as the clock was, which depends on how records were cut into steps: their names must do.
    states = [
        sorted(NAMES.findall(k + v) or [k + v] for k, v in a.states[stage.id, task].data.items()) for a in (app, alone)
    ]
    assert states[0] == states[1]


@pytest.mark.parametrize("regime", [fk.EagerCheckpoint(), fk.LazyCheckpoint()], ids=["eager", "lazy"])
def test_letters_and_errors_are_written_once_whatever_dies(regime: Any) -> None:
    flow = fk.Flow("f", regime=regime)
    source = flow.source("in", key="k", value=VALUE)
    summed = source.key_by("k").process(Sums(), id="sums", on_error=fk.DeadLetter(stop_above="50%"))
    summed.sink("out", value=fk.Json())
    summed.errors.group_by("reason", id="why").agg(n=fk.len()).sink("why", key="reason", value=fk.Json())
    rows = [{"id": i, "k": str(i % 2), "x": x} for i, x in enumerate([1, -1, 2, -2, -3, 4, 5, -1])]
    result = fk.testing.run(flow, {"in": [*rows, ("1", b"{")]}, crash_at="everywhere", step_rows=3)
    assert [row["id"] for row in result.sinks["out"].rows] == [0, 2, 5, 6]
    assert sorted(letter["offset"] for letter in result.dead_letters) == [1, 3, 4, 7, 8]
    assert sum(row["n"] for row in result.sinks["why"].table.values()) == 4


class Late(fk.Process):
    """A timer that fails where x is negative, after it has done something."""

    state = {"n": int}  # noqa: RUF012

    def on_row(self, row: dict[str, Any], key: fk.KeyContext) -> None:
        key.put({"n": row["x"]})
        key.set_timer(timedelta(milliseconds=5))

    def on_timer(self, timer: fk.Timer, key: fk.KeyContext) -> Iterator[dict[str, Any]]:
        n = (key.get() or {"n": 0})["n"]
        key.put({"n": 100})
        yield {"id": 0, "k": key.key[0], "x": n}
        if n < 0:
            raise RuntimeError("late")


def test_the_hint_for_a_lookup_in_a_stream_of_one_row_for_each_key_makes_a_table_of_it() -> None:
    flow = fk.Flow("f")
    people = flow.source("people", key="id", value=fk.Json({"id": int, "name": str}), changes="upsert")
    visits = flow.source("visits", value=fk.Json({"person": int}))
    with pytest.raises(DefinitionError, match=r'flow\.table\(stream, key="id"\)'):
        visits.lookup(people, on="person")
    assert visits.lookup(flow.table(people, key="id"), on="person").schema.names() == ["person", "name"]


def test_a_timer_that_fails_is_gone_and_has_a_letter_without_a_record() -> None:
    app = app_of(lambda s: s.key_by("k").process(Late(), id="late", on_error=fk.DeadLetter()))
    put(app, 1, -1)
    run(app)
    ((stage, task),) = app.tasks()
    assert app.step(stage, task, {}, 10).wake_at is None
    assert [row["x"] for row in values(app)] == [1]
    (letter,) = values(app, LETTERS)
    assert letter["row"]["key"] == {"k": "1"}
    assert (letter["operator"], letter["reason"]) == ("process late", "RuntimeError: late")
    assert (letter["topic"], letter["offset"], letter["payload"]) == (None, None, None)


def test_a_letter_says_what_failed_and_where_and_no_more() -> None:
    class Odd:
        pass

    app = app_of(lambda s: s.map(lambda row: row["x"] + Odd(), on_error=fk.DeadLetter("elsewhere")))
    put(app, 7)
    run(app)
    ((record,), (letter,)) = app.records("elsewhere"), values(app, "elsewhere")
    assert (record.key(), record.millis) == (b"0", 1_000)
    assert letter == {
        "app": "f", "stage": "in", "source": "in", "topic": "in", "partition": 0, "offset": 0, "timestamp": 1_000,
        "reason": "TypeError: unsupported operand type(s) for +: 'int' and 'Odd'",
        "key": "MA==", "payload": base64.b64encode(b'{"id":0,"k":"0","x":7}').decode(), "operator": "map <lambda>",
    }  # fmt: skip


def test_a_row_of_which_a_part_does_not_fit_gives_nothing() -> None:
    app = app_of(lambda s: s.flat_map(lambda r: [r, {**r, "x": "?" if r["x"] == 3 else 0}], on_error=fk.Skip()))
    put(app, 1, 3, 2)
    assert run(app).skipped == 1
    assert [row["id"] for row in values(app)] == [0, 0, 2, 2]


def test_frames_that_fail_are_halved_down_to_the_rows() -> None:
    sizes = []

    def batches(frame: pl.DataFrame) -> pl.DataFrame:
        sizes.append(frame.height)
        if 0 in frame["x"]:
            raise ValueError("a zero")
        return frame

    app = app_of(lambda s: s.map_batches(batches, on_error=fk.Skip()))
    put(app, *[1] * 40, 0, *[1] * 23)
    assert run(app).skipped == 1
    assert [row["id"] for row in values(app)] == [i for i in range(64) if i != 40]
    assert len(sizes) == 2 * (1 + 2 * 6)  # each step is run twice


def test_expressions_go_on_where_the_flow_does() -> None:
    def build(s: fk.Stream) -> fk.Stream:
        return s.filter(fk.col("k").cast(fk.Int64) < 2).with_columns(n=fk.col("k").cast(fk.Int64)).select("id", "n")

    app = app_of(build, flow=fk.DeadLetter())
    app.append("in", b"a", b'{"id":0,"k":"a","x":0}')
    app.append("in", b"1", b'{"id":1,"k":"1","x":0}')
    run(app)
    assert values(app) == [{"id": 1, "n": 1}]
    (letter,) = values(app, LETTERS)
    assert (letter["operator"], letter["offset"]) == ("filter filter", 0)
    stopping = app_of(build)
    put(stopping, 1)
    stopping.append("in", b"a", b'{"id":0,"k":"a","x":0}')
    with pytest.raises(UserCodeError, match="filter 'filter' raised"):
        run(stopping)


def test_a_row_of_a_frame_that_has_grown_is_of_no_record() -> None:
    def build(s: fk.Stream) -> fk.Stream:
        twice = s.map_batches(lambda frame: pl.concat([frame, frame]))
        return twice.map(picky, on_error=fk.DeadLetter()).select("id")

    app = app_of(build)
    put(app, -1, 1, 2)
    run(app)
    assert [(v["topic"], v["row"]["x"]) for v in values(app, LETTERS)] == [(None, -1)] * 2


def test_functions_letters_are_in_each_epoch_for_their_code_may_change() -> None:
    app = app_of(lambda s: s.with_regime(fk.Batch()).map(picky, on_error=fk.DeadLetter()).select("id"))
    put(app, -1, b"{", 1)
    letters = epoch(app, dead_letters_from={("in", 0): 3})["dead letters"]
    assert [msgspec.json.decode(r.value() or b"")["offset"] for r in letters] == [0]


def test_rows_that_are_taken_back_have_no_letters_of_their_own() -> None:
    flow = fk.Flow("f")
    tops = flow.source("in", key="k", value=VALUE).group_by("k", id="tops").agg(top=fk.max("x"))
    over = tops.map(lambda row: {**row, "top": 60 // (row["top"] - 3)}, on_error=fk.DeadLetter())
    over.sink("out", key="k", value=fk.Json())
    app = MemoryApp(flow)
    for x in (1, 3, 5):
        put(app, x)
        app.run()
    assert [r.value() for r in app.records("out")] == [b'{"k":"0","top":-30}', None, b'{"k":"0","top":30}']
    (letter,) = values(app, LETTERS)
    assert (letter["row"], letter["topic"]) == ({"k": "0", "top": 3}, None)


def both(s: fk.Stream) -> fk.Stream:
    checked = s.map(picky)
    s.errors.sink("undecoded", value=fk.Json())
    checked.errors.select("operator", "reason", "topic", "partition", "offset", "timestamp", "payload").sink(
        "unmapped", value=fk.Json()
    )
    return checked.select("id")


def test_a_stream_of_errors_takes_the_place_of_letters() -> None:
    app = app_of(both)
    put(app, 1, b"{", -5)
    out = run(app)
    assert (out.dead, out.skipped, values(app)) == (0, 0, [{"id": 0}])
    assert app.topics.get(LETTERS) is None
    (undecoded,), (unmapped,) = values(app, "undecoded"), values(app, "unmapped")
    assert (undecoded["operator"], undecoded["offset"], undecoded["row"]) == ("source in", 1, None)
    assert base64.b64decode(undecoded["payload"]) == b"{"
    assert unmapped == {
        "operator": "map picky", "reason": "ValueError: no -5", "topic": "in", "partition": 0, "offset": 2,
        "timestamp": "1970-01-01T00:00:01.002Z", "payload": base64.b64encode(b'{"id":2,"k":"2","x":-5}').decode(),
    }  # fmt: skip


def test_errors_of_a_process_can_be_grouped() -> None:
    def build(s: fk.Stream) -> None:
        failing = s.key_by("k").process(Sums(), id="sums", on_error=fk.DeadLetter())
        failing.errors.group_by("reason", id="reasons").agg(n=fk.len()).sink("why", key="reason", value=fk.Json())

    app = app_of(build)
    put(app, -1, 2, -1, -2)
    app.run()
    counted = {row["reason"]: row["n"] for row in values(app, "why")}
    assert counted["ValueError: no -1"] == 2
    assert len(counted) == 2
    assert len(app.records(LETTERS)) == 3, "on_error=fk.DeadLetter() asks for them too"


def test_a_table_may_stream_what_does_not_decode_too() -> None:
    flow = fk.Flow("f")
    names = flow.table("names", key="k", value=fk.Json({"name": fk.String}))
    names.errors.select("operator", "offset", "reason").sink("bad", value=fk.Json())
    flow.source("in", key="k", value=VALUE).lookup(names, "k").select("id", "name").sink("out", value=fk.Json())
    app = MemoryApp(flow)
    app.append("names", b"0", b'{"name":"zero"}')
    app.append("names", b"0", b'{"name":17')
    put(app, 1)
    app.run()
    assert values(app) == [{"id": 0, "name": "zero"}]
    (bad,) = values(app, "bad")
    assert (bad["operator"], bad["offset"]) == ("table names", 1)


def test_whoever_wants_the_errors_of_a_source_alone_has_all_columns_checked() -> None:
    app = app_of(lambda s: s.errors.select("offset"))
    put(app, 1, b'{"id":"?"}')
    run(app)
    assert values(app) == [{"offset": 1}]


def test_a_stage_without_the_stream_of_errors_buries_what_fails() -> None:
    def build(s: fk.Stream) -> fk.Stream:
        checked = s.map(picky)
        checked.errors.select("offset").sink("bad", value=fk.Json())
        checked.with_regime(fk.Batch()).select("id").sink("whole", value=fk.Json())
        return checked.select("id")

    app = app_of(build, flow=fk.Stop())
    put(app, 1, -1)
    app.run()
    written = epoch(app)
    assert [r.value() for r in written["whole"]] == [b'{"id":0}']
    (letter,) = written["dead letters"]
    assert msgspec.json.decode(letter.value() or b"")["offset"] == 1
    assert values(app, "bad") == [{"offset": 1}]


@given(xs=st.lists(st.integers(-3, 5) | st.just(b"{"), max_size=20), rng=st.randoms(use_true_random=False))
@pytest.mark.parametrize("name", ["map", "flat_map", "process", "map_batches"])
def test_an_epoch_buries_what_the_stream_buries(name: str, xs: list[Any], rng: random.Random) -> None:
    app = app_of(lambda s: OPERATORS[name](s.with_regime(fk.Batch())), source=fk.DeadLetter("undecoded"))
    put(app, *xs)
    written = epoch(app, rng)
    good = [i for i, x in enumerate(xs) if isinstance(x, int) and x >= 0]
    assert sorted(msgspec.json.decode(r.value() or b"")["id"] for r in written["out"]) == good
    assert len(written["dead letters undecoded"]) == xs.count(b"{")
    letters = [msgspec.json.decode(r.value() or b"") for r in written["dead letters"]]
    failed = Counter(i for i, x in enumerate(xs) if isinstance(x, int) and x < 0)
    assert Counter(v["row"]["id"] if "row" in v else v["offset"] for v in letters) == failed


def test_skipped_records_are_counted() -> None:
    app = app_of(lambda s: s.map(picky, on_error=fk.Skip()).select("id"), source=fk.Skip())
    put(app, 1, b"{", -1, b"")
    out = run(app)
    assert (out.skipped, out.dead, values(app)) == (3, 0, [{"id": 0}])


def test_a_source_may_stop_at_what_does_not_decode() -> None:
    app = app_of(lambda s: s, flow=fk.Stop())
    put(app, 1, b"{")
    with pytest.raises(SourceError, match="a record does not decode: not JSON") as caught:
        run(app)
    assert "source 'in' (" in caught.value.where
    assert caught.value.where.endswith("topic in, partition 0, offset 1")


def test_too_many_failures_stop_the_app_and_nothing_of_the_step_is_done() -> None:
    app = app_of(lambda s: s.map(picky, on_error=fk.DeadLetter(stop_above="0.03%")).select("id"))
    put(app, -1, 1, 1, -1)
    run(app)
    put(app, -1)
    run(app)
    put(app, *[1] * 9_994)
    run(app)
    assert len(values(app, LETTERS)) == 3
    put(app, 1, -7)  # the first is 10,000 records ago, so these are the last 10,000 with three that failed
    run(app)
    put(app, -8)
    with pytest.raises(UserCodeError, match=r"4 of the last 10,000 failed.*for instance: ValueError: no -8") as caught:
        run(app)
    assert "map 'picky' (" in caught.value.where
    assert caught.value.where.endswith("partition 0, offset 10001")
    assert "nothing of this step is committed" in caught.value.hint
    assert len(values(app, LETTERS)) == 4


def test_too_many_records_that_do_not_decode_stop_the_app() -> None:
    app = app_of(lambda s: s.select("id"), source=fk.DeadLetter(stop_above="0%"))
    put(app, 1, b"{")
    with pytest.raises(SourceError, match="1 of the last 2 failed"):
        run(app)
    assert values(app) == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda s: s.map(picky, on_error=fk.Stop()).errors.sink("e", value=fk.Json()), "has no stream of errors"),
        (lambda s: s.repartition("x").errors, "no failure here lets the app continue"),
        (lambda s: s.map(picky, on_error="skip"), "is not a way to handle errors"),
        (lambda s: s.map(picky, on_error=fk.DeadLetter(stop_above="1")), "is not a share"),
        (lambda s: s.map(picky, on_error=fk.DeadLetter(stop_above=1.5)), "is not a share"),
        (lambda s: s.map(picky, on_error=fk.DeadLetter("a topic")), "is not a valid name for a topic"),
        (lambda s: s.map(picky, on_error=fk.DeadLetter("in")).sink("e", value=fk.Json()), "which source 'in' reads"),
        (lambda s: s.errors.with_regime(fk.Batch()).sink("e", value=fk.Json()), "has no streams of errors"),
    ],
)
def test_what_cannot_be_is_said_at_once(wrong: Any, says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        app_of(lambda s: wrong(s) and None)
