"""`flow.run(…)`: what `falkirk run` does, from a script, a module or a notebook.

The workers are still separate processes, and find the flow by the name that a command line would use.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from falkirk.cli.commands.run import dev, run
from falkirk.durations import duration_text
from falkirk.errors import ConfigError, DefinitionError
from falkirk.stream.flow.flow import Flow
from falkirk.stream.flow.load import loading

COMMANDS: Mapping[str, click.Command] = {"run": run, "dev": dev}


def start(flow: Flow, command: str, options: Mapping[str, Any]) -> None:
    """Run a flow until it ends, or until Ctrl-C. Raises FalkirkError, also for its options."""
    if target := loading():
        raise DefinitionError(
            f"flow.{command}(…) is called while {target} is loaded, as each of its workers does",
            hint=f'put it where workers do not come: if __name__ == "__main__": flow.{command}(…)',
        )
    if threading.current_thread() is not threading.main_thread():
        raise ConfigError(
            f"flow.{command}(…) is called outside of the main thread, and could not answer Ctrl-C",
            hint=f"call it in the main thread, or start `falkirk {command}` as a process",
        )
    arguments = [target_of(flow), *_arguments(options)]
    with _signals_kept():
        try:
            COMMANDS[command].main(arguments, prog_name=f"flow.{command}", standalone_mode=False)
        except click.UsageError as error:
            raise ConfigError(
                f"flow.{command}: {error.format_message()}", hint=f"see falkirk {command} --help"
            ) from None


def target_of(flow: Flow) -> str:
    """The name by which a process can load the flow. Raises DefinitionError if there is none.

    >>> target_of(Flow("here"))
    Traceback (most recent call last):
    falkirk.errors.DefinitionError: workers could not find flow 'here': no file has it as a global variable
      to do: make it one, of a script or a module. In a notebook, write the cell with the flow to a file \
(%%writefile app.py), and import it: from app import flow
    """
    # A flow that a script has imported is in the script and in its own module.
    for name in sorted(sys.modules, key=lambda name: name == "__main__"):
        known: dict[str, Any] = getattr(sys.modules.get(name), "__dict__", {})  # some are not modules
        if place := _place(name, known):
            for variable, value in list(known.items()):
                if value is flow:
                    return f"{place}:{variable}"
    raise DefinitionError(
        f"workers could not find flow {flow.name!r}: no file has it as a global variable",
        hint="make it one, of a script or a module. In a notebook, write the cell with the flow to a file "
        "(%%writefile app.py), and import it: from app import flow",
    )


def _place(name: str, known: Mapping[str, Any]) -> str:
    """A module's name on a command line; "" if it is in no file."""
    spec = known.get("__spec__")
    dotted = str(getattr(spec, "name", name))
    if "." in dotted:  # a package's modules may import one another by its name
        return dotted
    file = known.get("__file__")
    return str(Path(file).absolute()) if isinstance(file, str) and file.endswith(".py") else ""


def _arguments(options: Mapping[str, Any]) -> Iterator[str]:
    """Options in the form of a command line.

    >>> list(_arguments({"listen_public": True}))
    ['--listen-public']
    >>> list(_arguments({"brokers": ["a:9092", "b:9092"]}))
    ['--brokers', 'a:9092,b:9092']
    >>> list(_arguments({"workers": 4, "state_dir": Path("s"), "set": {"a.b": 1}, "until": None, "rebuild": ["a", "b"]}))
    ['--workers', '4', '--state-dir', 's', '--set', 'a.b=1', '--rebuild', 'a', '--rebuild', 'b']
    """
    for name, value in options.items():
        values = [f"{k}={v}" for k, v in value.items()] if isinstance(value, Mapping) else value
        values = list(values) if isinstance(values, list | tuple) else [values]
        if name == "brokers" and len(values) > 1:
            values = [",".join(values)]
        for one in values:
            if one is True:
                yield f"--{name.replace('_', '-')}"
            elif one is not None and one is not False:
                text = duration_text(one) if isinstance(one, timedelta) else str(one)
                yield from (f"--{name.replace('_', '-')}", text)


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Restores the signal handlers at the end."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
