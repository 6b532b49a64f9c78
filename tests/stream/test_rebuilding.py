"""State that is rebuilt from what the inputs hold: what it becomes, what is told of it, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

import falkirk as fk
from falkirk.checkpoint.ids import TopicPartition
from falkirk.checkpoint.records import StepRecord, decode
from falkirk.errors import ConfigError, StateError, UserCodeError
from falkirk.runtime.worker.reading import second_reading
from falkirk.state.meta import META
from falkirk.stream.evolution import rebuilding
from falkirk.testing.dying import step_dying
from falkirk.testing.process import Ending

Row = dict[str, Any]
PAID = fk.Json({"user": fk.String, "euros": fk.Int64})
USERS = "abcdefg"
ROWS = [{"user": USERS[i % 7], "euros": i} for i in range(21)]
MORE = [{"user": USERS[i % 5], "euros": 100 + i} for i in range(10)]
REGIMES = [fk.EagerCheckpoint(), fk.LazyCheckpoint()]


def sums(version: int, least: int, regime: Any = None, **more: Any) -> fk.Flow:
    """What each user has paid, of what is at least so much; and how often, which is never rebuilt."""
    flow = fk.Flow("app", **({} if regime is None else {"regime": regime}))
    rows = flow.source("paid", key="user", value=PAID)
    paid = rows.filter(fk.col("euros") >= least).group_by("user", id="sums", version=version)
    paid.agg(total=fk.sum("euros"), **more).sink("sums", key="user", value=fk.Json())
    rows.group_by("user", id="plain").agg(n=fk.len()).sink("plain", key="user", value=fk.Json())
    return flow


def fresh(flow: fk.Flow, *inputs: Sequence[Row]) -> fk.testing.App:
    app = fk.testing.App(flow, partitions=2)
    for rows in inputs:
        app.send("paid", rows)
    app.run()
    return app


def assert_the_same(calm: fk.testing.App, crashed: fk.testing.App) -> None:
    """The same steps said the same, which is what the mended filter makes of all rows."""
    assert crashed.steps == calm.steps
    one, other = ([(r.maker, r.value) for r in app.sinks["sums"].records] for app in (calm, crashed))
    assert one == other
    assert crashed.sinks["sums"].table == fresh(sums(2, 4), ROWS, MORE).sinks["sums"].table
    assert crashed.state("sums").equals(calm.state("sums"))


def steps_of(app: fk.testing.App) -> dict[str, list[StepRecord]]:
    found: dict[str, list[StepRecord]] = {}
    for bound in app._cluster.tasks:
        records = [decode(value) for m in app._cluster.read(bound.task.steps, 0) if (value := m.value()) is not None]
        found[str(bound.task.id)] = [r for r in records if isinstance(r, StepRecord)]
    return found


@pytest.fixture
def little_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilding, "ROWS_A_STEP", 3)
    monkeypatch.setattr(rebuilding, "LOOKED_A_STEP", 8)
    monkeypatch.setattr(second_reading, "FIRST", 4)
    monkeypatch.setattr(second_reading, "MOST_RECORDS", 4)


@pytest.mark.parametrize("regime", REGIMES, ids=lambda regime: regime.kind)
def test_a_mended_filter_is_as_if_it_had_always_been_so(regime: Any) -> None:
    app = fresh(sums(1, 10, regime), ROWS)
    said = len(app.sinks["sums"].records)
    app.change(sums(2, 4, regime), rebuild=["sums"])
    app.run()
    whole = fresh(sums(2, 4, regime), ROWS)
    assert app.sinks["sums"].table == whole.sinks["sums"].table
    assert app.state("sums").sort("user").equals(whole.state("sums").sort("user"))
    # Told are the groups that have changed, once each: those of 4 to 9 euros.
    told = app.sinks["sums"].records[said:]
    assert sorted(record.value["user"] for record in told) == ["a", "b", "c", "e", "f", "g"]
    app.send("paid", MORE)
    app.run()
    whole.send("paid", MORE)
    whole.run()
    assert app.sinks["sums"].table == whole.sinks["sums"].table
    assert app.sinks["plain"].table == whole.sinks["plain"].table
    app.crash(host=True)
    assert app.state("sums").sort("user").equals(whole.state("sums").sort("user"))


def test_groups_that_there_should_not_have_been_are_taken_back() -> None:
    app = fresh(sums(1, 0), ROWS)
    app.change(sums(2, 20), rebuild=["sums"])
    app.run()
    assert app.sinks["sums"].table == {"g": {"user": "g", "total": 20}}
    assert app.state("sums").rows() == [("g", 20)]


def test_with_other_columns_all_groups_are_said_anew() -> None:
    app = fresh(sums(1, 10), ROWS)
    app.change(sums(1, 17, top=fk.max("euros")), rebuild=["sums"])
    app.run()
    assert app.sinks["sums"].table == fresh(sums(1, 17, top=fk.max("euros")), ROWS).sinks["sums"].table


def test_a_new_operator_begins_with_all_that_there_was() -> None:
    def flow(*, both: bool) -> fk.Flow:
        flow = fk.Flow("app")
        rows = flow.source("paid", key="user", value=PAID)
        rows.group_by("user", id="n").agg(n=fk.len()).sink("n", key="user", value=fk.Json())
        if both:
            rows.group_by("user", id="top").agg(top=fk.max("euros")).sink("top", key="user", value=fk.Json())
        return flow

    app = fresh(flow(both=False), ROWS)
    app.change(flow(both=True), rebuild=["top"])
    app.run()
    assert {user: row["top"] for user, row in app.sinks["top"].table.items()} == dict(
        zip(USERS, range(14, 21), strict=True)
    )


def test_it_is_done_once_however_often_it_is_said() -> None:
    app = fresh(sums(1, 10), ROWS)
    for _ in range(3):
        app.change(sums(2, 4), rebuild=["sums"])
        app.run()
    moves = [r for records in steps_of(app).values() for r in records if r.move is not None]
    done = len(moves)
    app.change(sums(2, 4))
    app.run()
    assert done == len([r for records in steps_of(app).values() for r in records if r.move is not None])
    app.change(sums(3, 0), rebuild=["sums"])
    app.run()
    assert app.sinks["sums"].table == fresh(sums(3, 0), ROWS).sinks["sums"].table


@pytest.mark.usefixtures("little_at_once")
@pytest.mark.parametrize("regime", REGIMES, ids=lambda regime: regime.kind)
@pytest.mark.parametrize("ending", Ending)
def test_nothing_is_lost_or_told_twice_however_the_worker_dies(ending: Ending, regime: Any) -> None:
    def through(step: Callable[[fk.testing.App], bool]) -> fk.testing.App:
        app = fk.testing.App(sums(1, 10, regime), partitions=2)
        app.send("paid", ROWS)
        while step(app):
            pass
        app.change(sums(2, 4, regime), rebuild=["sums"])
        app.send("paid", MORE)
        while step(app):
            pass
        return app

    calm = through(lambda app: app.step())
    crashed = through(lambda app: step_dying(app, ending, before=ending is Ending.UNSEEN))
    assert calm.steps > 8
    assert_the_same(calm, crashed)
    # Nothing is left of before: a row a group of either grouping.
    scans = [one.owned.opened().scan(b"", META) for one in crashed._worker().tasks]
    assert sum(len(key) > 3 for scan in scans for key, _ in scan) == 2 * len(USERS)


@pytest.mark.usefixtures("little_at_once")
def test_each_record_is_of_the_old_or_of_the_new_code_by_its_step() -> None:
    app = fresh(sums(1, 10), ROWS)
    app.change(sums(2, 4), rebuild=["sums"])
    app.send("paid", MORE)
    app.run()
    told = app.sinks["sums"].records
    for partition, steps in enumerate(steps_of(app).values()):
        moves = [(r.step, r.move, r) for r in steps if r.move is not None]
        first, last = moves[0][0], moves[-1][0]
        assert [step for step, _, _ in moves] == list(range(first, last + 1))
        assert [move.left for _, move, _ in moves] == [True] * (len(moves) - 1) + [False]
        assert all(r.start == r.end for _, _, record in moves for r in record.division)
        switch = min(step for step, move, _ in moves if not move.again)
        assert not any(record.outputs for step, _, record in moves if step < switch)
        read = [json.loads(m.value() or b"") for m in app._cluster.read(TopicPartition("paid", partition), 0)]
        for record in (r for r in told if r.maker is not None and r.maker.task == f"sums/{partition}"):
            step = next(s for s in steps if s.step == record.maker.step)
            least = 10 if step.step < switch else 4
            seen = [row["euros"] for row in read[: step.division[0].end] if row["user"] == record.key]
            assert record.value["total"] == sum(euros for euros in seen if euros >= least)
    assert app.sinks["sums"].table == fresh(sums(2, 4), ROWS, MORE).sinks["sums"].table


def test_input_waits_until_it_is_done() -> None:
    app = fresh(sums(1, 10), ROWS)
    app.change(sums(2, 4), rebuild=["sums"])
    app.send("paid", MORE)
    before = len(app.sinks["plain"].records)
    assert app.step()
    assert len(app.sinks["plain"].records) == before
    app.run()
    assert len(app.sinks["plain"].records) > before


# -- what reads it, and what it reads ----------------------------------------------------------------------------------


def ranked(version: int, least: int) -> fk.Flow:
    """How many users have paid each total: it is given the totals of before back."""
    flow = fk.Flow("app")
    rows = flow.source("paid", key="user", value=PAID)
    totals = rows.filter(fk.col("euros") >= least).group_by("user", id="sums", version=version).agg(n=fk.len())
    totals.group_by("n", id="ranks").agg(users=fk.len()).sink("ranks", key="n", value=fk.Json())
    small = totals.filter(fk.col("n") < 3)
    small.sink("small", key="user", value=fk.Json())
    return flow


def test_those_downstream_are_given_the_differences() -> None:
    app = fresh(ranked(1, 10), ROWS, MORE)
    app.change(ranked(2, 3), rebuild=["sums"])
    app.run()
    whole = fresh(ranked(2, 3), ROWS, MORE)
    assert app.sinks["ranks"].table == whole.sinks["ranks"].table
    assert app.sinks["small"].table == whole.sinks["small"].table


class Alarm(fk.Process):
    """Tells of a user who has paid nothing for a minute, and how much they had paid by then."""

    state = {"euros": int}  # noqa: RUF012
    returns = {"user": str, "euros": int}  # noqa: RUF012

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def on_row(self, row: Row, key: fk.KeyContext) -> None:
        key.put({"euros": (key.get() or {"euros": 0})["euros"] + self.factor * row["euros"]})
        key.set_timer(timedelta(minutes=1))

    def on_timer(self, timer: fk.Timer, key: fk.KeyContext) -> Row:
        state = key.get()
        assert state is not None
        return {"user": key.key[0], "euros": state["euros"]}


def alarms(version: int, factor: int) -> fk.Flow:
    flow = fk.Flow("app")
    rows = flow.source("paid", key="user", value=PAID).key_by("user")
    rows.process(Alarm(factor), id="alarms", version=version).sink("alarms", key="user", value=fk.Json())
    return flow


@pytest.mark.usefixtures("little_at_once")
def test_timers_that_were_due_are_not_due_again_and_those_that_wait_do() -> None:
    app = fresh(alarms(1, 10), [{"user": "a", "euros": 1}])
    app.advance("2m")
    app.run()
    assert [r.value for r in app.sinks["alarms"].records] == [{"user": "a", "euros": 10}]
    app.change(alarms(2, 10), rebuild=["alarms"])  # no record says that the minute has passed
    app.run()
    app.send("paid", [{"user": "b", "euros": 2}])
    app.run()
    app.change(alarms(3, 100), rebuild=["alarms"])
    app.run()
    assert len(app.sinks["alarms"].records) == 1
    app.advance("2m")
    app.run()
    assert [r.value for r in app.sinks["alarms"].records[1:]] == [{"user": "b", "euros": 200}]
    assert sorted(app.state("alarms").rows()) == [("a", 100), ("b", 200)]


def test_a_failure_is_buried_once_and_a_function_that_fails_is_mended() -> None:
    def flow(version: int, made: Callable[[int], int]) -> fk.Flow:
        def see(row: Row, key: fk.KeyContext) -> None:
            key.put({"n": (key.get() or {"n": 0})["n"] + made(row["euros"])})

        flow = fk.Flow("app")
        rows = flow.source("paid", key="user", value=PAID).key_by("user")
        rows.process(see, id="see", state={"n": int}, version=version).sink("s", key="user", value=fk.Json())
        return flow

    app = fresh(flow(1, int), ROWS)
    app.send("paid", [(b"a", b"no json")])
    app.run()
    letters = len(app.dead_letters)
    app.change(flow(2, lambda euros: 1 // (euros - 3)), rebuild=["see"])
    with pytest.raises(UserCodeError, match="ZeroDivisionError") as raised:
        app.run()
    assert "read again to rebuild see" in (raised.value.where or "")
    app.change(flow(2, lambda euros: 2 * euros))
    app.run()
    assert dict(app.state("see").rows()) == {user: 2 * (3 * i + 21) for i, user in enumerate(USERS)}
    assert len(app.dead_letters) == letters == 1


def test_a_lookup_has_its_table_again_and_what_is_behind_it_sees_the_table_as_it_is() -> None:
    def flow(*columns: str, version: int) -> fk.Flow:
        flow = fk.Flow("app")
        names = flow.table("names", key="user", value=fk.Json({"name": str, "town": str}))
        rows = flow.source("paid", key="user", value=PAID).lookup(names, columns=columns, id="named")
        rows.group_by("user", id="towns", version=version).agg(last=fk.max(columns[-1])).sink(
            "towns", key="user", value=fk.Json()
        )
        return flow

    app = fk.testing.App(flow("name", version=1), partitions=2)
    app.send("names", [{"user": user, "name": user * 3, "town": f"in {user}"} for user in USERS])
    app.send("paid", ROWS)
    app.run()
    app.change(flow("name", "town", version=2), rebuild=["named", "towns"])
    app.run()
    assert {user: row["last"] for user, row in app.sinks["towns"].table.items()} == {u: f"in {u}" for u in USERS}
    app.send("paid", MORE)
    app.run()
    assert {user: row["last"] for user, row in app.sinks["towns"].table.items()} == {u: f"in {u}" for u in USERS}


def test_values_that_are_kept_for_rows_that_are_taken_back_are_made_anew() -> None:
    def flow(version: int, before: int = 1) -> fk.Flow:
        flow = fk.Flow("app")
        paid = flow.source("paid", key="user", value=PAID).group_by("user", id="sums", version=before)
        sums_ = paid.agg(total=fk.sum("euros"))
        low = sums_.with_columns(half=fk.col("total") // 2 if version == 1 else fk.col("total") // 3)
        low.group_by("user", id="low", version=version).agg(low=fk.min("half")).sink("low", key="user", value=fk.Json())
        return flow

    app = fresh(flow(1), ROWS)
    with pytest.raises(StateError, match="whose rows of before are told no more"):
        app.change(flow(2), rebuild=["low"])
    app.change(flow(2, before=2), rebuild=["low", "sums"])
    app.send("paid", MORE)
    app.run()
    assert app.sinks["low"].table == fresh(flow(2), ROWS, MORE).sinks["low"].table


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_what_cannot_be_rebuilt_is_refused_and_the_old_flow_goes_on() -> None:
    app = fresh(ranked(1, 10), ROWS)
    with pytest.raises(ConfigError, match="no operator 'sum'"):
        app.change(ranked(2, 3), rebuild=["sum"])
    with pytest.raises(StateError, match="the state's schema has changed") as raised:
        app.change(ranked(2, 3))
    assert "--rebuild sums" in (raised.value.hint or "")
    app.send("paid", MORE)
    app.run()
    assert app.sinks["ranks"].table == fresh(ranked(1, 10), ROWS, MORE).sinks["ranks"].table


@pytest.mark.usefixtures("little_at_once")
def test_another_rebuild_waits_for_the_one_that_is_under_way() -> None:
    app = fresh(sums(1, 10), ROWS)
    app.change(sums(2, 4), rebuild=["sums"])
    assert app.step()
    with pytest.raises(StateError, match="is not done yet"):
        app.change(sums(3, 0), rebuild=["sums"])
    with pytest.raises(StateError, match="has not been"):
        app.state("sums")
    app.run()
    app.change(sums(3, 0), rebuild=["sums"])
    app.run()
    assert app.sinks["sums"].table == fresh(sums(3, 0), ROWS).sinks["sums"].table


def test_what_was_cannot_be_taken_back_if_it_is_not_known() -> None:
    def flow(**more: Any) -> fk.Flow:
        flow = fk.Flow("app")
        sums_ = flow.source("paid", key="user", value=PAID).group_by("user", id="sums").agg(n=fk.len(), **more)
        sums_.filter(fk.col("n") > 1).sink("sums", key="user", value=fk.Json())
        return flow

    app = fresh(flow(), ROWS)
    with pytest.raises(StateError, match="must be told which rows of that are gone"):
        app.change(flow(top=fk.max("euros")), rebuild=["sums"])
