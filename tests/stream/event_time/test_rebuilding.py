"""What is rebuilt behind a watermark: the same rows are late, and no window is final twice, or never."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.stream.test_shadow import shadow, shadow_stage

import falkirk as fk
from falkirk.errors import ConfigError, StateError
from falkirk.runtime.worker.reading import second_reading
from falkirk.stream.evolution import rebuilding
from falkirk.stream.operators.windows import window_group
from falkirk.testing.dying import step_dying
from falkirk.testing.process import Ending

Row = dict[str, Any]
PAID = fk.Json({"user": fk.String, "at": fk.Int64, "euros": fk.Int64})
START = 1_000_000_000
SINKS = ("sums", "final", "late")


def paid_rows(seed: int, count: int = 60, begin: int = 0) -> list[Row]:
    """Rows whose times go on, and some that are late."""
    dice = random.Random(seed)
    return [
        {"user": dice.choice("abcd"), "at": START + begin + 5 * i - dice.choice((0, 3, 20, 90)), "euros": i}
        for i in range(count)
    ]


ROWS, MORE = paid_rows(1), paid_rows(2, begin=300)


def windows(version: int, least: int = 0, late: str = "40ms", idle: str | None = None, regime: Any = None) -> fk.Flow:
    """What each user has paid in a window, of what is at least so much."""
    flow = fk.Flow("app", **({} if regime is None else {"regime": regime}))
    rows = flow.source("paid", key="user", value=PAID, time="at", late=late, idle=idle)
    made = rows.filter(fk.col("euros") >= least).group_by("user", fk.tumbling("at", "50ms"), id="sums", version=version)
    sums = made.agg(total=fk.sum("euros"), n=fk.len())
    sums.sink("sums", key=["user", "window_start"], value=fk.Json())
    sums.final().sink("final", key=["user", "window_start"], value=fk.Json())
    rows.late.sink("late", key="user", value=fk.Json())
    return flow


def started(flow: fk.Flow, rows: list[Row] = ROWS) -> fk.testing.App:
    app = fk.testing.App(flow, partitions=2)
    app.send("paid", rows)
    app.run()
    return app


def silent(flow: fk.Flow) -> fk.testing.App:
    """Its partitions are silent for a while: those with `idle=` become idle, and some rows come late after that."""
    app = started(flow, ROWS[:40])
    app.advance("2m")
    app.run()
    return more(app, ROWS[40:])


def more(app: fk.testing.App, rows: list[Row] = MORE) -> fk.testing.App:
    app.send("paid", rows)
    app.run()
    return app


def rows_in(app: fk.testing.App, sink: str) -> Counter[str]:
    return Counter(str(r.value) for r in app.sinks[sink].records)


def assert_as_always(app: fk.testing.App, whole: fk.testing.App) -> None:
    """The app has said and kept what the code of now would have."""
    for sink in ("final", "late"):
        assert rows_in(app, sink) == rows_in(whole, sink), sink
    assert app.sinks["sums"].table == whole.sinks["sums"].table
    assert app.state("sums").sort("user").equals(whole.state("sums").sort("user"))


@pytest.fixture(autouse=True)
def little_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilding, "ROWS_A_STEP", 3)
    monkeypatch.setattr(rebuilding, "LOOKED_A_STEP", 8)
    monkeypatch.setattr(second_reading, "FIRST", 4)
    monkeypatch.setattr(second_reading, "MOST_RECORDS", 4)


@pytest.mark.parametrize("regime", [fk.EagerCheckpoint(), fk.LazyCheckpoint()], ids=lambda regime: regime.kind)
@pytest.mark.parametrize("idle", [None, "1m"])
def test_windows_that_are_rebuilt_with_the_same_code_change_nothing(idle: str | None, regime: Any) -> None:
    app = silent(windows(1, idle=idle, regime=regime))
    told = {sink: len(app.sinks[sink].records) for sink in SINKS}
    state = app.state("sums").sort("user", "window_start")
    app.change(windows(2, idle=idle, regime=regime), rebuild=["sums"])
    app.run()
    assert {sink: len(app.sinks[sink].records) for sink in SINKS} == told
    assert app.state("sums").sort("user", "window_start").equals(state)
    assert_as_always(more(app), more(silent(windows(1, idle=idle))))


def test_open_windows_are_published_again_and_complete_ones_stay() -> None:
    app = started(windows(1, least=30))
    final = app.sinks["final"].records[:]
    app.change(windows(2), rebuild=["sums"])
    app.run()
    whole = started(windows(2))
    complete = finals(whole)
    still = whole.sinks["sums"].table.keys() - complete.keys()
    assert still
    assert app.sinks["final"].records == final
    assert app.state("sums").sort("user", "window_start").equals(whole.state("sums").sort("user", "window_start"))
    assert {key: app.sinks["sums"].table.get(key) for key in still} == {
        key: whole.sinks["sums"].table[key] for key in still
    }
    more(app), more(whole)
    since = [str(r.value) for r in app.sinks["final"].records[len(final) :]]
    assert Counter(since) == Counter(str(row) for key, row in finals(whole).items() if key not in complete)


def test_windows_that_there_should_not_have_been_are_taken_back() -> None:
    app = started(windows(1))
    complete = finals(app)
    app.change(windows(2, least=1_000), rebuild=["sums"])
    app.run()
    assert app.sinks["sums"].table.keys() == complete.keys()
    assert app.state("sums").is_empty()


@pytest.mark.slow
@pytest.mark.parametrize("steps", range(0, 40, 3))
def test_windows_that_were_being_completed_are_final_once(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The app ends amid the steps that complete windows, one group each."""
    monkeypatch.setattr(window_group, "AT_ONCE", 1)
    app = fk.testing.App(windows(1), partitions=2)
    app.send("paid", ROWS)
    for _ in range(steps):
        app.step()
    app.change(windows(2), rebuild=["sums"])
    app.run()
    assert_as_always(more(app), more(started(windows(1))))


