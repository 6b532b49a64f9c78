"""Names that other tools have and Falkirk does not: what to write instead."""

from __future__ import annotations

import inspect
import re
from itertools import chain
from typing import Any

import narwhals as nw
import pytest

import falkirk as fk
from falkirk.stream.flow import alternatives
from falkirk.stream.flow.joining.lookups import Table
from falkirk.stream.flow.keyed import Grouped, Keyed

TABLES = [
    (fk.Stream, alternatives.STREAM),
    (fk.Flow, alternatives.FLOW),
    (Grouped, alternatives.GROUPED),
    (Keyed, alternatives.KEYED),
    (Table, alternatives.TABLE),
]


@pytest.fixture
def bids() -> fk.Stream:
    return fk.Flow("app").source("bids", value=fk.Json({"auction": int, "price": int}))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("where", 'write .filter(fk.col("price") > 100)'),
        ("apply", "write .map(function)"),
        ("count", "write .group_by("),
        ("groupby", "write .group_by("),
        ("to_topic", "write .sink("),
        ("left_join", "write .join(other, on="),
        ("window", "or fk.session, then .agg("),
        ("filtr", "did you mean 'filter'?"),
    ],
)
def test_a_name_of_another_tool_is_answered_with_falkirks(bids: fk.Stream, name: str, says: str) -> None:
    with pytest.raises(AttributeError, match=f"^Stream has no attribute '{name}': .*{re.escape(says)}"):
        getattr(bids, name)


def test_every_class_of_the_language_answers(bids: fk.Stream) -> None:
    flow = fk.Flow("other")
    table = flow.table("names", key="id", value=fk.Json({"name": str}))
    for thing, name, says in [
        (flow, "topic", "write flow.source("),
        (bids.group_by("auction"), "count", "write .agg(n=fk.len())"),
        (bids.key_by("auction"), "map", "write .process("),
        (table, "join", "write stream.lookup(table)"),
        (fk, "count", "write fk.len()"),
        (fk, "EagerChekpoint", "did you mean 'EagerCheckpoint'?"),
    ]:
        with pytest.raises(AttributeError, match=re.escape(says)):
            getattr(thing, name)


def test_an_unknown_or_private_name_is_a_plain_attribute_error(bids: fk.Stream) -> None:
    for name in ("xyzzy", "_repr_html_", "__array__"):
        assert not hasattr(bids, name)
        with pytest.raises(AttributeError, match=f"^Stream has no attribute '{name}'$"):
            getattr(bids, name)


def test_a_column_is_no_attribute_and_no_item(bids: Any) -> None:
    with pytest.raises(AttributeError, match=r"Stream has no attribute 'price': write fk.col\('price'\)"):
        _ = bids.price > 100
    for use in (lambda: bids["price"], lambda: list(bids)):
        with pytest.raises(TypeError, match=r"Stream has no items: a column is fk.col\(\"price\"\)"):
            use()


def test_help_and_errors_of_a_method_are_about_what_users_give(bids: Any) -> None:
    assert list(inspect.signature(bids.deduplicate).parameters) == ["on", "within", "id", "version"]
    with pytest.raises(TypeError, match=r"^unique\(\): too many positional arguments$"):
        bids.unique("auction")


def test_no_name_is_listed_that_exists_or_twice() -> None:
    for kind, table in TABLES:
        names = list(chain(*(words.split() for words in table.values())))
        assert sorted(names) == sorted(set(names)), kind
        assert [name for name in names if name in dir(kind)] == [], f"{kind} has it now"
    listed = list(chain(*(words.split() for words in alternatives.NAMES.values())))
    assert sorted(listed) == sorted(set(listed))
    assert not set(listed) & set(dir(fk))


def test_every_method_that_is_named_instead_exists() -> None:
    methods = set(
        chain(*(dir(kind) for kind, _ in TABLES), dir(nw.Expr), dir(nw.col("at").dt), ["sinks", "rows", "bids"])
    )
    for text in chain(*(table for _, table in TABLES), alternatives.NAMES):
        for name in re.findall(r"\bfk\.(\w+)", text):
            assert name in dir(fk), text
        for name in re.findall(r"(?<!fk)(?<!fk\.testing)\.(\w+)\(", text):
            assert name in methods, f"{name} in {text}"
