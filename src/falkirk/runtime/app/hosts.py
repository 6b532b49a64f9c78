"""Several hosts, and the versions of lazy state.

A lazy task moves to another host only with its versions, because the step records below them are trimmed. No other host finds
them in the default folder: the task could not continue there, and the app would stop. So a host without a shared checkpoint
store may not join if such an app already runs; and a running host reports it when another joins.
"""

from __future__ import annotations

from pathlib import Path

from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import logger
from falkirk.errors import ConfigError
from falkirk.runtime.app.app import App
from falkirk.runtime.host.identity import word
from falkirk.runtime.host.settings import Settings
from falkirk.stream.stages.plan import recovery_of

HINT = "start every host of the app with one --checkpoints URL that all of them reach, such as s3://bucket/app"


class Hosts:
    """The hosts of an app, as this one sees them: a host is a state directory."""

    def __init__(self, app: App, settings: Settings, topics: Topics) -> None:
        self._app, self._topics = app, topics
        unlogged = [s.id for s in app.plan.stages if not recovery_of(s).rebuilds]
        self.bound_here = [] if settings.checkpoints else unlogged
        """Stages whose tasks cannot leave this host."""
        self._ours = f"{app.group}.{word(Path(settings.state_dir))}-"
        self._told = False

    def check_alone(self) -> None:
        """Raises ConfigError if the app runs on other hosts, and its tasks could not move from here to there."""
        if others := self._others():
            raise ConfigError(
                f"app {self._app.name!r} runs on another host, and {self._words()}",
                where=f"consumer group {self._app.group}, members at {', '.join(others)}; no --checkpoints is given",
                hint=f"{HINT}; or, if that one is gone for good, wait until its session has ended",
            )

    def look(self) -> None:
        """Report, once, that another host has joined."""
        if not self._told and (others := self._others()):
            self._told = True
            logger.warning("another host has joined (%s), and %s. To do: %s", ", ".join(others), self._words(), HINT)

    def _words(self) -> str:
        return f"the lazy state of {', '.join(self.bound_here)} cannot move there: its versions are in this state directory"

    def _others(self) -> list[str]:
        if not self.bound_here:
            return []
        members = self._topics.group(self._app.group).members
        return sorted({m.host for name, m in members.items() if not name.startswith(self._ours)})
