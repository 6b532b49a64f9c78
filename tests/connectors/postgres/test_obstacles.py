"""What keeps rows from a table is a wait that says why, and ends by itself when the cause is gone."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import pytest
from tests.connectors.postgres.chunks import KEYED, Make, append, end, keyed
from tests.postgres import PASSWORD, Server

from falkirk.connectors.postgres import client
from falkirk.connectors.postgres.client import Database, driver
from falkirk.connectors.postgres.outlet import PostgresOutlet
from falkirk.errors import AwayError, ConfigError

pytestmark = pytest.mark.containers


def test_a_server_that_is_killed_is_a_wait_and_then_goes_on(outlet: Make, postgres: Server) -> None:
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


def test_a_connection_that_ended_while_it_was_idle_is_no_outage(outlet: Make, sql: Any) -> None:
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
    prepare: str, undo: str, words: str, outlet: Make, sql: Any, name: str
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


@pytest.mark.parametrize("ask", [end, lambda one: append(one, keyed((1, "a")))], ids=["end", "append"])
def test_a_server_that_has_become_read_only_is_given_up_for_the_one_that_the_address_leads_to_then(
    ask: Callable[[PostgresOutlet], object], outlet: Make, sql: Any, name: str
) -> None:
    """After a failover the old primary is a standby, and stays one for connections to it."""
    one = outlet(KEYED)
    end(one)
    sql.execute(READ_ONLY.format(name=name))
    one.database.close()
    with pytest.raises(AwayError, match="PostgreSQL is read-only"):
        ask(one)
    sql.execute(WRITABLE.format(name=name))  # for new connections
    ask(one)


@pytest.mark.parametrize("code", ["40001", "40P01"])
def test_a_transaction_that_meets_others_is_tried_again_at_once_and_not_forever(
    code: str, outlet: Make, sql: Any
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
    outlet: Make, sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(client.LIMITS, "lock_timeout", "100ms")
    one = outlet(KEYED)
    end(one)
    with sql.transaction():
        sql.execute("lock table totals in access exclusive mode")
        with pytest.raises(AwayError, match="waited for a lock of the table"):
            append(one, keyed((1, "a")))
    assert append(one, keyed((1, "a")))


def test_a_commit_is_durable_though_the_server_would_not_wait_for_its_disk(outlet: Make, sql: Any, name: str) -> None:
    sql.execute(f"alter database {name} set synchronous_commit to off")
    one = outlet(KEYED)
    one.database.begin()
    assert one.database.rows("select current_setting('synchronous_commit')") == [("on",)]
    assert one.database.rows("select current_setting('statement_timeout')") == [("30s",)]
    one.database.undo()


def test_an_address_sets_other_time_outs(postgres: Server, name: str) -> None:
    url = f"{postgres.url(name)}?options=-c%20statement_timeout%3D2min%20-c%20search_path%3Dpublic"
    database = Database("shop", url, "app")
    database.begin()
    asked = "select current_setting('statement_timeout'), current_setting('lock_timeout')"
    assert database.rows(asked) == [("2min", "10s")]
    database.close()


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


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "psycopg":
            raise ImportError("No module named 'psycopg'")
        return plain(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match="needs psycopg, which is not installed") as caught:
        driver()
    assert caught.value.hint == "pip install 'falkirk[postgres]'"
