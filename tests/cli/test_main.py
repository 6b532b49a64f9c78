from __future__ import annotations

import subprocess
import sys

import click
import pytest

from falkirk.cli import main as cli
from falkirk.errors import ClusterError


def test_help_imports_none_of_the_heavy_libraries() -> None:
    script = """
import sys
from falkirk.cli.main import falkirk
falkirk(["--help"], standalone_mode=False)
heavy = {"polars", "pyarrow", "numpy", "confluent_kafka", "rocksdict", "narwhals", "obstore", "rich"} & set(sys.modules)
assert not heavy, heavy
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert "Start, stop or look at the embedded Kafka." in answer.stdout


def test_every_command_that_help_lists_exists() -> None:
    context = click.Context(cli.falkirk)
    for name in cli.falkirk.list_commands(context):
        assert cli.falkirk.get_command(context, name) is not None


def test_an_error_is_told_without_a_trace_and_sets_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise ClusterError("no broker answers", where="127.0.0.1:1", hint="start one")

    monkeypatch.setattr(cli, "falkirk", fail)
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    assert exit_.value.code == ClusterError.exit_code
    assert capsys.readouterr().err == "error: no broker answers\n  where: 127.0.0.1:1\n  to do: start one\n"
