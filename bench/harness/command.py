"""A command whose help is the docstring of its module."""

from __future__ import annotations

from collections.abc import Callable

import click


def command(text: str | None) -> Callable[[Callable[..., None]], click.Command]:
    """`--help` shows the text, line by line as it is written."""
    as_written = "\n\n".join(f"\b\n{paragraph}" for paragraph in (text or "").strip().split("\n\n"))
    return click.command(help=as_written, context_settings={"max_content_width": 120})
