"""`falkirk send`: rows into a topic, in the flow's formats."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Iterator
from typing import IO, Any

import click

from falkirk.cli.options import cluster_options, cluster_settings
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.runtime.inspect.sending import Sender
from falkirk.stream.flow.load import load_flow
from falkirk.wording import counted

MOST = 5_000
"""Lines that are sent together, if there are so many."""


@click.command(name="send")
@click.argument("target", metavar="APP:FLOW")
@click.argument("name", metavar="[SOURCE]", required=False)
@cluster_options
def send_command(target: str, name: str | None, **options: Any) -> None:
    """Write rows to the topic that SOURCE reads. Each line of standard input is one JSON object; it is written in the
    source's own format.

    Use it to try a flow, or to fill a table. Keys, partitions, timestamps and schemas are those that the flow expects. Lines
    are sent as they come. SOURCE can be left out if the flow has only one. If a source has several topics, give the topic.

    \b
    echo '{"auction": 7, "price": 120}' | falkirk send app:flow bids --brokers broker-1:9092
    falkirk send app:flow bids --brokers broker-1:9092 < bids.jsonl
    """
    settings = cluster_settings(**options)
    plan = load_flow(target).plan(options["prefix"])
    sender = Sender(plan, name, settings, Topics(settings.cluster()))
    shown, told = sys.stderr.isatty(), time.monotonic()
    if sys.stdin.isatty():
        click.echo(f"one JSON object per line, for {sender.topic}; Ctrl-D ends", err=True)
    try:
        for lines in as_they_come(sys.stdin.buffer):
            sender.send(lines)
            if shown and time.monotonic() - told > 1:
                told = time.monotonic()
                click.echo(f"\r{sender.sent:,} sent", nl=False, err=True)
    except KeyboardInterrupt:  # what was sent stays
        pass
    finally:
        sender.settle()
        if shown:
            click.echo("\r", nl=False, err=True)
        click.echo(f"{counted(sender.sent, 'record')} sent to {sender.topic}", err=True)


def as_they_come(pipe: IO[bytes]) -> Iterator[list[bytes]]:
    """Non-empty lines, as many as have arrived: only a few if someone types them."""
    here: queue.Queue[bytes | None] = queue.Queue(2 * MOST)

    def read() -> None:
        for line in pipe:
            here.put(line.strip())
        here.put(None)

    threading.Thread(target=read, daemon=True).start()
    ended = False
    while not ended:
        found = [here.get()]
        while len(found) < MOST and not here.empty():
            found.append(here.get())
        ended = found[-1] is None
        if lines := [line for line in found if line]:
            yield lines
