"""Tables and views at a prompt, and the file of each query over them."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import falkirk as fk
from falkirk.cli.prompt.statements import statements
from falkirk.errors import DefinitionError
from falkirk.stream.flow.load import load_flow
from falkirk.stream.sql.catalog import Catalog, Job, kind_of

BIDS = "create table bids (auction bigint, price double, who varchar, at timestamp, tags varchar[])"


@pytest.fixture
def catalog() -> Catalog:
    made = Catalog()
    made.create(BIDS)
    made.create("create table tops (auction bigint, top double) with (topic='best', key='auction', changes='upsert')")
    made.create("create view high as select auction, price from bids where price > 100")
    return made


def loaded(job: Job, folder: Path) -> fk.Flow:
    file = folder / f"{job.name}.sql"
    file.write_text(job.sql)
    return load_flow(str(file))


def test_a_select_becomes_a_file_whose_sink_has_all_changes_of_its_result(catalog: Catalog, tmp_path: Path) -> None:
    job = catalog.select("select auction, count(*) as n from high group by auction order by n desc, 1;", "q")
    assert job.order == (("n", True), ("auction", False))
    assert "create table tops" not in job.sql
    app = fk.testing.App(loaded(job, tmp_path))
    for price in (120.0, 50.0, 130.0):
        app.send("bids", [{"auction": 7, "price": price, "who": "a", "at": None, "tags": []}])
        app.run()
    rows = app.sinks["q"].rows
    assert [(row["auction"], row["n"], row["weight"]) for row in rows] == [(7, 1, 1), (7, 1, -1), (7, 2, 1)]


def test_an_order_with_a_limit_is_part_of_the_query(catalog: Catalog, tmp_path: Path) -> None:
    job = catalog.select("select auction, price from bids order by price desc limit 2", "q")
    assert job.order == ()
    flow = loaded(job, tmp_path)
    rows = [{"auction": i, "price": float(i), "who": "a", "at": None, "tags": []} for i in range(5)]
    assert total(fk.testing.run(flow, {"bids": rows}).sinks["q"].rows) == {(3, 3.0): 1, (4, 4.0): 1}


def test_a_table_of_a_query_that_changes_is_read_as_its_last_rows(catalog: Catalog, tmp_path: Path) -> None:
    entry, job = catalog.create_as(
        "create table counts with (topic='c') as select auction, count(*) as n from bids group by auction", "fill"
    )
    assert entry.options == {"topic": "c", "changes": "upsert", "key": "auction"}
    assert (job.into, job.topic) == ("counts", "c")
    flow = loaded(job, tmp_path)
    rows = [{"auction": 7, "price": 1.0, "who": "a", "at": None, "tags": []}] * 2
    records = fk.testing.run(flow, {"bids": rows}, step_rows=1).sinks["counts"].records
    reading = fk.testing.App(loaded(catalog.select("select * from counts", "q"), tmp_path))
    reading.send("counts", [(record.key, record.value) for record in records])
    reading.run()
    assert total(reading.sinks["q"].rows) == {(7, 2): 1}


def total(changes: list[dict[str, Any]]) -> dict[tuple[Any, ...], int]:
    """How often each row is there after all changes."""
    counts: Counter[tuple[Any, ...]] = Counter()
    for change in changes:
        counts[tuple(v for k, v in change.items() if k != "weight")] += change["weight"]
    return {row: n for row, n in counts.items() if n}


def test_rows_with_lists_are_shown_too(catalog: Catalog, tmp_path: Path) -> None:
    flow = loaded(catalog.select("select auction, tags from bids", "q"), tmp_path)
    rows = [{"auction": 1, "price": 1.0, "who": "a", "at": None, "tags": ["x"]}]
    assert fk.testing.run(flow, {"bids": rows}).sinks["q"].rows == [{"auction": 1, "tags": ["x"], "weight": 1}]


def test_rows_with_decimals_can_be_inserted_shown_and_explained(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create("create table paid (id bigint, region varchar, usd decimal(9, 2))")
    entry, rows = catalog.values("insert into paid values (1, 'eu', 1.50), (2, 'eu', 2.25)")
    assert catalog.reader(entry.name).plan().stages
    for query, due in [
        ("select * from paid", {(1, "eu", Decimal("1.50")): 1, (2, "eu", Decimal("2.25")): 1}),
        ("select usd from paid", {(Decimal("1.50"),): 1, (Decimal("2.25"),): 1}),
        ("select region, sum(usd) as usd from paid group by region", {("eu", Decimal("3.75")): 1}),
        ("select sum(usd) as usd from paid", {(Decimal("3.75"),): 1}),
    ]:
        assert catalog.explained(query).plan().stages
        app = fk.testing.run(loaded(catalog.select(query, "q"), tmp_path), {"paid": rows}, step_rows=1)
        assert total(app.sinks["q"].rows) == due
    with pytest.raises(DefinitionError, match="rows of this result change, and have only decimals, lists or structs"):
        catalog.select("select sum(usd) as usd from paid group by region", "q")


def test_values_become_rows_with_the_types_of_the_table(catalog: Catalog) -> None:
    entry, rows = catalog.values(
        "insert into bids values (1, 2, 'it''s', '2026-01-31 10:00:00', ['a', 'b']), "
        "(-3, 0.5 + 1, null, timestamp '2026-01-31' + interval '1' hour, null)"
    )
    assert entry.name == "bids"
    assert rows.schema == entry.schema
    assert rows.rows()[0][:3] == (1, 2.0, "it's")
    assert rows.rows()[1][:3] == (-3, 1.5, None)
    assert [str(at)[:19] for at in rows["at"]] == ["2026-01-31 10:00:00", "2026-01-31 01:00:00"]
    assert rows["tags"].to_list() == [["a", "b"], None]
    _, named = catalog.values("insert into bids (who, auction) values ('a', 5)")
    assert named.select("auction", "price", "who").rows() == [(5, None, "a")]


def test_explain_knows_the_tables(catalog: Catalog) -> None:
    assert catalog.explained("        select who from bids").plan().stages[0].id == "bids"


def test_tables_come_from_toml(tmp_path: Path) -> None:
    catalog = Catalog()
    catalog.add_toml({"t": {"columns": {"it's": "bigint"}, "topic": "x", "key": "it's"}}, "tables.toml")
    assert catalog.entries["t"].topic == "x"
    assert catalog.entries["t"].schema == {"it's": pl.Int64()}
    with pytest.raises(fk.FalkirkError, match="table 'u' has no columns"):
        catalog.add_toml({"u": {"topic": "x"}}, "tables.toml")


WRONG: list[tuple[str, str, str]] = [
    ("create table bids (a bigint)", "'bids' exists", "drop table bids"),
    ("create table t (a bigin)", "not a type", "bigint"),
    ("insert into nowhere select auction from bids", "there is no table 'nowhere'", "bids"),
    ("insert into high values (1, 2)", "'high' is a view", "insert into a table"),
    ("insert into bids values (1)", "this row has 1 values", "one value for each column"),
    ("insert into bids (auction, prize) values (1, 2)", "there is no column 'prize'", "price"),
    ("insert into bids (auction) values (who)", "'who' is a name", "in quotes"),
    ("insert into bids (auction) values ('x')", "this is String, and column 'auction' is Int64", "cast"),
    ("insert into bids (auction) values (99999999999999999999)", "this is not a value of column", ""),
    ("insert into bids (at) values ('yesterday')", "'yesterday' is not a timestamp", "2026"),
    ("insert into bids select auction, count(*) as price from bids group by auction", "there is no table 'bids'", ""),
    ("select price - '2026-01-31' from bids order by nope", "- takes numbers", ""),
    ("select price from bids order by who", "order by takes columns of the result", "select it too"),
    ("select at - timestamp '2026-01-31' as d from bids", "which no record can hold", "cast it"),
    ("drop table nowhere", "there is no table 'nowhere'", "bids"),
    ("create table t as select price from bids qualify row_number() over (partition by who order by at) <= 2",
     "nothing identifies them", "key="),
    ("insert into stays select auction, top from tops", "'stays' takes rows that stay", "changes='upsert'"),
    ("select 1; select 2", "this is not one statement", "end each with ;"),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "what", "hint"), WRONG)
def test_a_wrong_statement_is_refused_and_changes_nothing(catalog: Catalog, sql: str, what: str, hint: str) -> None:
    catalog.create("create table stays (auction bigint, top double)")
    before = dict(catalog.entries)
    with pytest.raises(fk.FalkirkError) as refused:
        done(catalog, sql)
    assert what in refused.value.what
    assert hint in refused.value.hint
    assert catalog.entries == before


def done(catalog: Catalog, sql: str) -> Any:
    doing = {"select": catalog.select, "insert": catalog.insert, "create as": catalog.create_as}
    alone = {"values": catalog.values, "create": catalog.create, "drop": catalog.drop}
    kind = kind_of(sql)
    return doing[kind](sql, "job") if kind in doing else alone[kind](sql)


def test_a_comment_at_the_end_of_a_statement_does_not_hide_the_next_one(tmp_path: Path) -> None:
    catalog = Catalog()
    catalog.create("create table bids (auction bigint) -- all bids\n")
    catalog.create("create view low as select auction from bids where auction < 9 -- ; few\n;")
    file = tmp_path / "q.sql"
    file.write_text(catalog.select("select auction from low /* them */ -- here", "q").sql)
    rows = [{"auction": 1}, {"auction": 9}]
    assert [row["auction"] for row in fk.testing.run(load_flow(str(file)), {"bids": rows}).sinks["q"].rows] == [1]
    kept = iter("".join(f"{entry.sql};\n" for entry in catalog.entries.values()).splitlines())
    assert [kind_of(sql) for sql in statements(lambda _: next(kept, None))] == ["create", "create"]
