"""Windows of so many rows, against DuckDB's row_number."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.duck import database

import falkirk as fk
from falkirk.errors import DefinitionError
from falkirk.stream.flow.explain import explain

VALUE = fk.Json({"id": fk.Int64, "g": fk.String, "x": fk.Int64})
KEY = ["g", "window_start"]
Rows = list[tuple[str | None, int]]
rows = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(-3, 3)), max_size=30)


class Furthest(fk.Aggregate):
    """The greatest absolute value."""

    state = {"most": int}  # noqa: RUF012
    returns = int

    def add(self, state: Any, values: list[int]) -> dict[str, Any]:
        return {"most": max([(state or {"most": 0})["most"], *map(abs, values)])}

    def result(self, state: Any) -> int:
        return int(state["most"])


def flow_of(window: Any, *, regime: Any = None, key: str | None = None) -> fk.Flow:
    """Results as they change, and once when they are complete."""
    flow = fk.Flow("counts", regime=regime)
    found = flow.source("rows", key=key, value=VALUE).group_by("g", window, id="w").agg(
        n=fk.len(), first=fk.min("id"), last=fk.max("id"), total=fk.sum("x"), kinds=fk.n_unique("x"), furthest=Furthest("x")
    )  # fmt: skip
    found.sink("changes", key=KEY, value=fk.Json())
    found.final().sink("final", value=fk.Json())
    return flow


def as_rows(given: Rows, first: int = 0) -> list[dict[str, Any]]:
    return [{"id": first + i, "g": g, "x": x} for i, (g, x) in enumerate(given)]


def by_sql(given: Rows, size: int, every: int, *, complete: bool = False) -> Counter[tuple[Any, ...]]:
    """What SQL says of these rows."""
    frame = pl.DataFrame(as_rows(given), {"id": pl.Int64, "g": pl.String, "x": pl.Int64})
    places = f"range(0, {-(-size // every)}) as r(k)"
    query = f"""
        with numbered as (select *, row_number() over (partition by g order by id) - 1 as nr from frame),
            held as (select *, nr // {every} * {every} - k * {every} as b from numbered, {places})
        select g, b, b + {size}, count(*), min(id), max(id), sum(x)::bigint, count(distinct x), max(abs(x))
        from held where b >= 0 and nr < b + {size} group by g, b {"having count(*) = " + str(size) if complete else ""}
    """
    with database(frame=frame) as db:
        return Counter(db.execute(query).fetchall())


def values(found: Any) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in found)


@given(given=rows, cuts=st.lists(st.integers(1, 9), max_size=4), size=st.integers(1, 6), every=st.integers(1, 6))
@settings(max_examples=20, deadline=None)
def test_after_each_step_windows_are_what_sql_says_of_the_rows_so_far(
    given: Rows, cuts: list[int], size: int, every: int
) -> None:
    every = min(every, size)
    app, done = fk.testing.App(flow_of(fk.count_window(size, every))), 0
    for cut in (*cuts, 30):
        app.send("rows", as_rows(given[done : done + cut], done))
        app.run()
        done += cut
        due, complete = by_sql(given[:done], size, every), by_sql(given[:done], size, every, complete=True)
        assert values(app.sinks["changes"].table.values()) == due
        assert None not in app.sinks["changes"].rows, "a window that is complete is not taken back"
        assert values(app.sinks["final"].rows) == complete
        assert values(app.state("w").select("g", "window_start").to_dicts()) == Counter(
            window[:2] for window in (due - complete)
        )


@given(given=rows, size=st.integers(1, 5), cut=st.integers(1, 7))
@settings(max_examples=20, deadline=None)
def test_complete_windows_come_in_the_order_of_their_last_rows_however_steps_are_cut(
    given: Rows, size: int, cut: int
) -> None:
    found = []
    for step_rows in (cut, 100):
        app = fk.testing.App(flow_of(fk.count_window(size)), step_rows=step_rows)
        app.send("rows", as_rows(given))
        app.run()
        found.append(app.sinks["final"].rows)
    assert found[0] == found[1]
    lasts = [row["last"] for row in found[0] if row]
    assert lasts == sorted(lasts)


@pytest.mark.slow
@pytest.mark.parametrize(("regime", "key"), [(fk.EagerCheckpoint(), None), (fk.LazyCheckpoint(), "g")])
def test_windows_are_the_same_after_crashes_everywhere(regime: Any, key: str | None) -> None:
    given: Rows = [("ab"[i % 3 == 0], i % 4) for i in range(11)]
    flow = flow_of(fk.count_window(4, every=2), regime=regime, key=key)
    app = fk.testing.run(flow, {"rows": as_rows(given)}, crash_at="everywhere", step_rows=2)
    assert values(app.sinks["changes"].table.values()) == by_sql(given, 4, 2)
    assert values(app.sinks["final"].rows) == by_sql(given, 4, 2, complete=True)


def test_of_complete_windows_only_the_count_of_each_group_stays() -> None:
    app = fk.testing.App(flow_of(fk.count_window(5)))
    app.send("rows", as_rows([("ab"[i % 2], i) for i in range(40)]))
    app.run()
    assert len(app.sinks["final"].rows) == 8
    (task,) = [task for task in app._worker().tasks if task.bound.stage.id == "w"]
    assert len(list(task.owned.opened().scan(b"", b"\xff" * 8))) == 2
    app.send("rows", as_rows([("a", 0)], 40))
    app.run()
    assert app.state("w").select("g", "window_start", "window_end").rows() == [("a", 20, 25)]


def test_explain_says_what_is_kept() -> None:
    assert (
        "furthest = Furthest v1; state placed by g, in windows of 1,000 rows every 10, until one is full; the count of each "
        "group is kept for ever"
    ) in explain(flow_of(fk.count_window(1_000, every=10)))


def test_what_can_be_known_is_refused_when_the_flow_is_built() -> None:
    rows = fk.Flow("x").source("rows", value=VALUE)
    window = fk.count_window(10)
    with pytest.raises(DefinitionError, match="rows here can be taken back"):
        rows.group_by("g", "x").agg(n=fk.len()).group_by("g", window)
    with pytest.raises(DefinitionError, match="here is none"):
        rows.group_by(window)
    with pytest.raises(DefinitionError, match="one kind of windows"):
        rows.group_by("g", window, fk.tumbling("x", "1d"))
    with pytest.raises(DefinitionError, match="there is already a column 'window_end'"):
        rows.with_columns(window_end=fk.lit(1)).group_by("g", window)
    with pytest.raises(DefinitionError, match="'window_end' is already a column"):
        rows.group_by("g", window).agg(window_end=fk.len())
    with pytest.raises(DefinitionError, match="have numbers and no time"):
        rows.group_by("g", window).agg(n=fk.len()).final(time="window_start")
    with pytest.raises(DefinitionError, match="the rows of windows have no top"):
        rows.group_by("g", window).top_k(3, by="id")
    with pytest.raises(DefinitionError, match="windows of so many rows cannot be migrated"):
        rows.group_by("g", window, migrate=[fk.From(1, by=lambda row: row)]).agg(n=fk.len())
    with pytest.raises(DefinitionError, match="size=0 is not a number of rows"):
        fk.count_window(0)
    with pytest.raises(DefinitionError, match="every=True is not a number of rows"):
        fk.count_window(3, every=True)
    with pytest.raises(DefinitionError, match="every=4 is more than size=3"):
        fk.count_window(3, every=4)
    with pytest.raises(DefinitionError, match=r"each row would be in 50,000 windows, and 20,000 is the limit"):
        fk.count_window(100_000, every=2)
