"""The prompt: reads statements, runs them, and says what is wrong with one without ending."""

from __future__ import annotations

import contextlib
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import platformdirs
from rich.console import Console

from falkirk.cli.main import tell
from falkirk.cli.options import of_own_kafka, settings_from
from falkirk.cli.prompt.apps import Apps
from falkirk.cli.prompt.session import Session
from falkirk.cli.prompt.statements import statements
from falkirk.cli.prompt.toml import read_tables
from falkirk.connectors.embedded import EmbeddedKafka
from falkirk.errors import FalkirkError
from falkirk.stream.sql.catalog import Catalog

HISTORY = 1000
"""Lines that are kept for the arrow keys."""


def prompt(tables: Path | None, options: dict[str, Any]) -> bool:
    """Run a session on an embedded Kafka, until its end. Returns whether every statement succeeded. Raises FalkirkError."""
    logging.getLogger("librdkafka").setLevel(logging.ERROR)  # what a client tries again is not for people
    folder: Path = options["state_dir"] / "sql"
    catalog, kept = Catalog(), folder / "tables.sql"
    with _kept(catalog, kept) as save:
        if tables is not None:
            catalog.add_toml({n: t for n, t in read_tables(tables).items() if n not in catalog.entries}, str(tables))
        with (
            EmbeddedKafka(options["state_dir"] / "kafka") as kafka,
            tempfile.TemporaryDirectory(prefix="falkirk-sql-") as files,
            _reader() as read,
        ):
            own = {**options, "state_dir": Path(files), "checkpoints": ""}
            settings = settings_from(workers=1, **of_own_kafka(own, kafka.bootstrap))
            apps = Apps(settings, Path(files))
            apps.sweep()
            session = Session(apps, catalog, Console(highlight=False), save)
            if sys.stdin.isatty():
                click.echo(f"Kafka at {kafka.bootstrap}; statements end with ;, and help shows them")
            try:
                return _run(session, read)
            finally:
                session.close()


def _run(session: Session, read: Callable[[str], str | None]) -> bool:
    succeeded = True
    for statement in statements(read):
        try:
            if not session.run(statement):
                break
        except FalkirkError as error:
            succeeded = False
            tell(error)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
        sys.stdout.flush()
    return succeeded


@contextlib.contextmanager
def _kept(catalog: Catalog, file: Path) -> Iterator[Callable[[], None]]:
    """The tables and views of the last session, and what keeps those of this one."""
    lines = iter(file.read_text().splitlines()) if file.exists() else iter(())
    for statement in statements(lambda _: next(lines, None)):
        try:
            catalog.create(statement)
        except FalkirkError as error:
            click.echo(f"{file}: {error}", err=True)

    def save() -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{entry.sql};\n" for entry in catalog.entries.values()))

    yield save


@contextlib.contextmanager
def _reader() -> Iterator[Callable[[str], str | None]]:
    """What reads the next line: from a terminal with a prompt and a history, else as it comes."""
    if not sys.stdin.isatty():
        yield lambda _: line.rstrip("\n") if (line := sys.stdin.readline()) else None
        return
    import readline

    history = platformdirs.user_data_path("falkirk") / "sql_history"
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(HISTORY)

    def read(prompt: str) -> str | None:
        try:
            return input(prompt)
        except EOFError:
            click.echo()
            return None
        except KeyboardInterrupt:
            click.echo()
            raise

    try:
        yield read
    finally:
        with contextlib.suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(history)
