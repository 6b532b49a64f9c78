"""State that goes on in another schema: what it becomes, however often the worker dies on the way, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import polars as pl
import pytest

import falkirk as fk
from falkirk.errors import DefinitionError, StateError, UserCodeError
from falkirk.state.meta import META
from falkirk.stream.evolution import moving
from falkirk.testing.dying import step_dying
from falkirk.testing.process import Ending

Row = dict[str, Any]
PAID = fk.Json({"user": fk.String, "euros": fk.Int64})
USERS = "abcdefg"
ROWS = [{"user": USERS[i % 7], "euros": i} for i in range(21)]
SUMS = {user: sum(row["euros"] for row in ROWS if row["user"] == user) for user in USERS}


class Paid(fk.Process):
    """What each user has paid in all, told by a timer; `seen` counts rows, and is the same in all versions."""

    tables = {"seen": {"n": int}}  # noqa: RUF012
    returns = {"user": str, "paid": float, "n": int}  # noqa: RUF012

    def __init__(self, column: str, factor: float) -> None:
        self.column, self.factor = column, factor

    def on_row(self, row: Row, key: fk.KeyContext) -> None:
        key.put({self.column: (key.get() or {self.column: 0})[self.column] + row["euros"] * self.factor})
        key.put({"n": (key.get("seen") or {"n": 0})["n"] + 1}, "seen")
        key.set_timer(pl.Series([5000]).cast(pl.Duration("ms"))[0])

    def on_timer(self, timer: fk.Timer, key: fk.KeyContext) -> Row:
        seen, paid = key.get("seen"), key.get()
        assert seen is not None
        assert paid is not None
        return {"user": key.key[0], "paid": paid[self.column] / self.factor, "n": seen["n"]}


def in_cents(row: Row) -> Row:
    return {"cents": round(row["euros"] * 100)}


def in_mills(row: Row) -> Row:
    return {"mills": row["cents"] * 10}


V1 = fk.From(1, state={"euros": float}, tables=Paid.tables, by=in_cents)
V2 = fk.From(2, state={"cents": int}, tables=Paid.tables, by=in_mills)


def paid(version: int, *migrate: fk.From) -> fk.Flow:
    flow = fk.Flow("app")
    rows = flow.source("paid", key="user", value=PAID)
    column, kind, factor = [("euros", float, 1.0), ("cents", int, 100), ("mills", int, 1000)][version - 1]
    process = Paid(column, factor)
    rows.key_by("user").process(process, id="paid", state={column: kind}, version=version, migrate=migrate).sink(
        "told", key="user", value=fk.Json()
    )
    rows.group_by("user", id="plain").agg(n=fk.len()).sink("plain", key="user", value=fk.Json())
    return flow


def started(flow: fk.Flow, **inputs: Sequence[Row]) -> fk.testing.App:
    app = fk.testing.App(flow, partitions=2)
    for name, rows in inputs.items():
        app.send(name, rows)
    app.run()
    return app


def told(app: fk.testing.App) -> dict[str, float]:
    """What the timers tell, and that no user's rows were counted twice or lost."""
    app.run()
    app.advance("10s")
    app.run()
    table = app.sinks["told"].table
    counts = {user: row["n"] for user, row in app.sinks["plain"].table.items()}
    assert {user: row["n"] for user, row in table.items()} == counts
    return {user: row["paid"] for user, row in table.items()}


def rows_of(app: fk.testing.App) -> int:
    """How many rows all stores hold, marks apart."""
    scans = [task.owned.opened().scan(b"", META) for task in app._worker().tasks]
    return sum(len(key) > 3 for scan in scans for key, _ in scan)


@pytest.fixture
def little_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "ROWS_A_STEP", 5)
    monkeypatch.setattr(moving, "LOOKED_A_STEP", 8)


