"""`key_by(…).process(…)`: a user's Python object that sees the rows of each key in order, with state and timers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Generic, NamedTuple, Protocol

from falkirk import durations
from falkirk.durations import DurationLike
from falkirk.stream.dataflow.earlier import Migrate
from falkirk.stream.formats.rows import Row, RowT_contra, SchemaLike

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
"""The first time that a timer can be told that it was set for."""

Rows = Iterable[Mapping[str, Any]] | Mapping[str, Any] | None
"""What a process may return or yield: rows, one row, or nothing."""


class Timer(NamedTuple):
    """A timer that is due: its name, and the time it was set for (UTC).

    >>> Timer("timer", datetime(2026, 5, 1, tzinfo=UTC)).at.isoformat()
    '2026-05-01T00:00:00+00:00'
    """

    name: str
    at: datetime


def moment(millis: int) -> datetime:
    """A time in milliseconds since 1970, as a datetime.

    >>> moment(1500)
    datetime.datetime(1970, 1, 1, 0, 0, 1, 500000, tzinfo=datetime.timezone.utc)
    """
    return _EPOCH + millis * _MILLISECOND


class KeyedState(Protocol):
    """The step's interface for the context of one key. Times are milliseconds since 1970."""

    clock: int

    def get(self, table: str) -> Row | None: ...
    def put(self, table: str, row: Row | None) -> None: ...
    def set_timer(self, name: str, at: int) -> None: ...
    def delete_timer(self, name: str) -> None: ...


