"""Parts of an app that have stopped by themselves, on its control topic, beside the requests of people.

part/STAGE    StoppedPart    it has stopped, and why        stands: workers that start meanwhile do not run it either
              null           it may run

A part is a stage, or a batch part. Each key's last record counts, and compaction keeps it.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import msgspec

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.tasks import InvariantError
from falkirk.connectors.kafka.app_topics.control import LAYOUT, append
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.errors import ClockError, DiskError, FalkirkError, IdentityError, OutgrownError, UnreachableError, retold
from falkirk.runtime.host.clock import WallClock

PART = b"part/"

STOP_THE_APP = (InvariantError, DiskError, IdentityError, UnreachableError, OutgrownError, ClockError)
"""Errors of a process, its host, or the cluster, not of a part: they stop the app whatever its `on_failure` is."""


class StoppedPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a part has stopped while the rest of its app goes on (`on_failure="part"`)."""

    by: str
    """The worker or driver that has stopped it; of a whole app, who ran it, and where."""
    at: int
    """Milliseconds since 1970, UTC."""
    what: str
    exit_code: int = 1
    where: str = ""
    hint: str = ""
    kind: str = ""
    """The error's class, by its name."""

    @classmethod
    def of(cls, error: FalkirkError, by: str) -> Self:
        """Stopped now, by this error."""
        return cls(by, WallClock().now(), error.what, error.exit_code, error.where, error.hint, type(error).__name__)

    @property
    def error(self) -> FalkirkError:
        """As it was raised."""
        return retold(self.kind, self.what, self.exit_code, where=self.where, hint=self.hint)

    def error_of(self, part: str, so: str) -> FalkirkError:
        """The same, for a command that meets the stopped part. `so`: what that means for the command."""
        error = self.error
        error.what = f"part {part} has stopped, and {so}: {error.what}"
        return error


class PartRecord(NamedTuple):
    """The last record of a part."""

    offset: Offset
    stopped: StoppedPart | None


def stopped_words(app: str, part: str, error: FalkirkError) -> str:
    """That a part has stopped, why, and how it goes on: for the log.

    >>> print(stopped_words("auctions", "prices", FalkirkError("the function raised", hint="fix it")))
    part prices has stopped, and the rest of the app goes on: the function raised
      to do: fix it
      and then: falkirk resume auctions --part prices
    """
    return (
        f"part {part} has stopped, and the rest of the app goes on: {error}\n"
        f"  and then: falkirk resume {app} --part {part}"
    )


def stop_part(cluster: Cluster, control: str, stage: str, stopped: StoppedPart) -> Offset:
    """Tell all workers that this part has stopped; returns where that is recorded. Raises ClusterError."""
    return append(cluster, TopicPartition(control, LAYOUT), PART + stage.encode(), msgspec.json.encode(stopped))


def resume_part(cluster: Cluster, control: str, stage: str) -> Offset:
    """Let the part run again. Raises ClusterError."""
    return append(cluster, TopicPartition(control, LAYOUT), PART + stage.encode(), None)


# Made at import: the first decoding of a type builds its type information, and two threads that do so at once can crash.
decode_part = msgspec.json.Decoder(StoppedPart).decode
