"""Keyed processes: state, timers on the step's clock, and errors, against the same written in plain Python."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import falkirk as fk
from falkirk.testing.memory import MemoryApp

CLICKS = fk.Json({"user": fk.String, "x": fk.Int64})


class Totals(fk.Process):
    """A running total; a negative number forgets it."""

    state = {"total": int}  # noqa: RUF012
    tables = {"seen": {"n": int, "last": str}}  # noqa: RUF012
    returns = {"user": str, "total": int, "n": int}  # noqa: RUF012

    def on_row(self, row: dict[str, Any], key: fk.KeyContext) -> Iterator[dict[str, Any]]:
        before = key.get() or {"total": 0}
        n = (key.get("seen") or {"n": 0})["n"] + 1
        if row["x"] < 0:
            key.delete()
            key.delete("seen")
            return
        key.put({"total": before["total"] + row["x"]})
        key.put({"n": n, "last": str(row["x"])}, "seen")
        yield {"user": row["user"], "total": before["total"] + row["x"], "n": n}


def totals(rows: list[tuple[str, int]]) -> list[dict[str, Any]]:
    out, kept = [], {}
    for user, x in rows:
        total, n = kept.get(user, (0, 0))
        if x < 0:
            kept.pop(user, None)
        else:
            kept[user] = total + x, n + 1
            out.append({"user": user, "total": total + x, "n": n + 1})
    return out


def app_of(process: Any, *, by: str = "user", key: str | None = "user", **more: Any) -> MemoryApp:
    flow = fk.Flow("p")
    stream = flow.source("clicks", key=key, value=CLICKS)
    stream.key_by(by).process(process, id="p", **more).sink("out", value=fk.Json())
    return MemoryApp(flow, {"clicks": 2}, tasks=2)


def click(app: MemoryApp, user: str, x: int, timestamp: int = 0) -> None:
    app.append("clicks", user.encode(), msgspec.json.encode({"user": user, "x": x}), timestamp=timestamp)


def out(app: MemoryApp) -> list[dict[str, Any]]:
    return [msgspec.json.decode(r.value() or b"") for r in app.records("out")]


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "c", "d"]), st.integers(-2, 9))), st.randoms(use_true_random=False)
)
def test_each_key_sees_its_rows_in_order_with_its_own_state(rows: list[tuple[str, int]], rng: random.Random) -> None:
    app = app_of(Totals())
    for user, x in rows:
        click(app, user, x)
    app.run(rng)
    for user in {user for user, _ in rows}:
        assert [r for r in out(app) if r["user"] == user] == [r for r in totals(rows) if r["user"] == user]


class Alarm(fk.Process):
    """x > 0 sets the timer `late` after x ms, 0 deletes it."""

    returns = {"user": str, "name": str, "at": int}  # noqa: RUF012

    def on_row(self, row: dict[str, Any], key: fk.KeyContext) -> None:
        if row["x"] == 0:
            key.delete_timer("late")
        else:
            key.set_timer(timedelta(milliseconds=row["x"]), "late")

    def on_timer(self, timer: fk.Timer, key: fk.KeyContext) -> dict[str, Any]:
        return {"user": key.key[0], "name": timer.name, "at": round(timer.at.timestamp() * 1000)}


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 20), st.integers(1, 9)), max_size=15),
    st.sampled_from(["user", "x"]),
)
def test_timers_fire_once_when_their_time_has_come(rows: list[tuple[str, int, int]], placed: str) -> None:
    # Grouped by another column than the source's key, the process is behind an exchange and its shards are its own.
    app = app_of(Alarm(), key="user" if placed == "user" else None)
    fired: list[tuple[str, int]] = []
    pending: dict[str, int] = {}
    clock = 0
    for user, x, passed in rows:
        clock += passed
        fired += [(u, at) for u, at in pending.items() if at <= clock]
        pending = {u: at for u, at in pending.items() if at > clock}
        click(app, user, x)
        if x:
            pending[user] = clock + x
        else:
            pending.pop(user, None)
        step_all(app, clock)
    wakes = step_all(app, clock)
    assert min((w for w in wakes if w is not None), default=None) == min(pending.values(), default=None)
    step_all(app, clock + 100)
    fired += list(pending.items())
    assert sorted((r["user"], r["at"]) for r in out(app)) == sorted(fired)
    assert not any(state.data for state in app.states.values())


def step_all(app: MemoryApp, clock: int) -> list[int | None]:
    """A step of every task, upstream first; when each wants to be woken."""
    outputs = [app.step(stage, task, app.waiting(stage, task), clock) for stage, task in app.tasks()]
    for (stage, task), output in zip(app.tasks(), outputs, strict=True):
        circuit = app.circuits[stage.id, task]
        assert circuit.wake_at(app.states[stage.id, task]) == output.wake_at
    return [o.wake_at for o in outputs]


def test_due_timers_fire_before_the_rows_of_a_step_in_the_order_of_time_then_key() -> None:
    order: list[str] = []

    class Log(fk.Process):
        def on_row(self, row: dict[str, Any], key: fk.KeyContext) -> None:
            order.append(f"row {row['user']}")
            key.set_timer(datetime(1970, 1, 1, 0, 0, row["x"], tzinfo=UTC))

        def on_timer(self, timer: fk.Timer, key: fk.KeyContext) -> None:
            order.append(f"{timer.at:%S} {key.key[0]} at {key.now():%S}")

    flow = fk.Flow("p")
    flow.source("clicks", key="user", value=CLICKS).key_by("user").process(Log(), id="p").sink("out", value=fk.Json())
    app = MemoryApp(flow)
    (stage,) = app.plan.stages
    for user, x in [("b", 2), ("a", 2), ("c", 1)]:
        click(app, user, x)
    assert app.step(stage, 0, {"clicks": 3}, 500).wake_at == 1000
    order.clear()
    click(app, "a", 9)
    app.step(stage, 0, {"clicks": 1}, 3000)
    # Every step is run twice, to see that it does the same.
    assert order == ["01 c at 03", "02 a at 03", "02 b at 03", "row a"] * 2


def test_a_timer_that_nothing_takes_says_what_is_missing() -> None:
    flow = fk.Flow("p")
    clicks = flow.source("clicks", key="user", value=CLICKS)
    clicks.key_by("user").process(lambda row, key: key.set_timer("1s"), id="p").sink("out", value=fk.Json())
    app = fk.testing.App(flow)
    app.send("clicks", [{"user": "a", "x": 1}])
    app.run()
    app.advance("1s")
    with pytest.raises(fk.FalkirkError, match="it sets timers, and has no on_timer"):
        app.run()


def test_a_timer_for_a_time_before_all_years_fires() -> None:
    class Past(fk.Process):
        def on_row(self, row: dict[str, Any], key: fk.KeyContext) -> None:
            key.set_timer(timedelta.min)

        def on_timer(self, timer: fk.Timer, key: fk.KeyContext) -> dict[str, Any]:
            return {"year": timer.at.year}

    flow = fk.Flow("f")
    rows = flow.source("rows", key="user", value=fk.Json({"user": fk.String}))
    rows.key_by("user").process(Past(), id="p", returns={"year": int}).sink("out", value=fk.Json())
    assert fk.testing.run(flow, {"rows": [{"user": "a"}]}).sinks["out"].rows == [{"year": 1}]


def test_a_timer_that_an_earlier_one_deleted_does_not_fire() -> None:
    class Two(fk.Process):
        returns = {"name": str}  # noqa: RUF012

        def on_row(self, row: dict[str, Any], key: fk.KeyContext) -> None:
            key.set_timer(timedelta(milliseconds=1), "first")
            key.set_timer(timedelta(milliseconds=2), "second")

        def on_timer(self, timer: fk.Timer, key: fk.KeyContext) -> Iterator[dict[str, Any]]:
            key.delete_timer("second")
            yield {"name": timer.name}

    app = app_of(Two())
    click(app, "a", 1)
    step_all(app, 10)
    step_all(app, 20)
    assert out(app) == [{"name": "first"}]


def test_a_plain_function_is_a_process() -> None:
    def count(row: dict[str, Any], key: fk.KeyContext) -> dict[str, Any]:
        n = (key.get() or {"n": 0})["n"] + 1
        key.put({"n": n})
        return {**row, "x": n}

    app = app_of(count, state={"n": fk.Int64})
    for _ in range(3):
        click(app, "a", 7)
    app.run()
    assert [r["x"] for r in out(app)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (lambda row, key: 1 // 0, "raised ZeroDivisionError"),
        (
            lambda row, key: key.put({"m": 1}),
            "is not a valid row of table 'state', whose columns are n Int64: there is no column 'm'",
        ),
        (
            lambda row, key: key.put({"n": "one"}),
            "is not a valid row of table 'state', whose columns are n Int64: column 'n' is Int64, not 'one'",
        ),
        (lambda row, key: key.get("other"), "no table 'other'; there are state"),
        (lambda row, key: {"user": 1}, "is not a valid row of user String, x Int64: column 'user' is String, not 1"),
        (lambda row, key: key.set_timer(datetime(2026, 1, 1)), "needs a zone"),  # noqa: DTZ001
        (lambda row, key: key.set_timer(10), "is set for a datetime or after a duration, not 10"),
        (lambda row, key: key.set_timer("10 s"), "'10 s' is not a duration"),
    ],
)
def test_what_a_process_does_wrong_stops_the_app_with_the_address_of_the_record(body: Any, says: str) -> None:
    app = app_of(lambda row, key: body(row, key) if row["x"] == 3 else None, state={"n": fk.Int64})
    for x in range(6):
        click(app, "a", x)
    with pytest.raises(fk.FalkirkError) as caught:
        app.run()
    assert type(caught.value).__name__ == "UserCodeError"
    assert says in caught.value.what
    assert "topic clicks" in caught.value.where
    assert "offset 3" in caught.value.where
