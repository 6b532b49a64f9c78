"""`key_by(…).process(…)`: a user's Python object that sees the rows of each key in order, with state and timers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Generic, NamedTuple, Protocol

from falkirk.stream.earlier import Migrate
from falkirk.stream.formats.rows import Row, RowT_contra, SchemaLike

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

Rows = Iterable[Mapping[str, Any]] | Mapping[str, Any] | None
"""What a process may return or yield: rows, one row, or nothing."""


class Timer(NamedTuple):
    """A timer that is due."""

    name: str
    at: datetime


def moment(millis: int) -> datetime:
    """A time in milliseconds since 1970, as a datetime.

    >>> moment(1500)
    datetime.datetime(1970, 1, 1, 0, 0, 1, 500000, tzinfo=datetime.timezone.utc)
    """
    return _EPOCH + millis * _MILLISECOND


class KeyedState(Protocol):
    """What the context of one key asks of the step. Times are milliseconds since 1970."""

    clock: int

    def get(self, table: str) -> Row | None: ...
    def put(self, table: str, row: Row | None) -> None: ...
    def set_timer(self, name: str, at: int) -> None: ...
    def delete_timer(self, name: str) -> None: ...


class KeyContext:
    """What a process may do for the key at hand. State and timers of other keys are out of reach."""

    def __init__(self, key: tuple[Any, ...], state: KeyedState) -> None:
        self.key = key
        """The values of the key's columns."""
        self._state = state

    def now(self) -> datetime:
        """The step's clock, in UTC: the same for all rows of a step, and the same when the step is replayed."""
        return moment(self._state.clock)

    def get(self, table: str = "state") -> Row | None:
        """The key's row in a table, or None."""
        return self._state.get(table)

    def put(self, row: Row, table: str = "state") -> None:
        """Replace the key's row in a table. Columns that are left out become null."""
        self._state.put(table, row)

    def delete(self, table: str = "state") -> None:
        """Drop the key's row in a table."""
        self._state.put(table, None)

    def set_timer(self, at: datetime | timedelta, name: str = "timer") -> None:
        """Call `on_timer` at a time (with a zone), or after a while. A timer of the same name moves.

        It fires in the first step whose clock has reached the time, before that step's rows; if the time is past
        already, in the next step. Raises ValueError for a time without a zone, and TypeError for what is no time.
        """
        if not isinstance(at, datetime | timedelta):
            raise TypeError(f"a timer is set for a datetime or after a timedelta, not {at!r}")
        if isinstance(at, timedelta):
            millis = self._state.clock + at // _MILLISECOND
        elif at.tzinfo is None:
            raise ValueError(f"a timer's time needs a zone: {at!r}")
        else:
            millis = (at - _EPOCH) // _MILLISECOND
        self._state.set_timer(name, millis)

    def delete_timer(self, name: str = "timer") -> None:
        """Forget a timer; no error if there is none."""
        self._state.delete_timer(name)


class Process(Generic[RowT_contra]):
    """Subclass this for state and timers.

    >>> class Count(Process):
    ...     state = {"n": int}
    ...     returns = {"user": str, "n": int}
    ...     def on_row(self, row, key):
    ...         n = (key.get() or {"n": 0})["n"] + 1
    ...         key.put({"n": n})
    ...         yield {"user": row["user"], "n": n}

    `state` is the schema of the table `state`; `tables` names more, each with its schema. `returns` is the schema of
    the rows that come out; without it, they have the schema of those that come in. Where the state was another in an
    earlier `version`, `migrate` says how to go on from it (`fk.From`). The object itself must hold nothing
    that changes: it is not part of the state, and rows of one task's keys are all that it sees.
    """

    state: ClassVar[SchemaLike | None] = None
    tables: ClassVar[Mapping[str, SchemaLike]] = {}
    returns: ClassVar[SchemaLike | None] = None
    version: ClassVar[int] = 1
    migrate: ClassVar[Migrate] = ()

    def on_row(self, row: RowT_contra, key: KeyContext) -> Rows:
        """A row of the key came."""
        raise NotImplementedError

    def on_timer(self, timer: Timer, key: KeyContext) -> Rows:
        """A timer of the key is due. Timers that are due when a step begins fire before its rows, in time's order."""
        raise NotImplementedError


class FunctionProcess(Process):
    """A plain function `(row, key) -> rows` as a process."""

    def __init__(self, function: Callable[[Any, KeyContext], Rows]) -> None:
        self.function = function

    def on_row(self, row: Any, key: KeyContext) -> Rows:
        return self.function(row, key)