def test_rows_tables_and_timers_go_on_from_version_to_version() -> None:
    app = started(paid(1), paid=ROWS)
    app.change(paid(2, V1))
    app.send("paid", ROWS)
    app.run()
    assert {row["user"]: row["cents"] for row in app.state("paid").rows(named=True)} == {
        user: 200 * paid for user, paid in SUMS.items()
    }
    app.change(paid(3, V1, V2))
    assert told(app) == {user: 2 * paid for user, paid in SUMS.items()}


@pytest.mark.usefixtures("little_at_once")
@pytest.mark.parametrize("ending", Ending)
def test_nothing_is_moved_twice_or_lost_however_the_worker_dies(ending: Ending) -> None:
    flows = [paid(1), paid(2, V1), paid(3, V1, V2)]

    def through(step: Callable[[fk.testing.App], bool]) -> fk.testing.App:
        app = fk.testing.App(flows[0], partitions=2)
        for before, after in pairwise([*flows, flows[-1]]):
            app.send("paid", ROWS)
            while step(app):
                pass
            if after is not before:
                app.change(after)
        return app

    calm = through(lambda app: app.step())
    crashed = through(lambda app: step_dying(app, ending, before=ending is Ending.UNSEEN))
    assert calm.steps > 10
    assert crashed.steps == calm.steps
    for table in ("paid", "paid/seen", "plain"):
        assert crashed.state(table).equals(calm.state(table))
    assert rows_of(crashed) == 5 * len(USERS)  # of two tables, timers in two orders, and the plain count
    assert told(crashed) == told(calm) == {user: 3 * paid for user, paid in SUMS.items()}


@pytest.mark.usefixtures("little_at_once")
def test_what_one_change_has_not_moved_the_next_one_does() -> None:
    app = started(paid(1), paid=ROWS)
    app.change(paid(2, V1))
    app.send("paid", ROWS)
    assert app.step()
    with pytest.raises(StateError, match="has not been migrated yet"):
        app.state("paid")
    app.change(paid(3, V2))
    with pytest.raises(StateError, match="migrate= does not say how: paid v1"):
        app.run()
    app.change(paid(3, V1, V2))
    app.crash(host=True)
    assert told(app) == {user: 2 * paid for user, paid in SUMS.items()}
    app.change(paid(3, V2))  # all has been moved from the first by now
    app.send("paid", ROWS)
    assert told(app) == {user: 3 * paid for user, paid in SUMS.items()}


def test_a_step_that_moves_reads_nothing() -> None:
    app = started(paid(1), paid=ROWS)
    app.change(paid(2, V1))
    app.send("paid", ROWS)
    before = len(app.sinks["plain"].records)
    assert app.step()
    assert len(app.sinks["plain"].records) == before
    app.run()
    assert len(app.sinks["plain"].records) > before


@pytest.mark.usefixtures("little_at_once")
def test_back_to_the_version_before() -> None:
    app = started(paid(1), paid=ROWS)
    app.change(paid(2, V1))
    assert app.step()
    back = fk.From(2, state={"cents": int}, tables=Paid.tables, by=lambda row: {"euros": row["cents"] / 100})
    app.change(paid(1, back))
    assert told(app) == SUMS


def test_state_that_was_let_go_does_not_come_back() -> None:
    app = started(paid(1), paid=ROWS)
    app.change(paid(2, V1))
    with pytest.raises(StateError, match="the state's schema has changed") as raised:
        app.change(paid(3, V1))
    assert "migrate=" in (raised.value.hint or "")
    app.change(paid(3, V1), drop=["paid"])
    app.run()
    assert not app.state("paid").height
    app.crash(host=True)
    assert not app.state("paid/seen").height


