"""Statements of the prompt that need no Kafka."""

from __future__ import annotations

import io
from typing import Any

import polars as pl
import pytest
from rich.console import Console

from falkirk.cli.prompt.results import Results
from falkirk.cli.prompt.session import Session
from falkirk.stream.sql.catalog import Catalog


@pytest.mark.parametrize("statement", ["describe clicks;", "desc clicks ;", "describe clicks"])
def test_a_semicolon_is_no_part_of_a_name(statement: str, capsys: pytest.CaptureFixture[str]) -> None:
    apps: Any = None
    session = Session(apps, Catalog(), Console(file=io.StringIO()), lambda: None)
    session.run("create table clicks (a bigint) with (topic='clicks', key='a')")
    capsys.readouterr()
    assert session.run(statement)
    assert capsys.readouterr().out.splitlines()[2:] == ["a      | bigint"]
    assert not session.run("quit;")


def test_a_statement_may_go_on_after_its_first_word_on_the_next_line(capsys: pytest.CaptureFixture[str]) -> None:
    apps: Any = None
    session = Session(apps, Catalog(), Console(file=io.StringIO()), lambda: None)
    session.run("create table clicks (a bigint)")
    assert session.run("explain\nselect a from clicks where a > 1")
    assert "filter" in capsys.readouterr().out
    assert session.run("show\ttables")
    assert "clicks" in capsys.readouterr().out


def test_a_result_can_be_sorted_by_lists_and_structs_with_nulls_in_them() -> None:
    columns = {"tags": pl.List(pl.String()), "at": pl.Struct({"x": pl.Int64()})}
    results = Results(columns, [("tags", False), ("at", True)])
    rows = [(["b"], None), ([None], {"x": 1}), (None, {"x": 2}), (["a"], {"x": None}), (["a"], {"x": 3})]
    results.take([{"tags": tags, "at": at, "weight": 1} for tags, at in rows])
    assert [row[0] for row in results.rows()] == [["a"], ["a"], ["b"], [None], None]
