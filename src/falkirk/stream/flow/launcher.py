"""`flow.run()` and `flow.dev()`: what runs a flow lies in rooms above this one, and registers itself here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Launcher = Callable[[Any, str, Mapping[str, Any]], None]
"""Runs a flow by a command ("run" or "dev") with its options, until it ends."""

_launchers: list[Launcher] = []


def register(launcher: Launcher) -> None:
    """Run flows by this from now on. `import falkirk` does it."""
    _launchers[:] = [launcher]


def launch(flow: Any, command: str, options: Mapping[str, Any]) -> None:
    """Run a flow. Raises FalkirkError, also for its options."""
    _launchers[0](flow, command, options)
