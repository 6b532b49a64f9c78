"""`flow.run()` and `flow.dev()`. The code that runs a flow is in rooms above this one, and registers itself here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Launcher = Callable[[Any, str, Mapping[str, Any]], None]
"""Runs a flow with a command ("run" or "dev") and its options, and returns when the run has ended."""

_launchers: list[Launcher] = []


def register(launcher: Launcher) -> None:
    """Register the function that runs flows. `import falkirk` does this."""
    _launchers[:] = [launcher]


def launch(flow: Any, command: str, options: Mapping[str, Any]) -> None:
    """Run a flow. Raises FalkirkError, also for wrong options."""
    _launchers[0](flow, command, options)
