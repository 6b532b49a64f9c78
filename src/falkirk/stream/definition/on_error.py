"""The user's choice for records and rows that fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from falkirk.blame import user_line
from falkirk.errors import DefinitionError


@dataclass(frozen=True, slots=True)
class Stop:
    """A failure stops the app, and the error names the record. After a restart the app continues at this record.

    >>> import falkirk as fk
    >>> flow = fk.Flow("example", on_error=fk.Stop())
    >>> flow.source("bids", value=fk.Json({"price": int})).sink("copies", value=fk.Json())
    >>> fk.testing.run(flow, {"bids": [("7", b"no JSON")]})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    falkirk.errors.SourceError: ...
    """

    @property
    def words(self) -> str:
        """What becomes of what fails."""
        return "stops the app"


@dataclass(frozen=True, slots=True)
class Skip:
    """Falkirk skips and counts a record or row that fails.

    >>> import falkirk as fk
    >>> flow = fk.Flow("example")
    >>> lines = flow.source("lines", value=fk.Text("n"))
    >>> lines.map(lambda row: {"n": int(row["n"])}, returns={"n": int}, on_error=fk.Skip()).sink("n", value=fk.Json())
    >>> fk.testing.run(flow, {"lines": [{"n": "1"}, {"n": "one"}]}).sinks["n"].rows
    [{'n': 1}]
    """

    @property
    def words(self) -> str:
        """What becomes of what fails."""
        return "is skipped"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record or row that fails goes to a topic: to `topic`, or to the flow's dead letters.

    The app stops if more than the share `stop_above` ("1%", or 0.01) of the last 10,000 fail. Raises DefinitionError for
    a share below 0, or of 1 or more.

    >>> import falkirk as fk
    >>> flow = fk.Flow("example")
    >>> lines = flow.source("lines", value=fk.Text("n"))
    >>> kept = fk.DeadLetter(stop_above="1%")
    >>> lines.map(lambda row: {"n": int(row["n"])}, returns={"n": int}, on_error=kept).sink("n", value=fk.Json())
    >>> app = fk.testing.run(flow, {"lines": [{"n": "1"}, {"n": "one"}]})
    >>> [letter["reason"] for letter in app.dead_letters]
    ["ValueError: invalid literal for int() with base 10: 'one'"]
    """

    topic: str | None = None
    stop_above: str | float | None = None

    def __post_init__(self) -> None:
        from falkirk.stream.definition.names import check_name

        if self.topic is not None:
            check_name(self.topic, "topic", user_line())
        share = self.share
        if share is not None and not 0 <= share < 1:
            raise DefinitionError(
                f"stop_above={self.stop_above!r} is not a share of records",
                where=user_line(),
                hint='write "1%", or 0.01; leave it out if the app must never stop',
            )

    @property
    def words(self) -> str:
        """What becomes of what fails.

        >>> DeadLetter().words, DeadLetter("bad-bids", "1%").words
        ('goes to the dead letters', 'goes to topic bad-bids; more than 1% stop the app')
        """
        limit = "" if self.stop_above is None else f"; more than {self.stop_above} stop the app"
        return f"goes to {'the dead letters' if self.topic is None else f'topic {self.topic}'}{limit}"

    @property
    def share(self) -> float | None:
        """`stop_above` as a number; None if it is not given.

        >>> DeadLetter(stop_above="1%").share, DeadLetter(stop_above=0.5).share, DeadLetter().share
        (0.01, 0.5, None)
        """
        if not isinstance(self.stop_above, str):
            return self.stop_above
        try:
            return float(self.stop_above.removesuffix("%")) / 100 if self.stop_above.endswith("%") else float("nan")
        except ValueError:
            return float("nan")


OnError = Stop | Skip | DeadLetter
"""The handling of a failure."""


def checked_on_error(on_error: Any, where: str) -> OnError | None:
    """Checks a user's `on_error`. Raises DefinitionError."""
    if on_error is not None and not isinstance(on_error, OnError):
        raise DefinitionError(
            f"on_error={on_error!r} is not a way to handle errors",
            where=where,
            hint="use fk.Stop(), fk.Skip() or fk.DeadLetter()",
        )
    return on_error
