from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from falkirk.cli import main as cli
from falkirk.errors import ClusterError, ConfigError

LIBRARIES = {"polars", "pyarrow", "numpy", "confluent_kafka", "rocksdict", "narwhals", "obstore", "rich"}
SELDOM = {"pyarrow", "fastavro", "pyspark", "opentelemetry", "google.protobuf"}


@pytest.mark.parametrize(
    ("script", "unneeded"),
    [
        ("from falkirk.cli.main import falkirk; falkirk(['--help'], standalone_mode=False)", LIBRARIES),
        ("import falkirk.cli.commands.run", LIBRARIES - {"confluent_kafka"}),
        ("import falkirk.cli.commands.status, falkirk.cli.commands.requests", {"polars", "pyarrow", "narwhals"}),
        ("import falkirk.runtime.processes.process", SELDOM),
    ],
    ids=["help", "a supervisor, until its workers are started", "status and requests", "a worker"],
)
def test_none_of_the_heavy_libraries_is_imported_where_it_is_not_needed(script: str, unneeded: set[str]) -> None:
    script += f"\nimport sys\nassert not (heavy := {unneeded!r} & sys.modules.keys()), heavy"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr


def test_every_command_that_help_lists_exists() -> None:
    context = click.Context(cli.falkirk)
    for name in cli.falkirk.list_commands(context):
        assert cli.falkirk.get_command(context, name) is not None


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("stauts", "No such command 'stauts'. Did you mean status?"),
        ("topic", "No such command 'topic'. Did you mean topics?"),
        ("frobnicate", "No such command 'frobnicate'.\n"),
    ],
)
def test_a_misspelt_command_gets_a_suggestion(typed: str, said: str) -> None:
    answer = CliRunner().invoke(cli.falkirk, [typed])
    assert answer.exit_code == 2
    assert said in answer.output
    assert "Try 'falkirk --help'" in answer.output


def all_commands(context: click.Context, group: click.Group) -> Iterator[tuple[str, click.Command]]:
    """Those of subgroups too, by their full names."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {below}", found) for below, found in all_commands(context, command))


VERB = re.compile(
    r"(Clear|Compare|Compute|Count|Delete|Divide|Download|List|Pause|Prepare|Print|Process|Rebuild|Resume|Run|Save|Show|Start|Stop"
    r"|Write)\b"
)
NOT_PLAIN = re.compile(
    r"\b(anew|mend|whence|say how|let an?|be one|may be given|an object a|goes? on|no terminal)\b", re.IGNORECASE
)


def test_every_help_begins_with_what_the_command_does_and_is_plain() -> None:
    context = click.Context(cli.falkirk)
    for name, lazy in cli.COMMANDS.items():
        assert VERB.match(lazy.help), name
        assert len(lazy.help) <= 66, f"{name}: longer than a line of `falkirk --help`"
    for name, command in all_commands(context, cli.falkirk):
        shown = command.get_help(click.Context(command, info_name=name))
        assert command.help is not None
        assert VERB.match(command.help), name
        assert not (found := NOT_PLAIN.search(shown)), f"{name}: {found}"
        assert all(getattr(option, "help", "") for option in command.params if isinstance(option, click.Option)), name


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


def test_a_number_of_tasks_that_no_stage_can_have_is_refused(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "import falkirk as fk\n"
        "flow = fk.Flow('app')\n"
        "rows = flow.source('in', key='k', value=fk.Json({'k': str}))\n"
        "rows.group_by('k').agg(n=fk.len()).sink('out', key='k', value=fk.Json())\n"
    )
    answer = CliRunner().invoke(
        cli.falkirk, ["rescale", f"{tmp_path}/app.py:flow", "--tasks", "3", "--brokers", "localhost:1"]
    )
    assert isinstance(answer.exception, ConfigError)
    assert "--tasks 3 changes nothing: no stage of the flow is behind an exchange" in str(answer.exception)
