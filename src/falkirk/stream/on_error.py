"""What a user says is to become of what fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from falkirk.errors import DefinitionError
from falkirk.stream.blame import user_line


@dataclass(frozen=True, slots=True)
class Stop:
    """Whatever fails stops the app, with the address of its record."""


@dataclass(frozen=True, slots=True)
class Skip:
    """What fails is left out, and counted."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What fails goes to a topic: `topic`, or that of the flow's dead letters. Where more than the share `stop_above` of the
    last 10,000 fails, the app stops all the same: that is no longer the odd bad record.

    >>> DeadLetter(stop_above="1%").share, DeadLetter(stop_above=0.5).share, DeadLetter().share
    (0.01, 0.5, None)
    """

    topic: str | None = None
    stop_above: str | float | None = None

    def __post_init__(self) -> None:
        from falkirk.stream.flow import check_name

        if self.topic is not None:
            check_name(self.topic, "topic", user_line())
        share = self.share
        if share is not None and not 0 <= share < 1:
            raise DefinitionError(
                f"stop_above={self.stop_above!r} is no share of records",
                where=user_line(),
                hint='write "1%", or 0.01; leave it out if the app is never to stop',
            )

    @property
    def share(self) -> float | None:
        """`stop_above` as a number; NaN is never between two."""
        if not isinstance(self.stop_above, str):
            return self.stop_above
        try:
            return float(self.stop_above.removesuffix("%")) / 100 if self.stop_above.endswith("%") else float("nan")
        except ValueError:
            return float("nan")


OnError = Stop | Skip | DeadLetter
"""What becomes of what fails."""


def checked_on_error(on_error: Any, where: str) -> OnError | None:
    """What a user gave. Raises DefinitionError."""
    if on_error is not None and not isinstance(on_error, OnError):
        raise DefinitionError(
            f"on_error={on_error!r} says nothing of errors",
            where=where,
            hint="use fk.Stop(), fk.Skip() or fk.DeadLetter()",
        )
    return on_error
