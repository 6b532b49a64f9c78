"""Chunks in a table, on a real server: the contract of outlets, a cut at every statement, zombies, and all obstacles."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from tests.checkpoint.outlet_contract import PLACE, Log, Published, Step, any_publishers, crashes_at_every_call
from tests.postgres import PASSWORD, Server

from falkirk.checkpoint import driver
from falkirk.checkpoint.ids import Offset
from falkirk.checkpoint.outlets import Chunk
from falkirk.connectors.files.parquet import StepRows
from falkirk.connectors.postgres import client
from falkirk.connectors.postgres.client import Database
from falkirk.connectors.postgres.outlet import PostgresOutlet
from falkirk.errors import AwayError, ConfigError, StateError
from falkirk.stream.definition.outlets import GONE, TablePlan

pytestmark = pytest.mark.containers

SECOND = timedelta(seconds=1)
ADDED = TablePlan("shop", "steps", (), pl.Schema({"step": pl.Int64(), "row": pl.Int64()}), SECOND)
KEYED = TablePlan("shop", "totals", ("id",), pl.Schema({"id": pl.Int64(), "n": pl.String()}), SECOND)


@pytest.fixture
def outlet(postgres: Server, name: str) -> Iterator[Callable[..., PostgresOutlet]]:
    """Makes outlets, each with a connection of its own."""
    made: list[Database] = []

    def make(plan: TablePlan = ADDED, topic_id: str = "id", user: str = "postgres") -> PostgresOutlet:
        made.append(Database("shop", postgres.url(name, user), "app"))
        return PostgresOutlet(made[-1], plan, "app", "sink", topic_id)

    yield make
    for database in made:
        database.close()


def rows_of(steps: Sequence[Step]) -> list[StepRows]:
    return [StepRows("t/0", step, pl.DataFrame({"step": [step] * n, "row": range(n)})) for step, n in steps]


def keyed(*changes: tuple[int, str | None], start: int = 0, end: int = 0, partition: int = 0) -> Chunk[list[StepRows]]:
    """A chunk of changes by key, one for each step; None: the row is gone."""
    rows = [
        StepRows("t/0", start + i, pl.DataFrame({"id": [id_], "n": [n or ""], GONE: [n is None]}))
        for i, (id_, n) in enumerate(changes)
    ]
    return Chunk(PLACE._replace(partition=partition), Offset(start), Offset(end or start + len(rows)), rows)


def append(outlet: PostgresOutlet, chunk: Chunk[Any]) -> bool:
    return driver.run(outlet.append(chunk))


def end(outlet: PostgresOutlet, begin: int = 0) -> int:
    return driver.run(outlet.end(PLACE, Offset(begin)))


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
def test_a_crash_at_every_call_loses_and_doubles_nothing(
    most: int, outlet: Callable[..., PostgresOutlet], sql: Any
) -> None:
    one = outlet()

    def make() -> tuple[PostgresOutlet, Published]:
        sql.execute("drop table if exists steps, falkirk_positions")
        return one, shown(sql)

    crashes_at_every_call(make, most, rows_of)


@pytest.mark.parametrize("seed", range(20))
def test_any_number_of_publishers_leave_one_chain(seed: int, outlet: Callable[..., PostgresOutlet], sql: Any) -> None:
    any_publishers(seed, outlet, shown(sql), rows_of)


def test_publishers_at_the_same_time_leave_one_chain(outlet: Callable[..., PostgresOutlet], sql: Any) -> None:
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
    answered: bool, outlet: Callable[..., PostgresOutlet], sql: Any, monkeypatch: pytest.MonkeyPatch
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


def test_a_zombie_that_wakes_with_its_transaction_open_is_refused(
    outlet: Callable[..., PostgresOutlet], sql: Any
) -> None:
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
    deadline = time.monotonic() + 30
    while not sql.execute("select 1 from pg_locks where not granted").fetchall():
        assert time.monotonic() < deadline
    zombie.database.commit()
    thread.join()
    assert answers == [False]
    assert shown(sql)(Log([])) == [(0, 2), (1, 2)]


def test_each_partition_sink_and_incarnation_has_its_own_chain(
    outlet: Callable[..., PostgresOutlet], name: str
) -> None:
    one, reset = outlet(KEYED), outlet(KEYED, "other")
    end(one)
    assert append(one, keyed((1, "a"), end=7))
    assert append(one, keyed((2, "a"), end=90, partition=4))
    assert append(reset, keyed((1, "b"), end=50))
    assert (end(one), end(reset)) == (7, 50)


# -- changes -----------------------------------------------------------------------------------------------------------


def test_a_chunk_leaves_what_its_last_changes_say(outlet: Callable[..., PostgresOutlet], sql: Any) -> None:
    one = outlet(KEYED)
    end(one)
    assert append(one, keyed((1, "a"), (2, "b"), (1, "c"), (3, "d"), (3, None), (4, None), end=10))
    assert sql.execute("select * from totals order by id").fetchall() == [(1, "c"), (2, "b")]
    assert append(one, keyed((2, None), (1, None), (1, "e"), (5, "f"), start=10))
    assert sql.execute("select * from totals order by id").fetchall() == [(1, "e"), (5, "f")]


def test_many_rows_and_a_key_of_all_columns(outlet: Callable[..., PostgresOutlet], sql: Any) -> None:
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


def test_each_type_keeps_its_values(outlet: Callable[..., PostgresOutlet], sql: Any) -> None:
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


# -- the table ---------------------------------------------------------------------------------------------------------


def test_a_table_that_does_not_fit_is_refused_with_each_difference_and_its_fix(
    outlet: Callable[..., PostgresOutlet], sql: Any
) -> None:
    sql.execute("create unlogged table totals (id integer, n varchar(5), made timestamptz not null)")
    with pytest.raises(ConfigError) as caught:
        outlet(KEYED).tables.check()
    assert caught.value.what == (
        "table public.totals does not fit the flow: it is unlogged, so that a crash of the server empties it; "
        "column 'id' is integer, and the flow's needs bigint; column 'n' is character varying(5), and the flow's needs text; "
        "column 'made' must not be null, and the flow does not have it; no unique index has exactly \"id\""
    )
    for fix in caught.value.hint.split("; "):
        sql.execute(fix)
    assert outlet(KEYED).tables.check().endswith("its columns fit")
    assert not sql.execute("select to_regclass('falkirk_positions')").fetchone()[0], "a check creates nothing"


def test_a_table_of_the_users_own_with_more_columns_is_written(outlet: Callable[..., PostgresOutlet], sql: Any) -> None:
    sql.execute(
        "create schema own; create table own.totals (id numeric unique, n text not null, seen timestamptz default now())"
    )
    one = outlet(TablePlan("shop", "own.totals", ("id",), KEYED.columns, SECOND))
    end(one)
    assert append(one, keyed((1, "a"), (1, "b")))
    assert sql.execute("select id, n, seen is not null from own.totals").fetchall() == [(1, "b", True)]


def test_rights_that_the_user_lacks_are_named_with_what_grants_them(
    outlet: Callable[..., PostgresOutlet], sql: Any, name: str
) -> None:
    user = f"writer_{name}"
    sql.execute(f"create user {user} password '{PASSWORD}'")
    one = outlet(KEYED, user=user)
    for _ in range(4):
        with pytest.raises(ConfigError, match=r"may not create|lacks") as caught:
            one.tables.prepare("app", "sink", "id")
        for fix in caught.value.hint.removeprefix("have an administrator run: ").split("; "):
            sql.execute(fix)
        with suppress(ConfigError):
            one.tables.prepare("app", "sink", "id")
            break
    assert end(one) == 0
    assert append(one, keyed((1, "a"), (2, None)))
    one.database.close()
    sql.execute(f"revoke update on totals from {user}")
    with pytest.raises(AwayError, match=rf"user {user} lacks UPDATE on public\.totals"):
        append(one, keyed((1, "b"), start=2))
    sql.execute(f"drop owned by {user}; drop user {user}")


def test_a_table_that_is_dropped_is_not_created_again_without_its_rows(
    outlet: Callable[..., PostgresOutlet], sql: Any
) -> None:
    one = outlet(KEYED)
    end(one)
    append(one, keyed((1, "a")))
    sql.execute("drop table totals")
    with pytest.raises(AwayError, match=r"table public\.totals is gone, and the app has written rows to it"):
        append(one, keyed((2, "a"), start=1))
    with pytest.raises(AwayError, match="is gone"):
        end(outlet(KEYED))
    assert end(outlet(KEYED, "after a reset")) == 0


def test_a_table_that_changes_while_the_app_runs_is_a_wait_that_lists_the_differences(
    outlet: Callable[..., PostgresOutlet], sql: Any
) -> None:
    one = outlet(KEYED)
    end(one)
    sql.execute("alter table totals drop column n")
    with pytest.raises(AwayError, match="it has no column 'n'") as caught:
        append(one, keyed((1, "a")))
    sql.execute(caught.value.hint)
    assert append(one, keyed((1, "a")))


def test_a_database_of_an_older_backup_goes_on_if_the_log_has_what_follows_and_else_says_what_is_missing(
    outlet: Callable[..., PostgresOutlet], sql: Any
) -> None:
    one = outlet(KEYED)
    end(one)
    append(one, keyed((1, "a")))
    sql.execute("create table backup as select * from falkirk_positions")
    append(one, keyed((2, "b"), start=1))
    sql.execute("delete from falkirk_positions; insert into falkirk_positions select * from backup")
    assert end(one, begin=1) == 1
    with pytest.raises(
        StateError, match="has rows up to offset 1, and the log begins at offset 2: rows in between"
    ) as caught:
        end(one, begin=2)
    assert "next_offset to 2 in public.falkirk_positions" in caught.value.hint
    sql.execute("delete from falkirk_positions")
    with pytest.raises(StateError, match="has no position of this partition"):
        end(one, begin=2)


# -- what stands in the way --------------------------------------------------------------------------------------------


def test_a_server_that_is_killed_is_a_wait_and_then_goes_on(
    outlet: Callable[..., PostgresOutlet], postgres: Server
) -> None:
    one = outlet(KEYED)
    end(one)
    assert append(one, keyed((1, "a")))
    postgres.kill()
    try:
        with pytest.raises(AwayError, match="PostgreSQL gives no connection") as caught:
            append(one, keyed((2, "a"), start=1))
    finally:
        postgres.start()
    assert PASSWORD not in str(caught.value)
    assert "nothing is lost" in caught.value.hint
    assert append(one, keyed((2, "a"), start=1))


def test_a_connection_that_ended_while_it_was_idle_is_no_outage(
    outlet: Callable[..., PostgresOutlet], sql: Any
) -> None:
    one = outlet(KEYED)
    end(one)
    sql.execute(
        "select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name = 'falkirk app' "
        "and datname = current_database()"
    )
    assert append(one, keyed((1, "a")))


READ_ONLY = "alter database {name} set default_transaction_read_only to on"
WRITABLE = "set default_transaction_read_only to off; alter database {name} reset default_transaction_read_only"
TOO_LARGE = (
    "create function no() returns trigger language plpgsql as $$ begin raise numeric_value_out_of_range; end $$; "
    "create trigger no before insert on totals for each row execute function no()"
)


@pytest.mark.parametrize(
    ("prepare", "undo", "words"),
    [
        (READ_ONLY, WRITABLE, "PostgreSQL is read-only"),
        (
            "create unique index other on totals (n)",
            "drop index other",
            r"already has a row with this key: .*\(n\)=\(a\)",
        ),
        (
            "alter table totals add constraint short check (n <> 'a') not valid",
            "alter table totals drop constraint short",
            "refuses a row, by a constraint of the table",
        ),
        (TOO_LARGE, "drop trigger no on totals", "PostgreSQL cannot hold a value"),
    ],
    ids=["read-only", "conflicting key", "constraint", "value"],
)  # fmt: skip
def test_each_obstacle_is_a_wait_with_its_reason_and_ends_with_it(
    prepare: str, undo: str, words: str, outlet: Callable[..., PostgresOutlet], sql: Any, name: str
) -> None:
    one = outlet(KEYED)
    end(one)
    sql.execute("insert into totals values (9, 'a')")
    sql.execute(prepare.format(name=name))
    one.database.close()
    with pytest.raises(AwayError, match=words) as caught:
        append(one, keyed((1, "a")))
    assert "table public.totals" in caught.value.where
    assert "nothing is lost" in caught.value.hint
    assert end(outlet(KEYED)) == 0 if "read_only" not in prepare else True
    sql.execute(undo.format(name=name))
    one.database.close()
    assert append(one, keyed((1, "a")))
    assert end(one) == 1


@pytest.mark.parametrize("code", ["40001", "40P01"])
def test_a_transaction_that_meets_others_is_tried_again_at_once_and_not_forever(
    code: str, outlet: Callable[..., PostgresOutlet], sql: Any
) -> None:
    one = outlet(KEYED)
    end(one)
    # A sequence counts what is rolled back, too.
    sql.execute(
        "create sequence tries; create function meet() returns trigger language plpgsql as $$ begin "
        f"if nextval('tries') <= 4 then raise exception 'met another' using errcode = '{code}'; end if; return new; end $$; "
        "create trigger meet before insert on totals for each row execute function meet()"
    )
    assert append(one, keyed((1, "a")))
    assert sql.execute("select last_value from tries").fetchone() == (5,)
    sql.execute("select setval('tries', 1, false)")
    sql.execute("alter sequence tries minvalue -100 restart with -100")
    with pytest.raises(AwayError, match="met other transactions in each attempt: met another"):
        append(one, keyed((2, "a"), start=1))
    assert sql.execute("select last_value from tries").fetchone() == (-96,)


def test_a_lock_that_somebody_holds_is_waited_for_and_then_told(
    outlet: Callable[..., PostgresOutlet], sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(client.LIMITS, "lock_timeout", "100ms")
    one = outlet(KEYED)
    end(one)
    with sql.transaction():
        sql.execute("lock table totals in access exclusive mode")
        with pytest.raises(AwayError, match="waited for a lock of the table"):
            append(one, keyed((1, "a")))
    assert append(one, keyed((1, "a")))


def test_a_commit_is_durable_though_the_server_would_not_wait_for_its_disk(
    outlet: Callable[..., PostgresOutlet], sql: Any, name: str
) -> None:
    sql.execute(f"alter database {name} set synchronous_commit to off")
    one = outlet(KEYED)
    one.database.begin()
    assert one.database.rows("select current_setting('synchronous_commit')") == [("on",)]
    assert one.database.rows("select current_setting('statement_timeout')") == [("30s",)]
    one.database.undo()


def test_no_error_has_the_password(postgres: Server, name: str) -> None:
    for url in (f"postgresql://app:{PASSWORD}@host", f"password={PASSWORD} oops", f"host=h password='{PASSWORD}"):
        with pytest.raises(ConfigError) as caught:
            Database("shop", url, "app").begin()
        assert PASSWORD not in f"{caught.value!r} {caught.value}"
        assert caught.value.__cause__ is None
    wrong = Database("shop", postgres.url(name, password="not it"), "app")
    with pytest.raises(AwayError, match="password authentication failed") as away:
        wrong.begin()
    assert "not it" not in f"{away.value!r} {away.value} {away.value.__cause__!r}"
    assert f"database 'shop' at postgres@127.0.0.1:{postgres.port}/{name}" in str(away.value)
