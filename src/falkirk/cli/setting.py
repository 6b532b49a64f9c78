"""Options that the environment and a settings file may also give."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from falkirk.cli.config_file import env_name
from falkirk.durations import ACCEPTED, AS_TEXT, duration
from falkirk.errors import ConfigError

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


def absolute(path: str) -> str:
    """A path as it is from any folder; "" stays."""
    return str(Path(path).absolute()) if path else ""


class DurationType(click.ParamType[timedelta]):
    """A duration on a command line, in the environment or in a settings file."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Its timedelta; fails with what is accepted."""
        try:
            return duration(value)
        except ConfigError as error:
            hint = f"write {AS_TEXT}" if error.hint == ACCEPTED else error.hint
            self.fail(f"{error.what}; {hint}", param, ctx)


DURATION = DurationType()


class Setting(click.Option):
    """An option that the environment and a settings file may also give, under its own name."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.key = self.opts[0].removeprefix("--")
        self.envvar = env_name(self.key)

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """Names the place of an invalid value, if it is not on the command line. Raises ConfigError."""
        try:
            return super().process_value(ctx, value)
        except click.BadParameter as error:
            places = {
                ParameterSource.ENVIRONMENT: f"environment variable {self.envvar}",
                ParameterSource.DEFAULT_MAP: f"the settings file, {self.key}",
            }
            source = ctx.get_parameter_source(self.name)
            if source is None or (place := places.get(source)) is None:
                raise
            raise ConfigError(error.message, where=place, hint="see --help") from error


KNOWN: list[str] = []
"""The long names of all settings, without dashes: a settings file may hold them, no matter which command reads it."""


def setting(*names: str, **attributes: Any) -> Decorator:
    """An option that is a `Setting`."""
    KNOWN.append(names[0].removeprefix("--"))
    return click.option(*names, cls=Setting, **attributes)