def test_a_function_that_fails_is_mended_and_goes_on() -> None:
    app = started(paid(1), paid=ROWS)

    def fails(row: Row) -> Row:
        return {"cents": 1 // 0}

    for by, what in (
        (fails, "ZeroDivisionError"),
        (lambda row: {"cents": "much"}, "not a valid row of the next version: cents"),
    ):
        app.change(paid(2, fk.From(1, state={"euros": float}, tables=Paid.tables, by=by)))
        with pytest.raises(UserCodeError, match=what) as raised:
            app.run()
        assert "version 1, key" in (raised.value.where or "")
    app.change(paid(2, V1))
    assert told(app) == SUMS


def test_a_table_without_a_successor_goes_and_a_new_one_begins_empty() -> None:
    def flow(version: int, **given: Any) -> fk.Flow:
        flow = fk.Flow("app")

        def see(row: Row, key: fk.KeyContext) -> Row:
            for table in given["tables"]:
                key.put({"n": (key.get(table) or {"n": 0})["n"] + 1}, table)
            return row

        rows = flow.source("paid", key="user", value=PAID).key_by("user")
        rows.process(see, id="see", version=version, **given).sink("seen", key="user", value=fk.Json())
        return flow

    count = {"n": int}
    app = started(flow(1, tables={"a": count, "b": count}), paid=ROWS)
    app.change(flow(2, tables={"b": count, "c": count}, migrate=fk.From(1, tables={"a": count, "b": count})))
    app.run()
    assert set(app.state("see/b")["n"]) == {3}
    assert not app.state("see/c").height
    app.send("paid", ROWS)
    app.run()
    assert set(app.state("see/b")["n"]) == {6}
    assert set(app.state("see/c")["n"]) == {3}


# -- groups ------------------------------------------------------------------------------------------------------------


def grouped(agg: dict[str, Any], *migrate: fk.From, version: int = 1) -> fk.Flow:
    flow = fk.Flow("app")
    rows = flow.source("paid", key="user", value=PAID)
    rows.group_by("user", id="g", version=version, migrate=migrate).agg(**agg).sink("out", key="user", value=fk.Json())
    return flow


def test_aggregates_that_are_the_same_go_on_and_new_ones_begin_empty_or_with_what_is_said() -> None:
    app = started(grouped({"n": fk.len(), "top": fk.max("euros")}), paid=ROWS)
    before = fk.From(1, agg={"n": fk.len(), "top": fk.max("euros")}, by=lambda row: {"total.sum": 100 * row["n.rows"]})
    app.change(grouped({"total": fk.sum("euros"), "low": fk.min("euros"), "n": fk.len()}, before))
    app.send("paid", ROWS[:7])
    app.run()
    assert app.sinks["out"].table == {
        row["user"]: {"user": row["user"], "total": 300 + row["euros"], "low": row["euros"], "n": 4} for row in ROWS[:7]
    }


def test_an_aggregate_of_ones_own_goes_on_from_another_state() -> None:
    class Mean(fk.Aggregate):
        state = {"sum": int, "n": int}  # noqa: RUF012
        returns = float
        version = 2

        def add(self, state: Row | None, values: list[int]) -> Row:
            before = state or {"sum": 0, "n": 0}
            return {"sum": before["sum"] + sum(values), "n": before["n"] + len(values)}

        def result(self, state: Row) -> float:
            return float(state["sum"] / state["n"])

    class Before(Mean):
        state = {"mean": float, "n": int}  # noqa: RUF012
        version = 1

        def add(self, state: Row | None, values: list[int]) -> Row:
            before = state or {"mean": 0.0, "n": 0}
            n = before["n"] + len(values)
            return {"mean": (before["mean"] * before["n"] + sum(values)) / n, "n": n}

        def result(self, state: Row) -> float:
            return float(state["mean"])

    Before.__name__ = "Mean"  # as it was called then
    was = fk.From(
        1,
        agg={"mean": Before("euros")},
        by=lambda row: {"mean.sum": round(row["mean.mean"] * row["mean.n"]), "mean.n": row["mean.n"]},
    )
    app = started(grouped({"mean": Before("euros")}), paid=ROWS)
    app.change(grouped({"mean": Mean("euros")}, was, version=2))
    app.send("paid", ROWS)
    app.run()
    assert {user: row["mean"] for user, row in app.sinks["out"].table.items()} == {
        user: SUMS[user] / 3 for user in USERS
    }


def test_values_that_are_kept_for_rows_that_are_taken_back_go_on() -> None:
    def flow(*migrate: fk.From, **more: Any) -> fk.Flow:
        flow = fk.Flow("app")
        rows = flow.source("paid", key="user", value=PAID)
        sums = rows.group_by("user", id="sums").agg(total=fk.sum("euros"))
        low = sums.group_by("user", id="low", migrate=migrate)
        low.agg(low=fk.min("total"), n=fk.len(), **more).sink("low", key="user", value=fk.Json())
        return flow

    app = started(flow(), paid=[{"user": "a", "euros": 5}, {"user": "a", "euros": -2}])
    was = fk.From(1, agg={"low": fk.min("total"), "n": fk.len()})
    app.change(flow(was, total=fk.sum("total")))
    app.send("paid", [{"user": "a", "euros": 10}])
    app.run()
    assert app.state("low").rows(named=True)[0] | {"total.sum": None} == {
        "user": "a", "low.best": 13, "n.rows": 1, "total.sum": None,
    }  # fmt: skip
    with pytest.raises(DefinitionError, match="'top' needs every value of a group"):
        flow(was, top=fk.max("total"))


def test_a_new_count_of_values_has_none_of_the_values_that_were() -> None:
    paid = fk.Flow("app").source("paid", key="user", value=PAID)
    grouped = paid.group_by("user", version=2, migrate=fk.From(1, agg={"n": fk.len()}))
    with pytest.raises(DefinitionError, match="'kinds' needs every value of a group, and the version"):
        grouped.agg(n=fk.len(), kinds=fk.n_unique("euros"))


# -- what is refused ---------------------------------------------------------------------------------------------------


def refused() -> Iterator[tuple[Callable[[], object], str]]:
    n, cents = {"n": fk.len()}, {"cents": int}
    yield lambda: paid(2, fk.From(1, state={"euros": float}, tables=Paid.tables)), "table 'state' has different columns"
    yield lambda: paid(2, fk.From(1, state={"euros": float}, by={"stat": in_cents})), "`by` is for table 'stat'"
    yield lambda: paid(2, fk.From(1, state={"euros": float}, by={"state": 100})), "100 is not a function"  # type: ignore[dict-item]
    yield lambda: paid(2, fk.From(1, agg=n)), "a process does not have aggregates"
    yield lambda: paid(2, fk.From(2, state=cents, tables=Paid.tables)), "version 2 is there twice"
    yield lambda: paid(2, 1), "1 is not an earlier version"  # type: ignore[arg-type]
    yield lambda: grouped(n, fk.From(1, state=cents)), "does not say which aggregates there were"
    yield lambda: grouped(n, fk.From(1, agg=n)), "version 1 is there twice"
    yield lambda: grouped({"n": fk.sum("euros")}, fk.From(1, agg=n)), "'n' is a different aggregate"
    yield lambda: grouped(n, fk.From(0, agg=n, by={"n": in_cents})), "is one function"
    for regime in (fk.LazyCheckpoint(), fk.Batch()):
        rows = fk.Flow("app", regime=regime).source("paid", key="user", value=PAID)
        grouping = rows.group_by("user", version=2, migrate=fk.From(1, agg=n))
        yield lambda g=grouping: g.agg(n=fk.len()), "regime cannot be migrated"  # type: ignore[misc]


@pytest.mark.parametrize(("define", "words"), [pytest.param(*case, id=case[1]) for case in refused()])
def test_what_leads_nowhere_is_refused_when_the_flow_is_defined(define: Callable[[], object], words: str) -> None:
    with pytest.raises(DefinitionError, match=words) as raised:
        define()
    assert raised.value.where
