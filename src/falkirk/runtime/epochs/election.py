"""Elects one driver among all processes that could drive an app's batch parts.

They are members of a group that subscribes to the control topic: the one that is assigned its first partition drives. This
only saves work: two drivers at once do no harm, so nothing is fenced here, and nobody waits for another to stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from falkirk.connectors.kafka.group.group import Membership
from falkirk.runtime.app.app import App
from falkirk.runtime.host.identity import word
from falkirk.runtime.host.settings import Settings
from falkirk.stream.definition.names import drivers

SEAT = 0
"""The owner of this partition of the control topic drives."""


class Election:
    """This process's place among the drivers of an app."""

    def __init__(self, app: App, settings: Settings) -> None:
        self.elected = False
        self._member = Membership(
            settings.cluster(),
            group=drivers(app.name),
            instance=f"{app.name}.{word(Path(settings.state_dir))}-driver",
            topic=app.control,
            session_timeout_ms=settings.session_timeout_ms,
            on_assigned=lambda partitions: self._seat(partitions, taken=True),
            on_revoked=lambda partitions: self._seat(partitions, taken=False),
            on_lost=lambda partitions: self._seat(partitions, taken=False),
        )
        self._member.join()

    def poll(self) -> None:
        """Let the group decide who drives. Call it often. Raises IdentityError, ClusterError."""
        self._member.poll()

    def leave(self) -> None:
        """Let another drive at once."""
        self._member.leave()

    def _seat(self, partitions: Sequence[int], *, taken: bool) -> None:
        if SEAT in partitions:
            self.elected = taken