class KeyContext:
    """The state and timers of the key of a row or timer: a process reads, writes and sets them here.

    >>> import falkirk as fk
    >>> flow = fk.Flow("example")
    >>> bids = flow.source("bids", key="auction", value=fk.Json({"auction": int}))
    >>> def named(row, key):
    ...     return {"key": str(key.key)}
    >>> bids.key_by("auction").process(named, id="named", returns={"key": str}).sink("keys", value=fk.Json())
    >>> fk.testing.run(flow, {"bids": [{"auction": 7}]}).sinks["keys"].rows
    [{'key': '(7,)'}]
    """

    def __init__(self, key: tuple[Any, ...], state: KeyedState) -> None:
        self.key = key
        """The values of the key's columns."""
        self._state = state

    def now(self) -> datetime:
        """The step's clock, in UTC: the same for all rows of a step, and the same when the step is run again.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> bids = flow.source("bids", key="auction", value=fk.Json({"auction": int}))
        >>> def dated(row, key):
        ...     return {"year": key.now().year}
        >>> bids.key_by("auction").process(dated, id="dated", returns={"year": int}).sink("years", value=fk.Json())
        >>> fk.testing.run(flow, {"bids": [{"auction": 7}]}).sinks["years"].rows
        [{'year': 2026}]
        """
        return moment(self._state.clock)

    def get(self, table: str = "state") -> Row | None:
        """The key's row in a table, as a dict; None if it has none.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> bids = flow.source("bids", key="auction", value=fk.Json({"auction": int}))
        >>> def first(row, key):
        ...     if key.get() is None:
        ...         key.put({"seen": True})
        ...         return row
        >>> bids.key_by("auction").process(first, id="first", state={"seen": bool}).sink("firsts", value=fk.Json())
        >>> fk.testing.run(flow, {"bids": [{"auction": 7}, {"auction": 7}]}).sinks["firsts"].rows
        [{'auction': 7}]
        """
        return self._state.get(table)

    def put(self, row: Row, table: str = "state") -> None:
        """Replace the key's row in a table. Missing columns become null. A row that does not fit the table's schema is a
        failure of the process.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> bids = flow.source("bids", key="auction", value=fk.Json({"auction": int, "price": int}))
        >>> def changed(row, key):
        ...     before = key.get("last") or {"price": 0}
        ...     key.put({"price": row["price"]}, "last")
        ...     return {"by": row["price"] - before["price"]}
        >>> changes = bids.key_by("auction").process(changed, tables={"last": {"price": int}}, returns={"by": int}, id="c")
        >>> changes.sink("changes", value=fk.Json())
        >>> fk.testing.run(flow, {"bids": [{"auction": 7, "price": 5}, {"auction": 7, "price": 8}]}).sinks["changes"].rows
        [{'by': 5}, {'by': 3}]
        """
        self._state.put(table, row)

    def delete(self, table: str = "state") -> None:
        """Delete the key's row in a table, if it has one.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> doors = flow.source("doors", key="door", value=fk.Json({"door": str, "open": bool}))
        >>> def kept(row, key):
        ...     key.put({"open": True}) if row["open"] else key.delete()
        >>> doors.key_by("door").process(kept, id="doors", state={"open": bool}).sink("nothing", value=fk.Json())
        >>> app = fk.testing.run(flow, {"doors": [{"door": "a", "open": True}, {"door": "a", "open": False}]})
        >>> app.state("doors").height
        0
        """
        self._state.put(table, None)

    def set_timer(self, at: datetime | DurationLike, name: str = "timer") -> None:
        """Call `on_timer` at a time (a datetime with a zone) or after a delay ("10s", or a timedelta). It replaces a
        timer of the same name.

        It fires in the first step whose clock has reached the time, before that step's rows; if the time is past, in
        the next step. Raises ValueError for a datetime without a zone, ConfigError for text that is not a duration, and
        TypeError for anything else that is not a time.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> class Reminder(fk.Process):
        ...     def on_row(self, row, key):
        ...         key.set_timer("3s")
        ...     def on_timer(self, timer, key):
        ...         return {"door": key.key[0]}
        >>> doors = flow.source("doors", key="door", value=fk.Json({"door": str}))
        >>> doors.key_by("door").process(Reminder(), id="reminder").sink("reminders", value=fk.Json())
        >>> app = fk.testing.run(flow, {"doors": [{"door": "a"}]})
        >>> app.advance("3s")
        >>> app.run()
        >>> app.sinks["reminders"].rows
        [{'door': 'a'}]
        """
        if isinstance(at, str):
            at = durations.duration(at)
        if not isinstance(at, datetime | timedelta):
            raise TypeError(f"a timer is set for a datetime or after a duration, not {at!r}")
        if isinstance(at, timedelta):
            millis = max(self._state.clock + at // _MILLISECOND, _FIRST)
        elif at.tzinfo is None:
            raise ValueError(f"a timer's time needs a zone: {at!r}")
        else:
            millis = (at - _EPOCH) // _MILLISECOND
        self._state.set_timer(name, millis)

    def delete_timer(self, name: str = "timer") -> None:
        """Delete a timer, if the key has one of this name.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> class Alarm(fk.Process):
        ...     def on_row(self, row, key):
        ...         key.set_timer(timedelta(seconds=3)) if row["open"] else key.delete_timer()
        ...     def on_timer(self, timer, key):
        ...         return {"door": key.key[0], "open": True}
        >>> doors = flow.source("doors", key="door", value=fk.Json({"door": str, "open": bool}))
        >>> doors.key_by("door").process(Alarm(), id="alarm").sink("alarms", value=fk.Json())
        >>> app = fk.testing.run(flow, {"doors": [{"door": "a", "open": True}, {"door": "a", "open": False}]})
        >>> app.advance("3s")
        >>> app.run()
        >>> app.sinks["alarms"].rows
        []
        """
        self._state.delete_timer(name)


class Process(Generic[RowT_contra]):
    """Subclass this to keep state and timers for each key: `stream.key_by(…).process(Count())`.

    >>> import falkirk as fk
    >>> class Count(fk.Process):
    ...     state = {"n": int}
    ...     returns = {"user": str, "n": int}
    ...     def on_row(self, row, key):
    ...         n = (key.get() or {"n": 0})["n"] + 1
    ...         key.put({"n": n})
    ...         yield {"user": row["user"], "n": n}
    >>> flow = fk.Flow("example")
    >>> visits = flow.source("visits", key="user", value=fk.Json({"user": str}))
    >>> visits.key_by("user").process(Count(), id="count").sink("counts", value=fk.Json())
    >>> fk.testing.run(flow, {"visits": [{"user": "ann"}, {"user": "ann"}]}).sinks["counts"].rows
    [{'user': 'ann', 'n': 1}, {'user': 'ann', 'n': 2}]

    `state` is the schema of the table `state`; `tables` has the schemas of more tables. `returns` is the schema of the
    output rows, if it differs from the input's schema. Raise `version` if the meaning of the state changes; `migrate`
    then converts the earlier state (`fk.From`). Do not keep changing values in the object itself: they are not part of
    the state.

    For type checkers, `fk.Process[Order]` takes rows that the TypedDict `Order` describes.
    """

    state: ClassVar[SchemaLike | None] = None
    tables: ClassVar[Mapping[str, SchemaLike]] = {}
    returns: ClassVar[SchemaLike | None] = None
    version: ClassVar[int] = 1
    migrate: ClassVar[Migrate] = ()

    def on_row(self, row: RowT_contra, key: KeyContext) -> Rows:
        """Called for each row of the key, in order. Returns or yields rows: dicts. None is no row.

        An exception stops the app, unless `on_error` says otherwise. Raises NotImplementedError if the subclass does
        not define it.

        >>> class Doubled(Process):
        ...     def on_row(self, row, key):
        ...         yield row
        ...         yield row
        >>> list(Doubled().on_row({"n": 1}, None))
        [{'n': 1}, {'n': 1}]
        """
        raise NotImplementedError

    def on_timer(self, timer: Timer, key: KeyContext) -> Rows:
        """Called for each timer of the key that is due when a step begins: before the step's rows, ordered by time.

        It returns what `on_row` returns. Raises NotImplementedError if the subclass sets timers and does not define
        it.

        >>> class Reminder(Process):
        ...     def on_timer(self, timer, key):
        ...         return {"reminder": timer.name}
        >>> Reminder().on_timer(Timer("lunch", moment(0)), None)
        {'reminder': 'lunch'}
        """
        raise NotImplementedError("it sets timers, and has no on_timer: define that in a class, an fk.Process")


class FunctionProcess(Process):
    """A plain function `(row, key) -> rows` as a process."""

    def __init__(self, function: Callable[[Any, KeyContext], Rows]) -> None:
        self.function = function

    def on_row(self, row: Any, key: KeyContext) -> Rows:
        return self.function(row, key)
