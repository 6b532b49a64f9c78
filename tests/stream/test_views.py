"""What the records of a flow's topics say to people."""

from __future__ import annotations

import pytest

import falkirk as fk
from falkirk.cli.commands.peek import chosen
from falkirk.errors import ConfigError
from falkirk.stream.access.endpoints import View, views_named, views_of
from falkirk.stream.stages.plan import Plan
from falkirk.testing.memory import MemoryApp, Record


def flow() -> fk.Flow:
    flow = fk.Flow("shop")
    sales = flow.source(
        "sales", key="item", value=fk.Json({"item": str, "place": str, "n": int, "at": fk.Datetime}), topic="t.sales"
    )
    sales.group_by("place", id="places").agg(n=fk.sum("n")).sink("places", key="place", value=fk.Json())
    items = sales.group_by("item", id="items").agg(n=fk.len())
    items.sink("items", key=["n", "item"], value=fk.Json())
    items.group_by("n", id="often").agg(k=fk.len()).sink("often", key=fk.Key("n", fk.Int64BE), value=fk.Json())
    whole = sales.with_regime(fk.Batch())
    whole.group_by("place", id="usual").agg(n=fk.mean("n")).sink("usual", key="place", value=fk.Json())
    sales.select("item").sink("sales", value=fk.Text("item"))
    return flow


def look(app: MemoryApp, view: View) -> list[tuple[object, object, int]]:
    return [(row.key, row.values, row.weight) for row in view.rows(app.records(view.topic))]


def view_named(views: list[View], name: str) -> View:
    """The one that `falkirk peek` shows."""
    return views_named(views, name)[0]


def planned() -> Plan:
    return flow().plan()


def test_every_source_sink_and_edge_can_be_looked_at() -> None:
    views = views_of(planned())
    found = {(v.kind, v.name, v.topic, v.stage) for v in views}
    assert found == {
        ("source", "sales", "t.sales", ""),
        ("sink", "places", "places", ""),
        ("sink", "items", "items", ""),
        ("sink", "often", "often", ""),
        ("sink", "sales", "sales", ""),
        ("sink", "usual", "usual", "usual"),
        ("edge", "places", "falkirk.shop.edge.places", ""),
        ("edge", "often", "falkirk.shop.edge.often", ""),
    }
    assert view_named(views, "t.sales").columns == ("item", "place", "n", "at"), "columns that nothing uses too"
    assert [v.kind for v in views_named(views, "places")] == ["sink", "edge"]
    assert [v.kind for v in views_named(views, "edge:places")] == ["edge"]
    with pytest.raises(ConfigError, match=r"no source, table, sink or edge 'itmes'\n  to do: did you mean 'items'"):
        view_named(views, "itmes")


def test_records_are_read_by_the_flows_formats_and_edges_row_by_row() -> None:
    app, views = MemoryApp(flow()), views_of(planned())
    for n, at in ((1, "2026-01-31T12:00:00.000Z"), (2, None)):
        stamp = f'"{at}"' if at else "null"
        app.append("t.sales", b"tea", f'{{"item":"tea","place":"Bath","n":{n},"at":{stamp}}}'.encode(), timestamp=n)
        app.run()
    (first, second) = look(app, view_named(views, "source:sales"))
    assert first[0] == second[0] == "tea"
    assert str(first[1]["at"]) == "2026-01-31 12:00:00+00:00"  # type: ignore[index]
    assert look(app, view_named(views, "edge:places")) == [
        (None, {"place": "Bath", "n": 1}, 1),
        (None, {"place": "Bath", "n": 2}, 1),
    ]
    once, twice = ({"item": "tea", "n": n} for n in (1, 2))
    edge = look(app, view_named(views, "edge:often"))
    assert [(v["n"], weight) for _, v, weight in edge] == [(1, 1), (1, -1), (2, 1)]  # type: ignore[index]
    assert [k for k, _, _ in look(app, view_named(views, "sink:often"))] == [1, 1, 2]
    items = look(app, view_named(views, "items"))
    assert sorted(items, key=str) == sorted(
        [([1, "tea"], once, 1), ([1, "tea"], None, 1), ([2, "tea"], twice, 1)], key=str
    )
    assert look(app, view_named(views, "sink:sales")) == [(None, {"item": "tea"}, 1)] * 2


def test_a_tables_keys_are_read_whether_its_values_have_them_or_not() -> None:
    shop = fk.Flow("shop")
    sales = shop.source("sales", key="item", value=fk.Json({"item": int}))
    names = shop.table("names", key=fk.Key("item", fk.Int64BE), value=fk.Json({"name": str}))
    rates = shop.table("rates", key="item", value=fk.Json({"item": int, "rate": float}), broadcast=True)
    sales.lookup(names).lookup(rates).sink("named", value=fk.Json())
    views = views_of(shop.plan())
    assert [v.name for v in views if v.kind == "table"] == ["names", "rates"]
    rows = view_named(views, "names").rows(
        [Record(0, 0, b"\0" * 7 + b"\7", b'{"name":"tea"}'), Record(0, 1, b"\0" * 8, None)]
    )
    assert [(row.key, row.values) for row in rows] == [(7, {"name": "tea"}), (0, None)]
    (rate,) = view_named(views, "table:rates").rows([Record(0, 0, b"7", b'{"rate":0.5}')])
    assert (rate.key, rate.values) == (7, {"item": None, "rate": 0.5})


def test_a_topic_that_is_a_sink_and_a_table_is_shown_as_the_sink_and_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shop = fk.Flow("shop")
    sales = shop.source("sales", key="item", value=fk.Json({"item": int, "n": int}))
    totals = sales.with_regime(fk.Batch(every="1h")).group_by("item", id="all").agg(n=fk.sum("n"))
    totals.sink("totals", key="item", value=fk.Json())
    table = shop.table("totals", key="item", value=fk.Json({"item": int, "n": int}), broadcast=True)
    sales.select("item").lookup(table).sink("out", value=fk.Json())
    views = views_of(shop.plan())
    assert chosen(views, "totals").kind == "sink"
    assert capsys.readouterr().err == "totals: showing the sink; for the table give table:totals\n"
    assert chosen(views, "table:totals").kind == "table"
    assert capsys.readouterr().err == ""


def test_what_cannot_be_read_stops_nothing() -> None:
    views = views_of(planned())
    edge = view_named(views, "edge:places").rows(
        [Record(0, 0, None, b"\x01no arrow"), Record(0, 1, None, b"\x07"), Record(0, 2, None, None)]
    )
    assert [row.values for row in edge] == [None] * 3
    assert all(row.unreadable for row in edge)
    assert edge[0].raw == b"\x01no arrow"
    source = view_named(views, "source:sales").rows(
        [Record(0, 0, b"\xff", b'{"item":"tea"}'), Record(0, 1, b"tea", b"[]"), Record(0, 2, b"tea", b'{"item":"tea"}')]
    )
    assert [bool(row.unreadable) for row in source] == [True, True, False]
    assert source[2].values == {"item": "tea", "place": None, "n": None, "at": None}


@pytest.mark.parametrize("header", [b"", b"stats/0", b"a b c", b"\xff 1 2"])
def test_headers_of_others_are_not_taken_for_ours(header: bytes) -> None:
    (row,) = View("t", "topic", "t").rows(
        [Record(0, 0, None, b"v", 0, (("falkirk", header), ("falkirk-epoch", header)))]
    )
    assert (row.maker, row.epoch, row.values) == (None, None, {"value": b"v"})
