"""What is wrong with a flow is said when it is written: what, at which line, and what to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

import falkirk as fk

Build = Callable[[fk.Flow, fk.Stream], Any]


class NoResult(fk.Aggregate):
    state = {"n": int}  # noqa: RUF012
    returns = int

    def add(self, state: Any, values: Any) -> Any:
        return {"n": 1}


class NoRetract(NoResult):
    def result(self, state: Any) -> int:
        return 1


def table(s: fk.Stream) -> fk.Stream:
    return s.group_by("auction").agg(n=fk.len(), name=fk.max("name"))


def lists(f: fk.Flow) -> fk.Stream:
    return f.source("lists", value=fk.Json({"k": str, "l": list[int]}))


JSON = fk.Json({"auction": fk.Int64, "price": fk.Int64, "name": fk.String})
WRONG: list[tuple[str, Build, str]] = [
    ("unknown column", lambda f, s: s.filter(fk.col("pirce") > 1), "did you mean 'price'"),
    ("unknown column in select", lambda f, s: s.select("nmae"), "did you mean 'name'"),
    ("unknown column to group by", lambda f, s: s.group_by("auctoin"), "did you mean 'auction'"),
    ("wrong type", lambda f, s: s.filter(fk.col("name") > 1), "cannot compare string"),
    (
        "wrong arithmetic",
        lambda f, s: s.with_columns(x=fk.col("price") + fk.col("name").str.len_chars() + "a"),
        "not allowed",
    ),
    ("wrong method", lambda f, s: s.with_columns(x=fk.col("price").str.len_chars()), "expected `String`"),
    ("predicate that is no predicate", lambda f, s: s.filter(fk.col("price") + 1), "is Int64"),
    (
        "aggregate among rows",
        lambda f, s: s.select(fk.col("price").sum()),
        "price.sum() is not row-wise: sum needs more than one row",
    ),
    ("window", lambda f, s: s.with_columns(x=fk.col("price").shift(1)), "x = price.shift(n=1) is not row-wise: shift"),
    (
        "aggregate deep inside",
        lambda f, s: s.filter(fk.col("price") > fk.col("price").mean()),
        "price > price.mean() is not row-wise: mean needs more than one row",
    ),
    ("when without then", lambda f, s: s.with_columns(x=fk.when(fk.col("price") > 1)), ".then(value)"),
    (
        "over in a group",
        lambda f, s: s.group_by("name").agg(x=fk.max("price").over("auction")),
        "a column of each row, because of its .over",
    ),
    ("equal to None", lambda f, s: s.filter(fk.col("name") == None), "name == None compares with None"),  # noqa: E711
    ("unequal to None, deep inside", lambda f, s: s.filter(~(fk.col("name") != None)), "is_null()"),  # noqa: E711
    ("None in a list", lambda f, s: s.filter(fk.col("name").is_in(["a", None])), "compares with None"),
    (
        "None in an aggregate",
        lambda f, s: s.group_by("auction").agg(x=fk.sum(fk.col("name") == None)),  # noqa: E711
        "compares with None",
    ),
    ("unknown column excluded", lambda f, s: s.select(fk.exclude("pirce")), "did you mean 'price'"),
    ("all columns excluded", lambda f, s: s.select(fk.exclude("auction", "price", "name")), "no column is selected"),
    (
        "text for a column",
        lambda f, s: s.select("price", x=fk.when(fk.col("price") > 1).then("dear")),
        "a text is fk.lit('dear')",
    ),
    ("text for a named column", lambda f, s: s.with_columns(kind="dear"), "a text is fk.lit('dear')"),
    (
        "decimal without digits in a cast",
        lambda f, s: s.select(x=fk.col("price").cast(fk.Decimal)),
        "fk.Decimal(18, 2)",
    ),
    (
        "time without a zone",
        lambda f, s: f.source("t", value=fk.Json({"at": datetime})).filter(fk.col("at") > datetime(2026, 1, 1)),  # noqa: DTZ001
        "tzinfo=UTC",
    ),
    ("number for a flow's name", lambda f, s: fk.Flow(7), "7 is not a valid name for a flow"),  # type: ignore[arg-type]
    ("text for a number of rows", lambda f, s: fk.EagerCheckpoint(max_rows="10"), "is not a whole number"),  # type: ignore[arg-type]
    ("list of streams", lambda f, s: s.concat([s, s]), "pass streams: a.concat(b, c)"),  # type: ignore[list-item]
    ("name of a stream", lambda f, s: s.subtract("other"), "'other' is not a stream"),  # type: ignore[arg-type]
    ("name of a topic for a pattern", lambda f, s: f.source("x", topic="orders-*", value=JSON), "fk.Pattern"),
    ("name that no sink's topic can have", lambda f, s: s.sink("x", topic="a b", value=fk.Json()), "named 'a b'"),
    ("text for a list of metadata", lambda f, s: f.source("x", value=JSON, metadata="offset"), "metadata=['offset']"),
    ("nothing for SQL", lambda f, s: f.sql(None), "None is not SQL"),  # type: ignore[arg-type]
    ("address of no registry", lambda f, s: fk.Registry("registry:8081"), "begin with http://"),
    ("address for a registry", lambda f, s: fk.Avro(registry="http://r"), "registry=fk.Registry("),  # type: ignore[call-overload]
    ("object that is no process", lambda f, s: s.key_by("name").process(object()), "fk.Process"),  # type: ignore[call-overload]
    ("constants only", lambda f, s: s.select(one=1), "only constants"),
    ("nothing selected", lambda f, s: s.select(), "no expression"),
    ("list selected", lambda f, s: s.select(["auction", "price"]), "a list is no expression"),
    ("list of predicates", lambda f, s: s.filter([fk.col("price") > 1]), "a list is no expression"),
    ("list of expressions", lambda f, s: s.with_columns(x=[fk.col("price")]), "a list is no expression"),
    ("constant predicate", lambda f, s: s.filter(True), "the predicate True reads no column"),
    ("no predicate", lambda f, s: s.filter(None), "the predicate None reads no column"),
    (
        "field with a point",
        lambda f, s: f.source("x", value=fk.Json({"x": fk.Struct({"a": int})})).filter(fk.col("x.a") > 1),
        "a field is fk.col('x').struct.field('a')",
    ),
    (
        "unknown field",
        lambda f, s: f.source("x", value=fk.Json({"x": fk.Struct({"a": int})})).select(fk.col("x").struct.field("b")),
        "there is no field 'b'",
    ),
    *[
        (
            f"{parsing} without a format",
            lambda f, s, p=parsing: s.select(x=getattr(fk.col("name").str, p)()),
            "has no format",
        )
        for parsing in ("to_datetime", "to_date", "to_time")
    ],
    ("Polars expression", lambda f, s: s.filter(pl.col("price") > 1), "is a Polars expression"),
    (
        "sum of text",
        lambda f, s: s.group_by("auction").agg(x=fk.sum("name")),
        'fk.sum(fk.col("name").cast(fk.Float64))',
    ),
    ("mean of text", lambda f, s: s.group_by("auction").agg(x=fk.mean("name")), "mean of 'name'"),
    ("unknown column to sum", lambda f, s: s.group_by("auction").agg(x=fk.sum("pric")), "did you mean 'price'"),
    ("no aggregate", lambda f, s: s.group_by("auction").agg(), "agg() has no aggregates"),
    ("not an aggregate", lambda f, s: s.group_by("auction").agg(x=fk.col("price")), "is not an aggregate"),
    ("aggregate named as the key", lambda f, s: s.group_by("auction").agg(auction=fk.len()), "column of the group"),
    (
        "aggregate of an aggregating expression",
        lambda f, s: s.group_by("auction").agg(x=fk.sum(fk.col("price").max())),
        "not row-wise",
    ),
    (
        "aggregate class without result",
        lambda f, s: s.group_by("auction").agg(x=NoResult("price")),
        "does not define `result`",
    ),
    (
        "aggregate that cannot take back",
        lambda f, s: table(s).group_by("n").agg(x=NoRetract("n")),
        "does not define `retract`",
    ),
    ("class of an aggregate", lambda f, s: s.group_by("auction").agg(x=NoRetract), "x=NoRetract is a class"),
    ("aggregate of no column", lambda f, s: s.group_by("auction").agg(x=NoRetract()), "of no column"),
    ("no columns to group by", lambda f, s: s.group_by(), "there is no column"),
    ("expression to group by", lambda f, s: s.group_by(fk.col("auction")), "is not a column name"),
    ("column twice", lambda f, s: s.group_by("auction", "auction"), "named twice"),
    (
        "two groupings of one id",
        lambda f, s: [s.group_by("auction", id="x").agg(n=fk.len()) for _ in "ab"],
        "two operators are named 'x'",
    ),
    ("two groupings of one derived id", lambda f, s: [table(s), table(s)], "two operators are named 'by.auction'"),
    ("two sources of one name", lambda f, s: f.source("bids", value=JSON), "two operators are named 'bids'"),
    (
        "two sinks of one name",
        lambda f, s: [s.sink("out", value=fk.Json()) for _ in "ab"],
        "two operators are named 'out'",
    ),
    ("sink key missing", lambda f, s: s.sink("out", key="acution", value=fk.Json()), "did you mean 'auction'"),
    ("table without a sink key", lambda f, s: table(s).sink("out", value=fk.Json()), "the sink has none"),
    (
        "sink key that does not tell apart",
        lambda f, s: table(s).sink("out", key="n", value=fk.Json()),
        "does not identify a row",
    ),
    ("sink format that does not fit", lambda f, s: s.sink("out", value=fk.Text()), ""),
    ("source format without a schema", lambda f, s: f.source("x", value=fk.Json()), "needs a schema"),
    ("source key missing", lambda f, s: f.source("x", key="id", value=JSON), "no column 'id'"),
    (
        "repartition by nothing",
        lambda f, s: f.source("x", value=JSON, repartition=True),
        "repartition=True needs a key",
    ),
    ("unknown metadata", lambda f, s: f.source("x", value=JSON, metadata=["ofset"]), "did you mean 'offset'"),
    (
        "metadata named as a column",
        lambda f, s: f.source("x", value=JSON, metadata={"name": "key"}),
        "rename the latter",
    ),
    ("list of times", lambda f, s: f.source("x", value=JSON, time=["price"]), "is not a column name"),
    (
        "expression to order by",
        lambda f, s: s.group_by("auction").top_k(1, by=-fk.col("price")),
        "is not a column name",
    ),
    *[
        (
            f"column {c!r}",
            lambda f, s, c=c: f.source("x", value=fk.Json({c: int, "v": int})),
            "cannot be the name of a column",
        )
        for c in ("", "*", "^v$", "^.*$", "a\nb", "a\n", "\u2028a")
    ],
    ("column renamed to a pattern", lambda f, s: s.select(fk.col("price").alias("*")), "cannot be the name"),
    ("unknown start", lambda f, s: f.source("x", value=JSON, start="now"), "is not a valid start"),
    ("start without a zone", lambda f, s: f.source("x", value=JSON, start=datetime(2026, 1, 1)), "has no zone"),  # noqa: DTZ001
    ("bad name", lambda f, s: f.source("a b", value=JSON), "is not a valid name for a source"),
    ("other columns in concat", lambda f, s: s.concat(s.select("name")), "other columns"),
    ("concat across flows", lambda f, s: s.concat(fk.Flow("other").source("x", value=JSON)), "different flows"),
    ("not a function", lambda f, s: s.map("upper"), "is not a function"),
    ("process of a table", lambda f, s: table(s).key_by("auction").process(lambda r, k: None), "cannot take them back"),
    ("process class", lambda f, s: s.key_by("auction").process(fk.Process), "pass an object"),
    (
        "process with nested state",
        lambda f, s: s.key_by("auction").process(lambda r, k: None, state={"l": list[int]}),
        "state cannot hold",
    ),
    ("dict for a type", lambda f, s: f.source("x", value=fk.Json({"a": dict})), "name the fields of the nested object"),
    ("dict for a type", lambda f, s: f.source("x", value=fk.Json({"a": dict[str, int]})), "name the fields"),
    ("list of nothing", lambda f, s: f.source("x", value=fk.Json({"a": list})), "say of what: list[str]"),
    ("decimal without digits", lambda f, s: f.source("x", value=fk.Json({"a": Decimal})), "fk.Decimal(18, 2)"),
    ("schema that is none", lambda f, s: f.source("x", value=fk.Json("a")), "give a dict of types"),
    ("column without a name", lambda f, s: f.source("x", value=fk.Json({1: int})), "is a string"),
    ("name of a format", lambda f, s: f.source("x", value="json"), "write value=fk.Json("),
    ("name of a sink's format", lambda f, s: s.sink("x", value="avro"), "write value=fk.Avro("),
    ("number for a key", lambda f, s: f.source("x", key=7, value=JSON), "is not a column name"),
    ("type for a key's format", lambda f, s: f.source("x", key=fk.Key("auction", int), value=JSON), "fk.Int64BE"),  # type: ignore[arg-type]
    ("type for text", lambda f, s: f.source("x", value=fk.Text(int)), 'fk.Text("name")'),  # type: ignore[arg-type]
    ("max of a list", lambda f, s: lists(f).group_by("k").agg(x=fk.max("l")), "numbers, times, text"),
    ("dict for a format", lambda f, s: f.source("x", value={"a": fk.Int64}), "is not a format"),
    ("dict for a sink's format", lambda f, s: s.sink("x", value={"a": fk.Int64}), "is not a format"),
    ("column of ours", lambda f, s: s.select(__falkirk_ts="price"), "reserved for Falkirk"),
    ("no regime", lambda f, s: s.with_regime("lazy"), "is not a regime"),
    ("bad duration", lambda f, s: fk.EagerCheckpoint(step="soon"), "is not a duration"),
    ("needs a schema", lambda f, s: s.map(dict, returns={}), ""),
    ("no type", lambda f, s: s.map(dict, returns={"a": "Int64"}), ""),
]


@pytest.mark.parametrize(("build", "says"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_a_wrong_definition_is_refused_in_words(build: Build, says: str) -> None:
    flow = fk.Flow("app")
    stream = flow.source("bids", key="auction", value=JSON)
    with pytest.raises(fk.FalkirkError) as caught:
        build(flow, stream)
    assert type(caught.value).__name__ == "DefinitionError"
    assert says in str(caught.value)
    assert "test_definition.py:" in caught.value.where, "an error without the user's line"
    assert caught.value.hint, "an error without a fix"


def test_errors_name_the_line_of_the_users_call() -> None:
    stream = fk.Flow("app").source("bids", key="auction", value=JSON)
    with pytest.raises(fk.FalkirkError) as caught:
        stream.filter(fk.col("pirce") > 1)
    line = caught.traceback[0].lineno + 1
    assert f"test_definition.py:{line}" in caught.value.where


def test_a_flow_that_does_nothing_is_refused() -> None:
    flow = fk.Flow("app")
    with pytest.raises(fk.FalkirkError, match="has no sink and no other effect"):
        flow.plan()
    flow.source("bids", value=JSON).filter(fk.col("price") > 1)
    with pytest.raises(fk.FalkirkError, match="has no sink and no other effect"):
        flow.plan()
    flow.source("used", value=JSON).sink("out", value=fk.Json())
    with pytest.raises(fk.FalkirkError, match="nothing uses the source"):
        flow.plan()


@dataclasses.dataclass
class Bid:
    auction: int
    price: int | None


def test_schemas_are_dicts_dataclasses_or_typed_dicts() -> None:
    assert fk.Flow("app").source("bids", value=fk.Json(Bid)).schema == {"auction": pl.Int64(), "price": pl.Int64()}


def test_a_class_stands_for_its_format() -> None:
    stream = fk.Flow("app").source("lines", value=fk.Text)
    stream.sink("copy", value=fk.Text)
    assert stream.schema == {"value": pl.String()}


def test_expressions_may_choose_among_all_columns_but_see_the_users_alone() -> None:
    stream = fk.Flow("app").source("bids", key="auction", value=JSON)
    assert stream.select(fk.all()).schema == stream.schema
    assert table(stream.select(fk.all())).schema.names() == ["auction", "n", "name"]


def test_the_fingerprint_follows_ids_versions_and_state_but_not_code() -> None:
    def fingerprint(price: int = 1, version: int = 1, **aggregates: Any) -> str:
        flow = fk.Flow("app")
        bids = flow.source("bids", key="auction", value=JSON)
        kept = aggregates or {"n": fk.len()}
        grouped = bids.filter(fk.col("price") > price).group_by("auction", id="x", version=version).agg(**kept)
        grouped.sink("out", key="auction", value=fk.Json())
        return flow.plan().stages[0].fingerprint

    assert fingerprint() == fingerprint(price=2)
    others = [
        fingerprint(version=2),
        fingerprint(m=fk.len()),
        fingerprint(n=fk.max("price")),
        fingerprint(n=fk.max("name")),
    ]
    assert len({fingerprint(), *others}) == 5
