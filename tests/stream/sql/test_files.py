"""A file of SQL is a flow."""

from __future__ import annotations

from pathlib import Path

import pytest

import falkirk as fk
from falkirk.stream.flow.load import load_flow
from falkirk.stream.operators import Source

TABLE = "create table orders (customer varchar, region varchar, usd bigint) with (topic='sold', key='customer');\n"
VIEW = "create view paid as select * from orders where usd > 0;\n"
TOTALS = "insert into totals select region, count(*) as n, sum(usd) as usd from paid group by region;\n"
ROWS = [{"customer": "ann", "region": "eu", "usd": 5}, {"customer": "bob", "region": "eu", "usd": 7}]


def loaded(folder: Path, sql: str) -> fk.Flow:
    file = folder / "shop.sql"
    file.write_text(sql)
    return load_flow(str(file))


def test_tables_are_sources_and_views_queries_and_inserts_sinks(tmp_path: Path) -> None:
    flow = loaded(tmp_path, TABLE + VIEW + TOTALS + "insert into copies select customer, usd from paid")
    assert flow.name == "shop"
    app = fk.testing.run(flow, {"sold": ROWS})
    assert app.sinks["totals"].table == {"eu": {"region": "eu", "n": 2, "usd": 12}}
    assert app.sinks["copies"].rows == [{"customer": "ann", "usd": 5}, {"customer": "bob", "usd": 7}]


def test_a_table_that_rows_are_inserted_into_says_how(tmp_path: Path) -> None:
    sink = "create table totals (region varchar, n bigint) with (topic='sums', key='region');\n"
    flow = loaded(
        tmp_path, TABLE + sink + "insert into totals select region, count(*) as n from orders group by region"
    )
    [topic] = [o.topic for s in flow.plan().stages for o in s.outputs if o.topic == "sums"]
    assert topic == "sums"


def test_operators_are_on_lines_of_the_file(tmp_path: Path) -> None:
    from falkirk.stream.flow.explain import explain

    text = explain(loaded(tmp_path, TABLE + VIEW + TOTALS))
    assert "group_by totals.group: region" in text
    assert "shop.sql)" in text


@pytest.mark.parametrize(
    ("sql", "what", "place"),
    [
        (TABLE, "no rows are inserted anywhere", "line 1"),
        (TABLE + "drop table orders;" + TOTALS, "this statement has no effect in a file", "line 2"),
        (
            TABLE.replace("key=", "kee=") + TOTALS,
            "a table has no option 'kee'",
            f"line 1, column {TABLE.index('key=') + 1} ",
        ),
        (TABLE.replace("key=", "topic='sold', key=") + TOTALS, "option 'topic' is given twice", "line 1, column 94 "),
        (TABLE.replace("usd", "region") + VIEW + TOTALS, "two columns are named 'region'", "line 1, column 56 "),
        (TABLE.replace("create", "create temp") + TOTALS, "temporary is not supported here", "line 1, column 19 "),
        (TABLE.replace("with (", "with (start='never', ") + TOTALS, "start='never' is not a valid start", "line 1"),
        (
            TABLE + VIEW.replace("paid", "paid (a, b, c)") + TOTALS,
            "a view has no list of columns",
            "line 2, column 13 ",
        ),
        (
            TABLE + VIEW + "create table totals (region varchar, n varchar, usd bigint);\n" + TOTALS,
            "column 'n' of the table is String, and the query's is Int64",
            "line 4, column 13 ",
        ),
        (TABLE + VIEW + TOTALS.replace("into", "or replace into"), "alternative is not supported here", "line 3"),
        (TABLE + VIEW + TOTALS.replace("totals", "totals by name"), "by name is not supported here", "line 3"),
        (TABLE + VIEW + TOTALS.replace("totals", "shop.totals"), "db is not supported here", "line 3, column 13 "),
        (TABLE.replace(";", "") + VIEW + TOTALS, "the statement before this one has no end", "line 2, column 1 "),
        (TABLE + VIEW.replace(";", "") + TOTALS, "the statement before this one has no end", "line 3, column 1 "),
        (TABLE.replace("table", "tabel") + TOTALS, "the SQL cannot be read", "line 1, column 1 "),
        (TABLE.replace("bigint", "bigin") + VIEW + TOTALS, "", "line 1"),
        (TABLE + VIEW + VIEW + TOTALS, "'paid' is defined twice", "line 3"),
        (TABLE + TOTALS, "there is no table 'paid'", "line 2"),
        (TABLE.replace("topic='sold'", "format='xml'") + VIEW + TOTALS, "the format is not supported", "line 1"),
        ("create table totals (region varchar);" + TABLE + VIEW + TOTALS, "the table has the columns region", "line 3"),
        (TABLE + "insert into out select usd, count(*) as n from orders group by region", "column 'usd' is", "line 2"),
    ],
)
def test_a_wrong_statement_is_refused_at_its_place(tmp_path: Path, sql: str, what: str, place: str) -> None:
    with pytest.raises(fk.FalkirkError) as refused:
        loaded(tmp_path, sql)
    assert what in refused.value.what
    assert place in refused.value.where
    assert "shop.sql" in refused.value.where


def test_a_table_that_is_not_there_is_to_be_created(tmp_path: Path) -> None:
    with pytest.raises(fk.FalkirkError, match=r"create table paid \(…\) before this"):
        loaded(tmp_path, TOTALS)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(fk.FalkirkError, match="cannot read"):
        load_flow(str(tmp_path / "none.sql"))


@pytest.mark.parametrize(
    ("start", "millis"),
    [("latest", "latest"), ("2026-01-01", 1_767_225_600_000), ("2026-01-01T01:00:00+01:00", 1_767_225_600_000)],
)
def test_a_table_says_where_reading_starts(tmp_path: Path, start: str, millis: object) -> None:
    flow = loaded(tmp_path, TABLE.replace("with (", f"with (start='{start}', ") + VIEW + TOTALS)
    assert [source.start for source in flow.graph.operators if isinstance(source, Source)] == [millis]


def test_a_column_may_be_called_start(tmp_path: Path) -> None:
    table = "create table spans (start bigint, k bigint) with (key='k');\n"
    flow = loaded(tmp_path, table + "insert into found select k from spans where (start = 3)")
    rows = [{"start": 3, "k": 1}, {"start": 4, "k": 2}]
    assert [row["k"] for row in fk.testing.run(flow, {"spans": rows}).sinks["found"].rows] == [1]


def test_a_file_may_begin_with_the_mark_of_its_encoding(tmp_path: Path) -> None:
    flow = loaded(tmp_path, "\ufeff" + TABLE + VIEW + TOTALS)
    assert fk.testing.run(flow, {"sold": ROWS}).sinks["totals"].table == {"eu": {"region": "eu", "n": 2, "usd": 12}}
