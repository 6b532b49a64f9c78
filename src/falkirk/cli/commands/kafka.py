"""`falkirk kafka`: this user's embedded Kafka, for development. Only its address goes to standard output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from falkirk.connectors.embedded import EmbeddedKafka, NodeStatus, fetch_jars, prepared_jvm
from falkirk.errors import ClusterError

_USUAL_PORT = 9092
_NOT_RUNNING = 3  # the exit code of `status`, as in init scripts


def _default_data_dir() -> Path:
    import platformdirs

    return platformdirs.user_data_path("falkirk") / "kafka"


def _with_data_dir(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--data-dir",
        type=click.Path(path_type=Path),
        default=_default_data_dir,
        show_default="one for each user",
        help="Directory for its data, log and settings.",
    )(command)


@click.group()
def kafka() -> None:
    """Start, stop or inspect the embedded Kafka: one real Kafka node on this machine, for development."""


@kafka.command(short_help="Start Kafka in the background.")
@_with_data_dir
@click.option(
    "--port", type=click.IntRange(1, 65535), help=f"Port of Kafka.  [default: that of the last start, or {_USUAL_PORT}]"
)
@click.option("--heap", default="512m", show_default=True, help="Heap of the JVM, as in -Xmx.")
def start(data_dir: Path, port: int | None, heap: str) -> None:
    """Start Kafka in the background, wait until it answers, and print its address."""
    port_to_use = port or EmbeddedKafka(data_dir).last_port or _USUAL_PORT
    node = EmbeddedKafka(data_dir, port_to_use, heap=heap, detached=True)
    if (running := node.running()) is not None:
        if port not in (None, running.port):
            raise ClusterError(
                f"Kafka already runs on this data folder, on port {running.port} and not {port}",
                where=f"{data_dir} (pid {running.pid})",
                hint="`falkirk kafka stop` first, or leave --port out",
            )
        click.echo(f"Kafka already runs (pid {running.pid}).", err=True)
    else:
        node.start()
        click.echo(f"Kafka runs, with its data and log in {data_dir}; `falkirk kafka stop` ends it.", err=True)
    click.echo(node.bootstrap)


@kafka.command()
@_with_data_dir
def stop(data_dir: Path) -> None:
    """Stop Kafka cleanly. Its data stays."""
    node = EmbeddedKafka(data_dir)
    was_running = node.running() is not None
    node.stop()
    click.echo("stopped" if was_running else "it was not running", err=True)


@kafka.command()
@_with_data_dir
@click.pass_context
def status(ctx: click.Context, data_dir: Path) -> None:
    """Show whether Kafka runs, and where. The exit code is 0 if it runs, and 3 if not."""
    found = EmbeddedKafka(data_dir).status()
    for line in _status_lines(found):
        click.echo(line)
    if not found.running:
        ctx.exit(_NOT_RUNNING)


@kafka.command(short_help="Download Kafka now, for later.")
def fetch() -> None:
    """Download Kafka's jars now, once for each user, so that `start` needs no network later."""
    click.echo(f"Kafka's jars are in {fetch_jars()}", err=True)
    prepared_jvm(Console(stderr=True))


def _status_lines(found: NodeStatus) -> list[str]:
    where = f"data      {found.data_dir} ({found.size_bytes / 1e6:,.1f} MB)"
    if not found.running:
        return ["running   no", where]
    topics = "it does not answer" if found.topics is None else str(found.topics)
    return [
        f"running   yes, pid {found.pid}",
        f"address   {found.bootstrap}",
        f"version   {found.version}",
        where,
        f"topics    {topics}",
    ]
