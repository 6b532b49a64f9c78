"""`falkirk spark`: Spark on this machine."""

from __future__ import annotations

import click
from rich.console import Console

from falkirk.errors import ConfigError


@click.group()
def spark() -> None:
    """Prepare Spark on this machine."""


@spark.command(short_help="Prepare Spark on this machine, so that it starts in half the time.")
def prepare() -> None:
    """Prepare Spark on this machine, so that it starts in half the time. Once is enough, for example in an image's build.

    This starts Spark once, and keeps the Java classes that it loads in one file (about 160 MB, in FALKIRK_CACHE or the
    user's cache folder). Batch parts, backfills and workers on Spark then take them from there. It takes half a minute.
    Repeat it after an update of Java or PySpark.
    """
    try:
        from falkirk.connectors.spark import fast_start
    except ModuleNotFoundError as error:
        raise ConfigError("PySpark is not installed", hint="pip install 'falkirk[spark]'") from error
    console = Console(stderr=True)
    if not fast_start.prepare(console):
        raise ConfigError(
            "Spark cannot be prepared with this Java: it starts as before",
            hint="set JAVA_HOME to another Java of version 17 or newer",
        )
    console.print("Spark starts fast on this machine.")
