"""The tables of a sink: what does not fit, what the user may not do, and what is gone."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from tests.connectors.postgres.chunks import KEYED, SECOND, Make, append, end, keyed
from tests.postgres import PASSWORD

from falkirk.errors import AwayError, ConfigError, StateError
from falkirk.stream.definition.outlets import TablePlan

pytestmark = pytest.mark.containers


@pytest.mark.parametrize("table", ["totals", "Order"])
def test_a_table_that_does_not_fit_is_refused_with_each_difference_and_its_fix(
    outlet: Make, sql: Any, table: str
) -> None:
    sql.execute(f'create unlogged table "{table}" (id integer, n varchar(5), made timestamptz not null)')
    plan = replace(KEYED, table=table)
    with pytest.raises(ConfigError) as caught:
        outlet(plan).tables.check()
    assert caught.value.what == (
        f"table public.{table} does not fit the flow: it is unlogged, so that a crash of the server empties it; "
        "column 'id' is integer, and the flow's needs bigint; column 'n' is character varying(5), and the flow's needs text; "
        "column 'made' must not be null, and the flow does not have it; no unique index has exactly \"id\""
    )
    for fix in caught.value.hint.split("; "):
        sql.execute(fix)
    assert outlet(plan).tables.check().endswith("its columns fit")
    assert not sql.execute("select to_regclass('falkirk_positions')").fetchone()[0], "a check creates nothing"


def test_a_table_of_the_users_own_with_more_columns_is_written(outlet: Make, sql: Any) -> None:
    sql.execute(
        "create schema own; create table own.totals (id numeric unique, n text not null, seen timestamptz default now())"
    )
    one = outlet(TablePlan("shop", "own.totals", ("id",), KEYED.columns, SECOND))
    end(one)
    assert append(one, keyed((1, "a"), (1, "b")))
    assert sql.execute("select id, n, seen is not null from own.totals").fetchall() == [(1, "b", True)]


def test_rights_that_the_user_lacks_are_named_with_what_grants_them(outlet: Make, sql: Any, name: str) -> None:
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


def test_a_table_that_is_dropped_is_not_created_again_without_its_rows(outlet: Make, sql: Any) -> None:
    one = outlet(KEYED)
    end(one)
    append(one, keyed((1, "a")))
    sql.execute("drop table totals")
    with pytest.raises(AwayError, match=r"table public\.totals is gone, and the app has written rows to it"):
        append(one, keyed((2, "a"), start=1))
    with pytest.raises(AwayError, match="is gone"):
        end(outlet(KEYED))
    assert end(outlet(KEYED, "after a reset")) == 0


def test_a_table_that_changes_while_the_app_runs_is_a_wait_that_lists_the_differences(outlet: Make, sql: Any) -> None:
    one = outlet(KEYED)
    end(one)
    sql.execute("alter table totals drop column n")
    with pytest.raises(AwayError, match="it has no column 'n'") as caught:
        append(one, keyed((1, "a")))
    sql.execute(caught.value.hint)
    assert append(one, keyed((1, "a")))


def test_a_database_of_an_older_backup_goes_on_if_the_log_has_what_follows_and_else_says_what_is_missing(
    outlet: Make, sql: Any
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