@pytest.mark.parametrize(("before", "after"), [("40ms", "150ms"), ("150ms", "10ms")])
def test_no_window_is_final_twice_or_never_when_late_changes(before: str, after: str) -> None:
    app = started(windows(1, late=before))
    complete = finals(app)
    app.change(windows(2, late=after), rebuild=["sums"])
    app.run()
    assert finals(app) == complete
    assert complete.keys().isdisjoint(app.state("sums").select("user", "window_start").rows())
    more(app)
    told = [(r.value["user"], r.value["window_start"]) for r in app.sinks["final"].records]
    assert len(told) == len(set(told))
    assert {key for key in app.sinks["sums"].table if key[1] + 50 <= START + 300} <= set(told)


@pytest.mark.slow
@pytest.mark.parametrize("ending", Ending)
def test_nothing_is_lost_or_told_twice_however_the_worker_dies(ending: Ending, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_group, "AT_ONCE", 3)

    def through(step: Callable[[fk.testing.App], bool]) -> fk.testing.App:
        app = fk.testing.App(windows(1, least=30), partitions=2)
        app.send("paid", ROWS)
        while step(app):
            pass
        app.change(windows(2), rebuild=["sums"])
        app.send("paid", MORE)
        while step(app):
            pass
        return app

    calm = through(lambda app: app.step())
    crashed = through(lambda app: step_dying(app, ending, before=ending is Ending.UNSEEN))
    for sink in SINKS:
        assert [r.value for r in crashed.sinks[sink].records] == [r.value for r in calm.sinks[sink].records]
    assert crashed.state("sums").equals(calm.state("sums"))


