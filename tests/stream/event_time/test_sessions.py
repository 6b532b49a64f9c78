"""Sessions, against DuckDB."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.duck import database
from tests.stream.event_time.test_event_time import Sent, expected
from tests.stream.event_time.test_windows import KEY, VALUE, rows_of, sent_to, totals, windows_of_windows
from tests.stream.operators.against import Change, Driven, changes

import falkirk as fk
from falkirk.errors import DefinitionError, StateError
from falkirk.stream.flow.explain import explain
from falkirk.stream.operators.windows import session_step
from falkirk.stream.operators.windows.session_step import check_open

SCHEMA = {"g": fk.Int64, "t": fk.Int64, "x": fk.Float64}
row = st.tuples(st.none() | st.integers(0, 1), st.none() | st.integers(0, 30), st.integers(-5, 5).map(lambda n: n / 8))

SESSIONIZED = """
    marked as (select *, t - lag(t) over (partition by g order by t) > {gap} as new from {table} where t is not null),
    numbered as (select *, sum(coalesce(new, true)::int) over (partition by g order by t) as s from marked)
"""


class Widest(fk.Aggregate):
    """The greatest absolute value, and how many there are: states of two groups cannot become one."""

    state = {"most": float, "n": int}  # noqa: RUF012
    returns = str

    def add(self, state: Any, values: list[float]) -> dict[str, Any]:
        state = state or {"most": 0.0, "n": 0}
        return {"most": max([state["most"], *map(abs, values)]), "n": state["n"] + len(values)}

    def result(self, state: Any) -> str:
        return f"{state['most']} of {state['n']}"


class Merging(Widest):
    """They can."""

    def merge(self, state: Any, other: Any) -> dict[str, Any]:
        return {"most": max(state["most"], other["most"]), "n": state["n"] + other["n"]}


AGGREGATES: dict[str, Any] = {
    "n": fk.len(),
    "total": fk.sum("x"),
    "least": fk.min("x"),
    "kinds": fk.n_unique("x"),
    "var": fk.var("x"),
    "values": fk.collect("x"),
    "last": fk.last("x", by="t"),
}
SQL = """count(*), sum(x), min(x), count(distinct x), var_samp(x), list(x order by x),
    max(x) filter (t = last_t), max(abs(x)) || ' of ' || count(*)"""


@pytest.mark.parametrize("widest", [Widest, Merging])
@pytest.mark.parametrize("retract", [False, True])
@settings(max_examples=12, deadline=None)
@given(steps=changes(row), gap=st.integers(1, 6))
@example(
    [[((0, 2, 0.0), 1)], [((0, 0, 0.0), 1), ((0, 2, 0.0), -1)]], 1
)  # two spans meet one session, and one touches it
def test_sessions_are_what_sql_says_of_the_rows_that_are_left(
    widest: type[Widest], retract: bool, steps: list[Change], gap: int
) -> None:
    aggregates = {**AGGREGATES, "widest": widest("x")}
    task = Driven(
        SCHEMA, lambda s: s.group_by("g", fk.session("t", f"{gap}ms"), id="w").agg(**aggregates), retract=retract
    )
    query = f"""
        with {SESSIONIZED.format(gap=gap, table="a")},
            dated as (select *, max(t) over (partition by g, s) as last_t from numbered)
        select g, min(t), max(t) + {gap}, {SQL} from dated group by g, s
    """
    for change in steps:
        assert task.step(change) == task.wanted(query)


def by_sql(sent: Sent, late: int, gap: int) -> list[tuple[Any, ...]]:
    """What SQL says of the rows that are not late."""
    lost = set(expected(sent, late))
    kept = [(i, "ab"[i % 2], t) for i, (_, t) in enumerate(sent) if i not in lost]
    frame = pl.DataFrame(kept, {"id": pl.Int64, "g": pl.String, "t": pl.Int64}, orient="row")
    query = f"""
        with {SESSIONIZED.format(gap=gap, table="frame")}
        select g, min(t), max(t) + {gap}, count(*), sum(id)::bigint from numbered group by g, s order by 3, 1, 2
    """
    with database(frame=frame) as db:
        return db.execute(query).fetchall()


def table_of_sessions(app: fk.testing.App) -> list[tuple[Any, ...]]:
    """Sessions that became one leave a tombstone."""
    found = [tuple(row.values()) for row in app.sinks["changes"].table.values()]
    return sorted(found, key=lambda row: (row[2], row[0], row[1]))


sent = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 100)), max_size=25)


@given(sent=sent, gap=st.integers(1, 20), late=st.integers(0, 40), rows=st.integers(1, 6))
@settings(max_examples=25, deadline=None)
def test_each_session_is_final_once_when_no_row_can_reach_it(sent: Sent, gap: int, late: int, rows: int) -> None:
    app = fk.testing.App(totals(fk.session("at", f"{gap}ms"), late), partitions=3, step_rows=rows)
    sent_to(app, sent)
    app.run()
    due = by_sql(sent, late, gap)
    assert table_of_sessions(app) == due
    reached = [max((at for p, at in sent if p == q), default=None) for q in range(3)]
    watermark = None if None in reached else min(at or 0 for at in reached) - late
    complete = [row for row in due if watermark is not None and row[2] < watermark]
    assert sorted(rows_of(app, "final")) == sorted(complete)
    assert app.state("w").height == len(due) - len(complete)


@given(sent=sent, cut=st.integers(0, 25), gap=st.integers(1, 20))
@settings(max_examples=20, deadline=None)
def test_after_each_step_the_sessions_are_what_sql_says_of_the_rows_so_far(sent: Sent, cut: int, gap: int) -> None:
    app = fk.testing.App(totals(fk.session("at", f"{gap}ms"), 30), partitions=3)
    for first, some in ((0, sent[:cut]), (cut, sent[cut:])):
        sent_to(app, some, first)
        app.run()
        assert table_of_sessions(app) == by_sql(sent[: first + len(some)], 30, gap)


@given(sent=sent, late=st.integers(1, 30), rows=st.integers(1, 6), at_once=st.sampled_from([1, 2, 20_000]))
@settings(max_examples=15, deadline=None)
def test_windows_of_sessions_are_final_when_no_session_can_come(sent: Sent, late: int, rows: int, at_once: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(session_step, "AT_ONCE", at_once)
        app = fk.testing.App(
            windows_of_windows(fk.session("at", "5ms"), "window_end", late), partitions=3, step_rows=rows
        )
        sent_to(app, sent)
        app.run()
    reached = [max((at for p, at in sent if p == q), default=-1_000) for q in range(3)]
    watermark = min(reached) - late
    due: dict[int, list[int]] = {}
    for _, _, end, n, _ in by_sql(sent, late, 5):
        if end < watermark:
            due.setdefault(end // 20 * 20, []).append(n)
    found = {start: [row["windows"], row["n"]] for start, row in app.sinks["changes"].table.items()}
    assert found == {start: [len(some), sum(some)] for start, some in due.items()}
    final = sorted(row["window_start"] for row in app.sinks["final"].rows if row)
    assert final == sorted(start for start in due if start + 20 <= watermark - 1)


@pytest.mark.slow
@pytest.mark.parametrize("regime", [fk.EagerCheckpoint(), fk.LazyCheckpoint()])
def test_sessions_are_the_same_after_crashes_everywhere(regime: Any) -> None:
    times = [5, 14, 3, 22, 35, 28, 61, 12, 90]
    rows = [{"id": i, "g": "ab"[i % 2], "at": at} for i, at in enumerate(times)]
    flow = totals(fk.session("at", "10ms"), 25, regime=regime, key="g")
    app = fk.testing.run(flow, {"rows": rows}, crash_at="everywhere", step_rows=2)
    due = by_sql([(0, at) for at in times], 25, 10)
    assert table_of_sessions(app) == due
    assert rows_of(app, "final") == [row for row in due if row[2] < 65]


@pytest.mark.parametrize("aggregate", [fk.n_unique("id"), Widest(fk.col("id").cast(fk.Float64))])
@pytest.mark.parametrize("at_once", [7, 20_000])
def test_all_state_of_complete_sessions_goes(monkeypatch: pytest.MonkeyPatch, at_once: int, aggregate: Any) -> None:
    monkeypatch.setattr(session_step, "AT_ONCE", at_once)
    flow = fk.Flow("f")
    rows = flow.source("rows", key=None, value=VALUE, time="at", late="1s")
    found = rows.group_by("g", fk.session("at", "3ms"), id="w").agg(n=fk.len(), x=aggregate)
    found.final().sink("final", value=fk.Json())
    app = fk.testing.App(flow)
    sent_to(app, [(0, 10 * (at // 4) + 1) for at in range(1, 101)])
    app.run()
    assert app.state("w").height == 51
    sent_to(app, [(0, 5_000)], 100)
    app.run()
    ends = [row["window_end"] for row in app.sinks["final"].rows if row]
    assert (len(ends), ends) == (51, sorted(ends))
    (task,) = [task for task in app._worker().tasks if task.bound.stage.id == "w"]
    keys = [key for key, _ in task.owned.opened().scan(b"", b"\xff" * 8)]
    # What is left: the last session and its end, twice, the rows of an aggregate that does not merge, and the watermark.
    assert len(keys) == 4 + isinstance(aggregate, Widest)


def test_a_row_between_two_sessions_makes_them_one_and_tells_their_sink() -> None:
    flow = fk.Flow("f")
    rows = flow.source("rows", value=VALUE)
    found = rows.group_by("g", fk.session("at", "10ms"), id="w").agg(n=fk.len())
    found.sink("out", key=KEY, value=fk.Json())
    app = fk.testing.run(flow, {"rows": [{"g": "a", "at": at} for at in (0, 20, None, 10)]}, step_rows=1)
    assert app.sinks["out"].rows == [
        {"g": "a", "window_start": 0, "window_end": 10, "n": 1},
        {"g": "a", "window_start": 20, "window_end": 30, "n": 1},
        {"g": "a", "window_start": 0, "window_end": 30, "n": 3},
        None,
    ]
    assert app.state("w").to_dicts() == [{"g": "a", "window_end": 30, "window_start": 0, "n.rows": 3}]


def test_explain_says_what_sessions_keep() -> None:
    flow = fk.Flow("x")
    rows = flow.source("rows", value=VALUE, time="at", late="90s")
    found = rows.group_by("g", fk.session("at", "30m"), id="v").agg(n=fk.len())
    found.sink("a", key=KEY, value=fk.Json())
    rows.group_by("g", fk.session("id", "1s"), id="w").agg(odd=Widest("id")).sink("b", key=KEY, value=fk.Json())
    found.select("g", at="window_start").group_by("g", fk.session("at", "1h"), id="y").agg(n=fk.len()).sink(
        "c", key=KEY, value=fk.Json()
    )
    text = explain(flow)
    assert "sessions of at, gap 30m → n = len; state placed by g, until the watermark is past window_end" in text
    assert "sessions of id, gap 1s → odd = Widest v1; state placed by g, for ever" in text
    assert "keeps the rows of sessions, because odd has no merge; a changed session is aggregated again" in text
    assert "keeps all rows, because rows can be taken back; a changed session is aggregated again" in text


def test_what_can_be_known_is_refused_when_the_flow_is_built() -> None:
    rows = fk.Flow("x").source("rows", value=VALUE, time="at", late="1s")
    session = fk.session("at", "1h")
    with pytest.raises(DefinitionError, match="here is none"):
        rows.group_by(session)
    with pytest.raises(DefinitionError, match="is the time of the sessions"):
        rows.group_by("g", "at", session)
    with pytest.raises(DefinitionError, match="one kind of windows"):
        rows.group_by("g", session, fk.tumbling("at", "1d"))
    with pytest.raises(DefinitionError, match="column 'g' is String"):
        rows.group_by("id", fk.session("g", "1h"))
    with pytest.raises(DefinitionError, match="there is already a column 'window_end'"):
        rows.with_columns(window_end=fk.lit(1)).group_by("g", session)
    with pytest.raises(DefinitionError, match="'window_end' is already a column"):
        rows.group_by("g", session).agg(window_end=fk.len())
    with pytest.raises(DefinitionError, match="the windows are of id"):
        rows.group_by("g", fk.session("id", "1h")).agg(n=fk.len()).final()
    with pytest.raises(DefinitionError, match="no top"):
        rows.group_by("g", session).top_k(3, by="id")
    with pytest.raises(DefinitionError, match="cannot be migrated"):
        rows.group_by("g", session, migrate=[fk.From(1, by=lambda row: row)]).agg(n=fk.len())
    with pytest.raises(DefinitionError, match="gap='0s'"):
        fk.session("at", "0s")


def test_a_row_for_a_complete_session_would_stop_the_app() -> None:
    check_open(pl.Series([11, 20]).to_numpy(), 5, 16, "")
    with pytest.raises(StateError, match="a row came with time 10"):
        check_open(pl.Series([20, 10]).to_numpy(), 5, 16, "")
