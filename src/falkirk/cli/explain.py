"""`falkirk explain`: what a flow will do, before it does anything."""

from __future__ import annotations

import click

from falkirk.cli.given import Given
from falkirk.cli.options import config as config_option
from falkirk.cli.options import prefix_option
from falkirk.stream.flow.explain import explain as in_words
from falkirk.stream.flow.load import load_flow


@click.command()
@click.argument("target", metavar="APP:FLOW")
@prefix_option
@config_option()
def explain(target: str, prefix: str, config: Given) -> None:
    """Print a flow's stages, operators, edges, regimes, topics and tasks. Asks no cluster."""
    click.echo(in_words(load_flow(target), prefix=prefix))
