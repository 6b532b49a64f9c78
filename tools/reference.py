"""The generated parts of the reference, as Markdown: from docstrings, the options of commands, and metrics.

python tools/reference.py commands
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

import falkirk as fk
from falkirk import errors
from falkirk.checkpoint.tasks import InvariantError
from falkirk.cli.main import SECTIONS, falkirk
from falkirk.cli.setting import Setting
from falkirk.stream.flow.joining.lookups import Table
from falkirk.stream.flow.keyed import Grouped, Keyed

SOURCE = Path(__file__).parents[1] / "src" / "falkirk"
SHARED = ("brokers", "prefix", "client", "clusters", "config")
"""Options of nearly all commands, which are described once."""


# -- commands and settings ---------------------------------------------------------------------------------------------


def commands() -> str:
    """Each command with its help and its options."""
    shared = {name: option for _, command in leaves() for option in command.params if (name := option.name) in SHARED}
    parts = ["### Options of most commands", options([shared[name] for name in SHARED])]
    for section, named in SECTIONS.items():
        parts.append(f"## {section}")
        for name, command in leaves():
            if name.split()[0] in named:
                parts += [f"### falkirk {name}", usage(name, command), told(command.help or "")]
                own = [each for each in command.params if isinstance(each, click.Option) and each.name not in SHARED]
                parts += [options(own)] if own else []
    return "\n\n".join(parts)


def leaves() -> Iterator[tuple[str, click.Command]]:
    """Every command by its full name, those of groups included."""
    context = click.Context(falkirk)
    for name in falkirk.list_commands(context):
        command = falkirk.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            for below, each in command.commands.items():
                yield f"{name} {below}", each
        else:
            yield name, command


def usage(name: str, command: click.Command) -> str:
    arguments = [
        each.make_metavar(click.Context(command)) for each in command.params if isinstance(each, click.Argument)
    ]
    return f"```\nfalkirk {' '.join([name, *arguments])} [OPTIONS]\n```"


def told(text: str) -> str:
    """Help as Markdown: click leaves the lines after a \\b as they are, and so does a block of code."""
    paragraphs = []
    for paragraph in inspect.cleandoc(text).replace("\f", "").split("\n\n"):
        lines = paragraph.split("\n")
        paragraphs.append("```\n" + "\n".join(lines[1:]) + "\n```" if lines[0] == "\b" else plain(paragraph))
    return "\n\n".join(paragraphs)


def options(of: list[Any]) -> str:
    rows = ["| option | default | |", "|---|---|---|"]
    for option in of:
        words, default = without_default(option.help or "")
        if not default and option.show_default:
            default = option.show_default if isinstance(option.show_default, str) else str(option.default)
        names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
        metavar = "" if option.is_flag else " " + cell(option.make_metavar(click.Context(falkirk)))
        rows.append(f"| {names}{metavar} | {cell(default)} | {cell(words)} |")
    return "\n".join(rows)


def without_default(words: str) -> tuple[str, str]:
    found = re.fullmatch(r"(.*?)\s*\[default: (.*)\]", words, re.DOTALL)
    return (found[1], found[2]) if found else (words, "")


def settings() -> str:
    """Every option that a settings file and the environment may also give."""
    rows: dict[str, tuple[Setting, list[str]]] = {}
    for name, command in leaves():
        for option in command.params:
            if isinstance(option, Setting):
                rows.setdefault(option.key, (option, []))[1].append(name)
    table = ["| in the file | in the environment | |", "|---|---|---|"]
    for key, (option, _) in sorted(rows.items()):
        table.append(f"| `{key}` | `{option.envvar}` | {cell(without_default(option.help or '')[0])} |")
    return "\n".join(table)


def plain(text: str) -> str:
    return text.replace("<", "&lt;").replace("*", "\\*")


def cell(text: str) -> str:
    return re.sub(r"\s+", " ", plain(text)).replace("|", "\\|")


# -- errors and metrics ------------------------------------------------------------------------------------------------


def error_table() -> str:
    """Each kind of error with its exit code; kinds that are only distinguished inside have the code of their parent."""
    kinds = sorted(
        {*errors.FalkirkError.__subclasses__(), InvariantError}, key=lambda each: (each.exit_code, each.__name__)
    )
    rows = [f"| {kind.exit_code} | `{kind.__name__}` | {cell(inspect.getdoc(kind) or '')} |" for kind in kinds]
    return "\n".join(["| code | error | |", "|---|---|---|", *rows])


def metrics() -> str:
    """The metrics that the code makes: name, labels and meaning."""
    runtime = SOURCE / "runtime"
    files = [runtime / "observe" / "metrics.py", runtime / "gateway" / "metrics.py"]
    calls = [each for file in files for each in ast.walk(ast.parse(file.read_text()))]
    labels = {"TASK": "stage, task", "CALLS": "stage, task, operator", "SOURCES": "stage, task, source"}
    rows = ["| metric | labels | |", "|---|---|---|"]
    for call in calls:
        if isinstance(call, ast.Call) and (kind := getattr(call.func, "id", "")).endswith("MetricFamily"):
            name, words = (each.value for each in call.args[:2] if isinstance(each, ast.Constant))
            name = str(name) + {"CounterMetricFamily": "_total", "InfoMetricFamily": "_info"}.get(kind, "")
            given = next((each.value for each in call.keywords if each.arg == "labels"), None)
            shown = labels.get(getattr(given, "id", "")) or ", ".join(ast.literal_eval(given) if given else ())
            rows.append(f"| `{name}` | {shown} | {cell(str(words))} |")
    return "\n".join([*rows[:2], *sorted(rows[2:])])


# -- the DSL -----------------------------------------------------------------------------------------------------------


def python() -> str:
    """What `import falkirk as fk` offers: signatures and docstrings."""
    parts = []
    for name, each in {
        **{n: getattr(fk, n) for n in fk.__all__},
        "Grouped": Grouped,
        "Keyed": Keyed,
        "Table": Table,
    }.items():
        if not getattr(each, "__module__", "").startswith("falkirk") or inspect.ismodule(each):
            continue  # Narwhals' expressions have pages of their own
        parts += [f"## {name}", documented(name, each)]
        for method, found in members(each):
            parts += [f"### {name}.{method}", documented(f"{name}.{method}", found)]
    return "\n\n".join(parts)


def members(of: Any) -> Iterator[tuple[str, Any]]:
    for method in dir(of) if isinstance(of, type) else ():
        found = inspect.getattr_static(of, method)
        if not method.startswith("_") and inspect.isfunction(found) and found.__module__.startswith("falkirk"):
            yield method, found


GIVEN = ("Grouped", "KeyContext", "Keyed", "Stream", "Table", "Timer")
"""Classes whose objects users are given, and do not make."""


def documented(name: str, each: Any) -> str:
    if name in GIVEN:
        return docstring(inspect.getdoc(each) or "")
    try:
        signature = str(unquoted(inspect.signature(each), method="." in name))
    except (TypeError, ValueError):
        signature = ""
    prefix = "" if "." in name else "fk."
    return f"```python\n{prefix}{name}{signature}\n```\n\n{docstring(inspect.getdoc(each) or '')}"


class Written:
    """An annotation as its author wrote it: `inspect` shows text in quotes."""

    def __init__(self, words: str) -> None:
        self.words = words

    def __repr__(self) -> str:
        return self.words


def unquoted(signature: inspect.Signature, *, method: bool) -> inspect.Signature:
    """The signature of a call: without the object whose method it is, and without a return of None."""
    given = [
        each.replace(annotation=Written(each.annotation)) if isinstance(each.annotation, str) else each
        for each in list(signature.parameters.values())[1 if method else 0 :]
    ]
    returns = signature.return_annotation
    shown = Written(returns) if isinstance(returns, str) and returns != "None" else inspect.Signature.empty
    return signature.replace(parameters=given, return_annotation=shown)


def docstring(text: str) -> str:
    """A docstring as Markdown: its examples become blocks of code, up to the next blank line."""
    lines, code = [], False
    for line in text.split("\n"):
        if line.startswith(">>>") and not code:
            lines.append("```pycon")
            code = True
        elif code and not line.strip():
            lines.append("```")
            code = False
        lines.append(line)
    return "\n".join([*lines, "```"] if code else lines)


PARTS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "settings": settings,
    "errors": error_table,
    "metrics": metrics,
    "python": python,
}

if __name__ == "__main__":
    sys.stdout.writelines(PARTS[part]() + "\n" for part in sys.argv[1:])
