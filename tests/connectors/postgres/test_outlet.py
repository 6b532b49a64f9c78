"""Chunks in a table, on a real server: the contract of outlets, a cut at every statement, zombies, and changes by key."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from tests.checkpoint.outlet_contract import PLACE, Log, Published, Step, any_publishers, crashes_at_every_call
from tests.connectors.postgres.chunks import KEYED, SECOND, Make, append, end, keyed, rows_of
from tests.waiting import PATIENCE_S

from falkirk.checkpoint.ids import Offset
from falkirk.checkpoint.outlets import Chunk
from falkirk.connectors.files.parquet import StepRows
from falkirk.connectors.postgres.outlet import PostgresOutlet
from falkirk.errors import AwayError
from falkirk.stream.definition.outlets import GONE, TablePlan

pytestmark = pytest.mark.containers


def shown(sql: Any) -> Callable[[Log], list[Step]]:
    """The steps in the table, each whole and once."""

    def published(log: Log) -> list[Step]:
        if not sql.execute("select to_regclass('steps')").fetchone()[0]:
            return []
        found = sql.execute(
            "select step, array_agg(row order by row) from steps group by step order by step"
        ).fetchall()
        assert all(rows == list(range(len(rows))) for _, rows in found), "a row twice, or not at all"
        position = sql.execute("select next_offset, step from falkirk_positions").fetchone()
        assert log.begins <= (position[0] if position else 0)
        assert not found or found[-1][0] == position[1]
        return [(step, len(rows)) for step, rows in found]

    return published


# -- the contract ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 9])
def test_a_crash_at_every_call_loses_and_doubles_nothing(most: int, outlet: Make, sql: Any) -> None:
    one = outlet()

    def make() -> tuple[PostgresOutlet, Published]:
        sql.execute("drop table if exists steps, falkirk_positions")
        return one, shown(sql)

    crashes_at_every_call(make, most, rows_of)


@pytest.mark.parametrize("seed", range(20))
def test_any_number_of_publishers_leave_one_chain(seed: int, outlet: Make, sql: Any) -> None:
    any_publishers(seed, outlet, shown(sql), rows_of)


def test_publishers_at_the_same_time_leave_one_chain(outlet: Make, sql: Any) -> None:
    chunks = [Chunk(PLACE, Offset(3 * i), Offset(3 * i + 3), rows_of([(i, 2)])) for i in range(40)]
    counts: list[int] = []

    def work(mine: PostgresOutlet) -> None:
        at, written = end(mine), 0
        while at < 120:
            written += append(mine, chunks[at // 3])
            at = end(mine)
        counts.append(written)

    threads = [threading.Thread(target=work, args=(outlet(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == 40
    assert shown(sql)(Log([])) == [(i, 2) for i in range(40)]


@pytest.mark.parametrize("answered", [False, True])
def test_a_connection_that_ends_at_any_statement_loses_and_doubles_nothing(
    answered: bool, outlet: Make, sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`answered`: the statement has had its effect, and only its answer is lost: the commit's, too."""
    import psycopg

    plain, one, left = psycopg.Cursor.execute, outlet(), [0]

    def execute(self: Any, *arguments: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] == 0 and not answered:
            self.connection.close()
        found = plain(self, *arguments, **options)
        if left[0] == 0:
            self.connection.close()
            raise psycopg.OperationalError("the answer is lost")
        return found

    end(one)
    monkeypatch.setattr(psycopg.Cursor, "execute", execute)
    at, statements = 0, 0
    for cut in range(1, 9):
        statements, left[0] = cut, cut
        chunk = Chunk(PLACE, Offset(at), Offset(at + 3), rows_of([(at // 3, 2)]))
        with suppress(AwayError):
            append(one, chunk)
        cut_short = left[0] <= 0
        left[0] = 0
        if end(one) == at:
            assert append(one, chunk)
        assert not append(one, chunk)
        at += 3
    assert statements == 8
    assert not cut_short, "a transaction has more statements than were tried"
    monkeypatch.undo()
    assert shown(sql)(Log([])) == [(i, 2) for i in range(8)]


def test_a_zombie_that_wakes_with_its_transaction_open_is_refused(outlet: Make, sql: Any) -> None:
    zombie, owner, chunk = outlet(), outlet(), Chunk(PLACE, Offset(0), Offset(3), rows_of([(0, 2)]))
    end(zombie)
    zombie.database.begin()
    assert append(owner, chunk)
    assert not zombie._append(chunk)
    zombie.database.undo()
    sql.execute("update falkirk_positions set task = task")
    # It holds the lock of the position, and its process sleeps: the other one waits for it, and is then refused.
    zombie.database.begin()
    second = Chunk(PLACE, Offset(3), Offset(6), rows_of([(1, 2)]))
    assert zombie._append(second)
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(append(owner, second)))
    thread.start()
    deadline = time.monotonic() + PATIENCE_S
    while not sql.execute("select 1 from pg_locks where not granted").fetchall():
        assert time.monotonic() < deadline
    zombie.database.commit()
    thread.join()
    assert answers == [False]
    assert shown(sql)(Log([])) == [(0, 2), (1, 2)]


def test_each_partition_sink_and_incarnation_has_its_own_chain(outlet: Make, name: str) -> None:
    one, reset = outlet(KEYED), outlet(KEYED, "other")
    end(one)
    assert append(one, keyed((1, "a"), end=7))
    assert append(one, keyed((2, "a"), end=90, partition=4))
    assert append(reset, keyed((1, "b"), end=50))
    assert (end(one), end(reset)) == (7, 50)


# -- changes -----------------------------------------------------------------------------------------------------------


def test_a_chunk_leaves_what_its_last_changes_say(outlet: Make, sql: Any) -> None:
    one = outlet(KEYED)
    end(one)
    assert append(one, keyed((1, "a"), (2, "b"), (1, "c"), (3, "d"), (3, None), (4, None), end=10))
    assert sql.execute("select * from totals order by id").fetchall() == [(1, "c"), (2, "b")]
    assert append(one, keyed((2, None), (1, None), (1, "e"), (5, "f"), start=10))
    assert sql.execute("select * from totals order by id").fetchall() == [(1, "e"), (5, "f")]


def test_many_rows_and_a_key_of_all_columns(outlet: Make, sql: Any) -> None:
    plan = TablePlan("shop", "pairs", ("a", "%b"), pl.Schema({"a": pl.Int64(), "%b": pl.String()}), SECOND)
    one, many = outlet(plan), 12_345
    end(one)
    frame = pl.DataFrame({"a": range(many), "%b": ["x"] * many, GONE: [False] * many})
    assert append(one, Chunk(PLACE, Offset(0), Offset(9), [StepRows("t/0", 0, frame)]))
    gone = frame.head(6_000).with_columns(pl.lit(value=True).alias(GONE))
    assert append(one, Chunk(PLACE, Offset(9), Offset(19), [StepRows("t/0", 1, gone), StepRows("t/0", 2, frame[:1])]))
    assert sql.execute("select count(*), min(a) from pairs").fetchone() == (many - 6_000 + 1, 0)


TYPES = {
    "b": (pl.Boolean(), [True, None]),
    "i": (pl.Int8(), [-(2**7), 1]),
    "l": (pl.Int64(), [-(2**63), 2**63 - 1]),
    "u": (pl.UInt64(), [2**64 - 1, 0]),
    "f": (pl.Float32(), [0.5, float("inf")]),
    "d": (pl.Float64(), [0.1, -1e300]),
    "dec": (pl.Decimal(20, 4), [Decimal("1234567890123456.7891"), None]),
    "s": (pl.String(), ["ü 'x' \\ \n {,}", None]),
    "raw": (pl.Binary(), [b"\0\xff", None]),
    "day": (pl.Date(), [date(1, 1, 1), date(9999, 12, 31)]),
    "at": (pl.Datetime("ms", "UTC"), [datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC), None]),
    "local": (pl.Datetime("us"), [datetime(1969, 1, 2, 3, 4, 5, 678_901), None]),  # noqa: DTZ001
    "clock": (pl.Time(), [time_of_day(23, 59, 59, 999_999), None]),
    "kind": (pl.Enum(["a", "b"]), ["b", None]),
    "list": (pl.List(pl.String()), [["a", None], None]),
    "one": (pl.Struct({"x": pl.Int64(), "at": pl.Date()}), [{"x": 1, "at": date(2026, 1, 1)}, None]),
}
"""Columns of each type, with their values."""
AS_JSON = {"list": [["a", None], None], "one": [{"x": 1, "at": "2026-01-01"}, None]}


def test_each_type_keeps_its_values(outlet: Make, sql: Any) -> None:
    schema = pl.Schema({name: dtype for name, (dtype, _) in TYPES.items()})
    one = outlet(TablePlan("shop", "types", (), schema, SECOND))
    frame = pl.DataFrame({name: values for name, (_, values) in TYPES.items()}, schema=schema)
    end(one)
    assert append(one, Chunk(PLACE, Offset(0), Offset(2), [StepRows("t/0", 0, frame)]))
    sql.execute("set timezone to 'UTC'")
    for name, (_, values) in TYPES.items():
        found = [value for (value,) in sql.execute(f'select "{name}" from types').fetchall()]
        assert found == AS_JSON.get(name, values), name
    assert sql.execute("select count(*) from types where list is null and one is null").fetchone() == (1,)