def counted(version: int, kind: str, late: str | None = "40ms", idle: str | None = None) -> fk.Flow:
    """Other operators with a watermark, and one behind each that tells what they gave."""
    flow = fk.Flow("app")
    rows = flow.source("paid", key="user", value=PAID, time="at", late=late, idle=idle)
    if kind == "group":
        rows.group_by("user", id="o", version=version).agg(n=fk.len(), x=fk.sum("euros")).sink(
            "o", key="user", value=fk.Json()
        )
    elif kind == "deduplicate":
        rows.deduplicate("user", within="30ms", id="o", version=version).sink("o", value=fk.Json())
    elif kind == "interval join":
        other = rows.filter(fk.col("euros") > 9).select("user", "at", there="euros")
        rows.join(other, on="user", within=("-20ms", "20ms"), id="o", version=version).sink("o", value=fk.Json())
    elif kind == "window behind a lookup":
        names = flow.table("names", key="user", value=fk.Json({"user": fk.String, "name": fk.String}))
        named = rows.lookup(names, columns=["name"], id="named")
        windowed = named.group_by("user", fk.tumbling("at", "50ms"), id="o", version=version)
        windowed.agg(n=fk.len(), name=fk.max("name")).final().sink("o", value=fk.Json())
    elif kind == "exchanged":
        rows.group_by("euros", fk.tumbling("at", "50ms"), id="o", version=version).agg(n=fk.len()).final().sink(
            "o", value=fk.Json()
        )
    return flow


@pytest.mark.parametrize("kind", ["group", "deduplicate", "interval join", "window behind a lookup", "exchanged"])
def test_other_operators_are_rebuilt_with_the_rows_that_were_not_late(kind: str) -> None:
    app, whole = started(counted(1, kind)), started(counted(1, kind))
    app.change(counted(2, kind), rebuild=["o"])
    app.run()
    more(app), more(whole)
    assert rows_in(app, "o") == rows_in(whole, "o")


def test_a_source_with_times_and_no_watermark_is_read_again() -> None:
    """The clock by which its times are checked is not that of the records, which may have none."""
    app = started(counted(1, "group", late=None))
    app.change(counted(2, "group", late=None), rebuild=["o"])
    app.run()
    assert rows_in(more(app), "o") == rows_in(more(started(counted(1, "group", late=None))), "o")


def test_late_rows_are_left_out_beside_the_app_too() -> None:
    app, whole = started(counted(1, "group")), started(counted(1, "group"))
    shadow(app, counted(2, "group"), "o")
    more(app, MORE[:20]), more(whole, MORE[:20])
    app.change(counted(2, "group"), rebuild=["o"])
    app.run()
    more(app, MORE[20:]), more(whole, MORE[20:])
    assert rows_in(app, "o") == rows_in(whole, "o")


def several(version: int) -> fk.Flow:
    flow = fk.Flow("app")
    rows = flow.source("both", topic=["paid", "owed"], key="user", value=PAID, time="at", late="1s")
    rows.group_by("user", id="o", version=version).agg(n=fk.len()).sink("o", key="user", value=fk.Json())
    return flow


def sessions(version: int) -> fk.Flow:
    flow = fk.Flow("app")
    rows = flow.source("paid", key="user", value=PAID, time="at", late="1s")
    rows.group_by("user", fk.session("at", gap="5ms"), id="o", version=version).agg(n=fk.len()).sink(
        "o", key=["user", "window_start"], value=fk.Json()
    )
    return flow


def nested(version: int) -> fk.Flow:
    flow = fk.Flow("app")
    rows = flow.source("paid", key="user", value=PAID, time="at", late="1s")
    inner = rows.group_by("user", fk.tumbling("at", "5ms"), id="inner", version=version).agg(n=fk.len())
    outer = (
        inner.final()
        .select("user", "n", end="window_end")
        .group_by("user", fk.tumbling("end", "50ms"), id="o", version=version)
    )
    outer.agg(n=fk.sum("n")).sink("o", key=["user", "window_start"], value=fk.Json())
    return flow


def joined(version: int) -> fk.Flow:
    flow = fk.Flow("app")
    rows = flow.source("paid", key="user", value=PAID)
    pairs = rows.join(rows.select("user", there="euros"), on="user", how="left", id="o", version=version)
    pairs.group_by("user", id="behind").agg(n=fk.len()).sink("o", key="user", value=fk.Json())
    return flow


