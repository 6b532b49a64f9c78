from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from falkirk.errors import ConfigError
from falkirk.runtime.app.warnings import unbounded
from falkirk.stream.flow.load import load_flow

FLOW = 'import falkirk as fk\n\nflow = fk.Flow("{}")\n'


def test_an_edited_flow_is_not_taken_for_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "edited.py"
    for name in ("shop", "barn"):  # of one length, and within one second
        file.write_text(FLOW.format(name))
        os.utime(file, (1_700_000_000, 1_700_000_000))
        assert load_flow(f"{file}:flow").name == name


@pytest.mark.parametrize("imported", ["", "from .app import flow"], ids=["alone", "imported by its package"])
def test_a_flow_of_a_package_imports_others_by_relative_names(
    imported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / f"package_of_{'imported' if imported else 'flows'}"
    package.mkdir()
    (package / "__init__.py").write_text(imported)
    (package / "names.py").write_text('NAME, loaded = "shop", []')
    (package / "app.py").write_text("from .names import NAME, loaded\nloaded.append(1)\n" + FLOW.format("shop"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert load_flow(f"{package.name}.app:flow").name == "shop"
    assert sys.modules[f"{package.name}.names"].loaded == [1]
    (package / "app.py").write_text("from .names import NAME\n" + FLOW.format("barn"))
    assert load_flow(f"{package.name}.app:flow").name == "barn"


def test_a_file_of_sql_has_no_flow_with_a_name() -> None:
    with pytest.raises(ConfigError, match="all of it is one flow\n  to do: leave out :flow"):
        load_flow("shop.sql:flow")


def test_a_file_of_sql_without_its_parser_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    with pytest.raises(ConfigError, match=r"pip install 'falkirk\[sql\]'"):
        load_flow("shop.sql")


JOINS = """
import falkirk as fk

def joined(name):
    flow = fk.Flow(name)
    left, right = (flow.source(x, key="id", value=fk.Json({"id": int})) for x in "ab")
    left.join(right, on="id", id="both").sink(name, key="id", value=fk.Json(), changes="weights")
    return flow

one, other = joined("one"), joined("other")
"""


def test_a_command_warns_of_unbounded_state_of_its_flow_and_of_no_other_in_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "joins.py"
    file.write_text(JOINS)
    flow = load_flow(f"{file}:one")
    assert not caplog.messages
    ((words, bound),) = unbounded(flow.plan())
    assert words.startswith("join 'both' (")
    assert words.endswith("joins.py:7) keeps every row of a and b for ever")
    assert "within=" in bound
