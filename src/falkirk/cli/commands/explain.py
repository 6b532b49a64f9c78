"""`falkirk explain`: what a flow will do, before it does anything."""

from __future__ import annotations

import click

from falkirk.cli.config_file import ConfigFile
from falkirk.cli.options import config as config_option
from falkirk.cli.options import prefix_option
from falkirk.cli.words import EPILOG
from falkirk.stream.flow.drawing import FORMATS, drawing
from falkirk.stream.flow.explain import explain as in_words
from falkirk.stream.flow.load import load_flow


@click.command(epilog=EPILOG)
@click.argument("target", metavar="APP:FLOW")
@prefix_option
@config_option()
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", *FORMATS]),
    default="text",
    show_default=True,
    help="mermaid and dot draw the flow, for Mermaid and Graphviz.",
)
def explain(target: str, prefix: str, config: ConfigFile, form: str) -> None:  # fmt: skip
    """Print a flow's stages, operators, edges, regimes, topics and tasks. Needs no cluster.

    \b
    falkirk explain app:flow
    falkirk explain app:flow --format mermaid
    falkirk explain app:flow --format dot | dot -Tsvg > flow.svg
    """
    flow = load_flow(target)
    click.echo(in_words(flow, prefix=prefix) if form == "text" else FORMATS[form](drawing(flow, prefix)))
