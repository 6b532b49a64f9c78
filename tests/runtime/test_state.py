"""What an operator keeps, from a version's files and what has changed since: no broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, date, datetime
from pathlib import Path

import polars as pl
import pytest

import falkirk as fk
from falkirk.cli.commands.state import Show, key_texts
from falkirk.errors import ConfigError
from falkirk.runtime.inspect.state import TaskState, first_rows, key_of
from falkirk.state.checkpoints import CheckpointStore
from falkirk.state.objects import connect
from falkirk.state.rocks import RocksStore
from falkirk.state.store import Progress
from falkirk.stream.access.stored_state import Table, newest_versions, opened, table_of
from falkirk.testing.memory import MemoryApp

ROW = {"day": fk.Date, "shop": str, "price": int}
DAYS = [f"2026-11-{day:02}" for day in range(1, 21)]


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[tuple[Table, TaskState, MemoryApp]]:
    """Sums by day and shop as a version has them, after one sale of each of 20 days."""
    flow = fk.Flow("shop")
    sales = flow.source("sales", value=fk.Json(ROW))
    sales.group_by("day", "shop", id="sums").agg(total=fk.sum("price")).sink(
        "sums", key=["day", "shop"], value=fk.Json()
    )
    app, table = MemoryApp(flow), table_of(flow.plan(), "sums")
    sell(app, 1)
    remote, identity = connect("memory:///"), table.identity("first", 0)
    store = RocksStore(tmp_path / "store", identity)
    store.write(app.states[table.stage, 0].data, Progress(4, 5, 6, 7))
    version = store.commit()
    CheckpointStore(remote, identity).upload(store.version_folder(version), store.version_progress(version))
    store.close()
    with ExitStack() as stack:
        (copied,) = newest_versions(table, remote, "memory:///")
        engine = stack.enter_context(opened(remote, copied))
        yield table, TaskState(table, "sums/0", copied.step, 7, engine), app


def sell(app: MemoryApp, price: int) -> None:
    for day in DAYS:
        app.append("sales", None, json.dumps({"day": day, "shop": "north", "price": price}).encode())
    app.run()


def totals(frame: pl.DataFrame) -> dict[str, int]:
    return {str(row["day"]): row["total.sum"] for row in frame.iter_rows(named=True)}


def test_a_key_is_found_whatever_its_shard_and_one_that_is_not_there_is_not(
    kept: tuple[Table, TaskState, MemoryApp],
) -> None:
    table, state, _ = kept
    for day in DAYS:
        pairs = state.get(key_of(table, [day, "north"]))
        assert totals(table.frame(pairs)) == {day: 1}
    assert state.get(key_of(table, [DAYS[0], "south"])) == []


def test_what_has_changed_since_the_version_comes_first(kept: tuple[Table, TaskState, MemoryApp]) -> None:
    table, state, app = kept
    before = dict(state.scan())
    sell(app, 10)
    gone = key_of(table, [DAYS[3], "north"])
    (deleted,) = [key for key in before if key in table.keys_of(gone)]
    now = dict(app.states[table.stage, 0].data)
    others = {b"\x00\x01\xfe" + key: b"of another table" for key in before}
    changes = {**{key: value for key, value in now.items() if key != deleted}, **others, deleted: None}
    state.changes.update(changes)
    assert state.get(gone) == []
    assert totals(first_rows(state, 0)) == {day: 11 for day in DAYS if day != DAYS[3]}
    assert [key for key, _ in state.scan()] == sorted(before.keys() - {deleted})
    assert first_rows(state, 3).height == 3

    # A changelog alone has it all.
    alone = TaskState(table, "sums/0", 4, 7, None, changes)
    assert list(alone.scan()) == list(state.scan())


def test_a_key_that_is_none_of_the_state_s_is_said(kept: tuple[Table, TaskState, MemoryApp]) -> None:
    table, _, _ = kept
    with pytest.raises(ConfigError, match="a key of this state has 2 columns, and 1 given"):
        key_of(table, ["2026-11-01"])
    with pytest.raises(
        ConfigError, match="'soon' is not a valid Date\n  where: the key's columns: day: Date, shop: String"
    ):
        key_of(table, ["soon", "north"])


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pl.Int64(), "-7", -7),
        (pl.Boolean(), "true", True),
        (pl.Float64(), "1.5", 1.5),
        (pl.String(), "07", "07"),
        (pl.Date(), "2026-11-21", date(2026, 11, 21)),
        (pl.Datetime("us", "UTC"), "2026-11-21 10:30:00", datetime(2026, 11, 21, 10, 30, tzinfo=UTC)),
        (pl.UInt8(), "255", 255),
        (pl.Binary(), "ab", b"ab"),
        (pl.Binary(), '{"base64":"/wA="}', b"\xff\0"),
        (pl.Binary(), '{"base64":"?"}', b'{"base64":"?"}'),
        (pl.String(), None, None),
    ],
)
def test_keys_are_given_as_text(kind: pl.DataType, text: str | None, value: object) -> None:
    table = Table("app", "s", "", "", 1, pl.Schema({"k": kind}), pl.Schema({"n": pl.Int64}), parts=False)
    assert key_of(table, [text]).rows() == [(value,)]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pl.Datetime("us"), "2026-11-21T10:30:00Z"),  # another moment, or another spelling, than that of the key
        (pl.Datetime("us"), "2026-11-21 10:30:00+02:00"),
        (pl.Datetime("ms"), "2026-11-21 10:30:00.123456"),
        (pl.Datetime("ms", "UTC"), "2026-11-21 10:30:00.123456Z"),
    ],
)
def test_a_time_that_the_key_cannot_have_is_not_taken_for_another_one(kind: pl.DataType, text: str) -> None:
    table = Table("app", "s", "", "", 1, pl.Schema({"k": kind}), pl.Schema({}), parts=False)
    with pytest.raises(ConfigError, match="is not a valid Datetime"):
        key_of(table, [text])


def test_a_boolean_is_true_or_false() -> None:
    table = Table("app", "s", "", "", 1, pl.Schema({"k": pl.Boolean()}), pl.Schema({}), parts=False)
    with pytest.raises(ConfigError, match="'1' is not a valid Boolean"):
        key_of(table, ["1"])


def test_of_two_incarnations_the_one_that_worked_last_is_read(tmp_path: Path) -> None:
    """A checkpoint store may have versions of an app that was deleted since."""
    flow = fk.Flow("shop")
    sales = flow.source("sales", key="shop", value=fk.Json(ROW))
    sales.group_by("shop", id="sums").agg(total=fk.sum("price")).sink("sums", key="shop", value=fk.Json())
    table, remote = table_of(flow.plan(), "sums"), connect("memory:///")
    for n, (incarnation, step, clock) in enumerate([("a", 9, 100), ("b", 2, 200), ("c", 5, 150)]):
        store = RocksStore(tmp_path / str(n), table.identity(incarnation, 0))
        store.write({}, Progress(step, step + 1, 0, clock))
        version = store.commit()
        CheckpointStore(remote, table.identity(incarnation, 0)).upload(
            store.version_folder(version), store.version_progress(version)
        )
        store.close()
    assert [v.step for v in newest_versions(table, remote, "")] == [2]
    assert [v.step for v in newest_versions(table, remote, "", incarnation="a")] == [9]


def test_a_key_of_a_join_is_shown_with_all_of_its_rows(tmp_path: Path) -> None:
    flow = fk.Flow("shop")
    value = fk.Json({"k": str, "n": int})
    a, b = (flow.source(name, key="k", value=value) for name in ("a", "b"))
    a.join(b, on="k", id="both").sink("both", value=fk.Json())
    app, table = MemoryApp(flow), table_of(flow.plan(), "both")
    sent = [("few", n) for n in range(2)] + [("many", n) for n in range(99)]
    for key, n in sent:
        app.append("a", key.encode(), json.dumps({"k": key, "n": n}).encode())
    app.run()
    store = RocksStore(tmp_path / "store", table.identity("first", 0))
    store.write(app.states[table.stage, 0].data, Progress(4, 5, 6, 7))
    store.flush()
    before = dict(app.states[table.stage, 0].data)
    app.append("a", b"many", b'{"k":"many","n":100}')
    app.run()
    changes = {k: v for k, v in app.states[table.stage, 0].data.items() if before.get(k) != v}
    state = TaskState(table, "both/0", 4, 7, store, changes)  # type: ignore[arg-type]  # a store reads like an engine
    for key, rows in (("few", {0, 1}), ("many", {*range(99), 100}), ("none", set())):
        frame = table.frame(state.get(key_of(table, [key])))
        assert set(frame["k"]) <= {key}
        assert set(frame["n"]) == rows
    assert first_rows(state, 0).height == 102
    store.close()


def test_a_column_named_like_one_of_the_key_is_shown_with_the_name_of_its_table(tmp_path: Path) -> None:
    def count(row: dict[str, str], key: fk.KeyContext) -> None:
        doors = (key.get() or {"door": 0})["door"] + 1
        key.put({"door": doors, "open": True})
        key.put({"door": doors, "last.door": -doors}, "last")

    flow = fk.Flow("doors")
    doors = flow.source("doors", value=fk.Json({"door": str}))
    doors.key_by("door").process(
        count, id="count", state={"door": int, "open": bool}, tables={"last": {"door": int, "last.door": int}}
    ).sink("out", value=fk.Json())
    app = MemoryApp(flow)
    for door in ("a", "b", "a"):
        app.append("doors", None, json.dumps({"door": door}).encode())
    app.run()
    for name, row in (
        ("count", {"door": "a", "state.door": 2, "open": True}),
        ("count/last", {"door": "a", "last.last.door": 2, "last.door": -2}),
    ):
        table = table_of(flow.plan(), name)
        store = RocksStore(tmp_path / name.replace("/", "-"), table.identity("first", 0))
        store.write(app.states[table.stage, 0].data, Progress(4, 5, 6, 7))
        store.flush()
        state = TaskState(table, "count/0", 4, 7, store)  # type: ignore[arg-type]  # a store reads like an engine
        assert table.frame(state.get(key_of(table, ["a"]))).rows(named=True) == [row]
        assert sorted(first_rows(state, 0)["door"]) == ["a", "b"]
        assert list(table.shown) == [column for column in row if column != "door"]
        store.close()


def test_a_window_s_key_is_given_as_the_flow_says_it_and_decimals_are_shown_as_such(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flow = fk.Flow("shop")
    row = {"shop": str, "price": fk.Decimal(10, 2), "at": int}
    sales = flow.source("sales", key="shop", time="at", late="1m", value=fk.Json(row))
    sums = sales.group_by("shop", fk.tumbling("at", "1m"), id="sums").agg(total=fk.sum("price"), top=fk.max("price"))
    sums.sink("sums", key=["shop", "window_start"], value=fk.Json())
    app, table = MemoryApp(flow), table_of(flow.plan(), "sums")
    for price in ("9.50", "1.25"):
        app.append("sales", b"north", json.dumps({"shop": "north", "price": price, "at": 61_000}).encode())
    app.run()
    state = TaskState(table, "sums/0", 0, 0, None, dict(app.states[table.stage, 0].data))
    pairs = state.get(key_of(table, key_texts('["north", 60000, 120000]', table)))
    Show(table, as_json=True)(state, table.frame(pairs))
    shown = json.loads(capsys.readouterr().out)
    assert list(shown["key"].items()) == [("shop", "north"), ("window_start", 60_000), ("window_end", 120_000)]
    assert (shown["value"]["total"]["sum"], shown["value"]["top"]["best"]) == ("10.75", "9.50")
    with pytest.raises(ConfigError, match="which has the columns shop, window_start, window_end"):
        key_texts("north", table)


def test_a_lookup_keeps_the_rows_of_its_table_by_the_key_that_the_topic_spells() -> None:
    flow = fk.Flow("shop")
    sales = flow.source("sales", key="shop", value=fk.Json({"shop": int, "price": int}))
    shops = flow.table("shops", key="shop", value=fk.Json({"shop": int, "town": str}))
    sales.lookup(shops, on="shop", id="towns").sink("sold", key="shop", value=fk.Json())
    app, table = MemoryApp(flow), table_of(flow.plan(), "towns")
    for shop, town in ((3, "Ayr"), (4, "Wick"), (3, "Oban")):
        app.append("shops", b"%d" % shop, json.dumps({"town": town}).encode())
    app.append("sales", b"3", json.dumps({"shop": 3, "price": 7}).encode())
    app.run()
    state = TaskState(table, "towns/0", 0, 0, None, dict(app.states[table.stage, 0].data))
    assert table.frame(state.get(key_of(table, ["3"]))).to_dicts() == [{"key": b"3", "town": "Oban"}]
    assert sorted(row["town"] for row in first_rows(state, 0).to_dicts()) == ["Oban", "Wick"]
    assert state.get(key_of(table, ["5"])) == []
