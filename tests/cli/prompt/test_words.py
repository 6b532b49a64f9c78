"""Statements of the prompt that need no Kafka."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

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