@pytest.mark.parametrize(
    ("flow", "ids", "words"),
    [
        (several, ["o"], "reads several topics"),
        (lambda version: counted(version, "exchanged", idle="1m"), ["o"], "has idle="),
        (sessions, ["o"], "which of its sessions were final"),
        (nested, ["inner", "o"], "its times come from 'inner'"),
        (joined, ["o"], "does not know which of its rows a rebuild changes"),
    ],
)
def test_what_cannot_be_exact_is_refused_and_the_old_flow_goes_on(
    flow: Callable[[int], fk.Flow], ids: list[str], words: str
) -> None:
    app = fk.testing.App(flow(1))
    app.send(app._cluster.tasks[0].inputs[0].place.topic, ROWS[:5])
    app.run()
    with pytest.raises(StateError, match=words) as raised:
        app.change(flow(2), rebuild=ids)
    assert raised.value.hint
    app.change(flow(1))
    app.run()


def test_windows_are_not_rebuilt_beside_the_app() -> None:
    with pytest.raises(ConfigError, match="which of its windows are final") as raised:
        shadow_stage(started(windows(1)), windows(2), "sums")
    assert "in place" in (raised.value.hint or "")


def sized(size: str, *, final: bool = False, **more: Any) -> fk.Flow:
    """Windows of a size, whose state has the size in it."""
    flow = fk.Flow("app")
    rows = flow.source("paid", key="user", value=PAID, time="at", late="40ms")
    made = rows.group_by("user", fk.tumbling("at", size), id="sums", **more).agg(n=fk.len())
    made.sink("sums", key=["user", "window_start"], value=fk.Json())
    if final:
        made.final().sink("final", value=fk.Json())
    return flow


def test_windows_of_another_size_hold_all_rows_of_theirs() -> None:
    app, whole = started(sized("50ms")), started(sized("100ms"))
    app.change(sized("100ms"), rebuild=["sums"])
    app.run()
    assert app.state("sums").sort("user", "window_start").equals(whole.state("sums").sort("user", "window_start"))
    more(app), more(whole)
    seen = {key: row for key, row in app.sinks["sums"].table.items() if row["window_end"] - row["window_start"] == 100}
    assert seen
    assert seen.items() <= whole.sinks["sums"].table.items()


def test_windows_of_another_size_are_refused_where_the_old_ones_would_have_to_be_final() -> None:
    app = started(sized("50ms", final=True))
    with pytest.raises(StateError, match="has other columns"):
        app.change(sized("100ms", final=True), rebuild=["sums"])


def test_open_windows_go_on_in_another_schema() -> None:
    """By migrate=: a new aggregate begins empty, and each window is final once."""

    def flow(version: int, **agg: Any) -> fk.Flow:
        flow = fk.Flow("app")
        rows = flow.source("paid", key="user", value=PAID, time="at", late="40ms")
        was = fk.From(1, agg={"n": fk.len()})
        group = rows.group_by(
            "user", fk.tumbling("at", "50ms"), id="sums", version=version, migrate=was if version > 1 else ()
        )
        group.agg(n=fk.len(), **agg).final().sink("final", value=fk.Json())
        return flow

    app, whole = started(flow(1)), more(started(flow(1)))
    app.change(flow(2, euros=fk.sum("euros")))
    more(app)
    told = [(r.value["user"], r.value["window_start"], r.value["n"]) for r in app.sinks["final"].records]
    assert sorted(told) == sorted(
        (r.value["user"], r.value["window_start"], r.value["n"]) for r in whole.sinks["final"].records
    )


def finals_of(records: Any) -> dict[Any, Row]:
    return {(r.value["user"], r.value["window_start"]): r.value for r in records}


def finals(app: fk.testing.App) -> dict[Any, Row]:
    return finals_of(app.sinks["final"].records)
