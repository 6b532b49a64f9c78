"""What is wrong before anything runs: the flow's file, its definition, options. Nothing of it asks a cluster."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.bad_input.commands import Screen, screen

import falkirk as fk
from falkirk.errors import ConfigError, DefinitionError
from falkirk.stream.flow.load import load_flow

HEAD = """import falkirk as fk
flow = fk.Flow("app")
bids = flow.source("bids", key="auction", value=fk.Json({"auction": fk.Int64, "price": fk.Int64, "name": fk.String}))
"""


def run(path: Path, text: str, *options: str, flow: str = "flow") -> Screen:
    """`falkirk run` on a file."""
    path.write_text(text)
    brokers = () if "--brokers" in options else ("--brokers", "127.0.0.1:1")
    return screen([sys.executable, "-m", "falkirk", "run", f"{path}:{flow}", *brokers, *options])


def refused(tmp_path: Path, text: str, name: str = "app.py:flow") -> DefinitionError | ConfigError:
    (tmp_path / "app.py").write_text(text)
    with pytest.raises((DefinitionError, ConfigError)) as caught:
        load_flow(str(tmp_path / name)).plan()
    assert caught.value.exit_code == 2
    return caught.value


@pytest.mark.parametrize(
    ("line", "what", "hint"),
    [
        ('bids.filter(fk.col("pirce") > 1)', "there is no column 'pirce'", "did you mean 'price'?"),
        ('bids.filter(fk.col("name") > 1)', "cannot compare string with numeric type", "name String"),
        ('bids.with_columns(x=fk.col("price").str.len_chars())', "expected `String`", "price Int64"),
        (
            'flow.source("asks", value=fk.Json({"a": fk.Int64})).with_regime("lazy")',
            "'lazy' is not a regime",
            "LazyCheckpoint",
        ),
        ('fk.Flow("b", regime="lazy")', "'lazy' is not a regime", "fk.LazyCheckpoint()"),
        ('fk.Flow("b", regime=fk.LazyCheckpoint)', "is not a regime", "fk.LazyCheckpoint()"),
        ('fk.EagerCheckpoint(step="10x")', "step='10x' is not a duration", "100ms"),
        ('fk.EagerCheckpoint(max_rows=0)', "max_rows=0", ""),
        ('fk.EagerCheckpoint(steps="1s")', "TypeError: EagerCheckpoint.__init__() got an unexpected", "fix it"),
        ('{}["a"]', "app.py cannot be imported: KeyError: 'a'", "python "),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'", "fix it"),
        ('bids.filter(fk.col("price") > 1 and fk.col("name") == "x")', "neither true nor false", "write &, | and ~"),
        ('bids.filter(lambda row: row["price"] > 1)', "'<lambda>' is a function, and no expression", 'fk.col("price")'),
        ('bids.group_by("name").agg(fk.sum("price"))', "each aggregate needs a name", 'agg(total=fk.sum("price"))'),
        ('bids.agg(fk.sum("price"))', "each aggregate needs a name", 'agg(total=fk.sum("price"))'),
        ('bids.over("name").agg(fk.sum("price"))', "each aggregate needs a name", 'agg(total=fk.sum("price"))'),
        ('bids.agg(fk.sum("price").alias("x"))', "its name is given in agg: .agg(total=", "fix it"),
        ('bids.key_by("name").process(fk.Process())', "Process has no on_row", "def on_row(self, row, key)"),
        ('fk.Avro("none.avsc")', "an Avro schema cannot be read", "name an .avsc file"),
        ('bids.filter(fk.col("price" > 1', "SyntaxError: '(' was never closed", "fix it"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_flow_is_said_with_its_line(tmp_path: Path, line: str, what: str, hint: str) -> None:
    error = refused(tmp_path, HEAD + line)
    assert what in error.what
    assert "app.py:4" in error.where
    assert hint in error.hint


def test_a_flow_that_does_nothing_is_named_by_the_line_where_it_begins(tmp_path: Path) -> None:
    error = refused(tmp_path, HEAD)
    assert error.what == "the flow has no sink and no other effect"
    assert "app.py:2" in error.where


def test_a_file_without_the_flow_says_what_it_has(tmp_path: Path) -> None:
    assert refused(tmp_path, HEAD, "app.py:flwo").hint == "it has: flow"
    assert refused(tmp_path, HEAD, "app.py:bids").hint == "it has: flow"
    assert refused(tmp_path, "x = 1", "app.py").what.endswith("app.py has no flow")
    assert "fk.Flow" in refused(tmp_path, "x = 1", "app.py").hint
    assert "app.py:other" in refused(tmp_path, HEAD + 'other = fk.Flow("b")', "app.py").hint
    assert "there is no module or file" in refused(tmp_path, HEAD, "none.py").what
    within = "def flow():\n    return fk.Flow('b')\nif __name__ == '__main__':\n    other = flow()"
    assert refused(tmp_path, f"import falkirk as fk\n{within}").what.endswith("has no flow 'flow': that is a function")
    assert "outside of functions" in refused(tmp_path, f"import falkirk as fk\n{within}", "app.py:other").hint


def test_a_file_that_hides_a_module_is_to_be_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import statistics

    monkeypatch.setitem(sys.modules, "statistics", statistics)
    (tmp_path / "statistics.py").write_text("import statistics\nstatistics.mean([1])")
    with pytest.raises(DefinitionError, match="to do: rename the file, which hides the module statistics"):
        load_flow(str(tmp_path / "statistics.py"))


def test_a_flow_named_by_a_point_or_by_a_file_of_a_package_is_told_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "bad_input_package"
    package.mkdir()
    for name, text in (("__init__", ""), ("words", ""), ("app", "from . import words")):
        (package / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"as in bad_input_package\.app:flow"):
        load_flow("bad_input_package.app.flow")
    with pytest.raises(DefinitionError, match=r"has the package: bad_input_package\.app:flow"):
        load_flow("bad_input_package/app.py:flow")


def test_a_module_on_the_way_is_not_taken_for_the_one_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad_input_app.py").write_text("import bad_input_helper")
    (tmp_path / "bad_input_helper.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DefinitionError, match=r"bad_input_app.*ZeroDivisionError") as caught:
        load_flow("bad_input_app:flow")
    assert caught.value.where == "bad_input_helper.py:1"


def test_a_syntax_error_on_the_screen(tmp_path: Path) -> None:
    shown = run(tmp_path / "app.py", HEAD + "bids.filter(")
    assert shown.code == 2
    assert "SyntaxError" in shown.error
    assert "app.py:4" in shown.error


def test_what_users_raise_from_the_depths_of_others_code_is_told_with_their_line() -> None:
    from falkirk.blame import raised

    def strict(text: str) -> object:
        import json

        return json.loads(text)

    with pytest.raises(ValueError, match="Expecting value") as caught:
        strict("x")
    words = raised("map 'strict'", caught.value)
    assert words.startswith("map 'strict' raised JSONDecodeError: Expecting value")
    assert "test_definition.py:" in words


def test_a_regime_is_an_object() -> None:
    for wrong in ("lazy", fk.LazyCheckpoint, 3):
        with pytest.raises(DefinitionError):
            fk.Flow("app", regime=wrong)  # type: ignore[arg-type]
    fk.Flow("app", regime=None)
