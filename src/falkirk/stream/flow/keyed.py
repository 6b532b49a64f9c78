"""The operators with state: they follow `group_by` and `key_by`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Never, overload

import polars as pl

from falkirk.blame import user_line
from falkirk.errors import DefinitionError
from falkirk.state.codec import check_value_type
from falkirk.stream import operators as op
from falkirk.stream.aggregates.bound import AggregateLike
from falkirk.stream.dataflow.earlier import Migrate
from falkirk.stream.dataflow.graph import placed
from falkirk.stream.dataflow.process import FunctionProcess, KeyContext, Process, Rows
from falkirk.stream.definition.functions import checked_function
from falkirk.stream.definition.names import default_id
from falkirk.stream.definition.on_error import OnError, checked_on_error
from falkirk.stream.definition.windows import END, START, CountWindow, Session
from falkirk.stream.evolution.migrating import migrated
from falkirk.stream.flow.alternatives import GROUPED, KEYED, missing
from falkirk.stream.flow.totals import bound_aggregates, check_named
from falkirk.stream.flow.windowing import count_windows, key_in_windows, sessions
from falkirk.stream.formats.rows import Row, RowT_co, SchemaLike, TypedRow, Untyped
from falkirk.stream.formats.types import schema_of

if TYPE_CHECKING:
    from falkirk.stream.flow.streams import Stream


class Grouped:
    """Rows grouped by columns. `.agg(…)` returns a stream of results.

    >>> import falkirk as fk
    >>> bids = fk.Flow("example").source("bids", key="auction", value=fk.Json({"auction": int}))
    >>> grouped = bids.group_by("auction")
    >>> grouped.agg(n=fk.len()).schema.names()
    ['auction', 'n']
    """

    if not TYPE_CHECKING:  # to type checkers it would say that every name exists
        __getattr__ = missing(GROUPED)

    def __init__(
        self,
        graph: op.Graph,
        before: op.Operator,
        columns: tuple[str, ...],
        given: str | None,
        version: int,
        migrate: Migrate,
        line: str,
        made_later: Session | CountWindow | None = None,
        in_windows: bool = False,
    ) -> None:
        """`in_windows`: it is group_by itself that gave the rows their windows."""
        self._graph, self._before, self._columns = graph, before, columns
        self._given, self._id, self._version, self._line = given, given or default_id("by", *columns), version, line
        self._migrate, self._made_later, self._in_windows = migrate, made_later, in_windows

    def agg(self, *unnamed: Never, **aggregates: AggregateLike) -> Stream[Row]:
        """One row for each group: the group's columns, and these aggregates by name.

        The result is a table that changes: a group's new row replaces its old row, also for the operators that follow.
        Raises DefinitionError.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> bids = flow.source("bids", key="auction", value=fk.Json({"auction": int, "price": int}))
        >>> stats = bids.group_by("auction", id="stats").agg(n=fk.len(), top=fk.max("price"))
        >>> stats.sink("stats", key="auction", value=fk.Json())
        >>> fk.testing.run(flow, {"bids": [{"auction": 7, "price": 120}, {"auction": 7, "price": 90}]}).sinks["stats"].table
        {7: {'auction': 7, 'n': 2, 'top': 120}}
        """
        from falkirk.stream.flow.streams import Stream

        where = f"group_by {self._id!r} ({self._line})"
        check_named(unnamed, where)
        before = self._before
        later = self._made_later
        columns = {name: before.schema[name] for name in self._columns if later is None}
        bound = bound_aggregates(before, aggregates, self._columns, where, sessions=isinstance(later, Session))
        if later is not None:
            if self._migrate:
                what = "sessions" if isinstance(later, Session) else "windows of so many rows"
                raise DefinitionError(f"the state of {what} cannot be migrated", where=where, hint="rebuild it")
            own = (self._columns, bound, self._id, self._version, self._line)
            made = sessions(before, later, *own) if isinstance(later, Session) else count_windows(before, later, *own)
            return Stream(self._graph, self._graph.add(made, exchange=True))
        windows = before if isinstance(before, op.Windows) else None
        same = {END} if windows and START in self._columns else set[str]()  # the end follows from the start
        place = placed(before, self._columns, self._id)
        key, root = place if windows is None else key_in_windows(self._columns, self._id, before)
        given: dict[str, Any] = {
            "id": self._id, "line": self._line, "inputs": (before,), "changes": True, "partitioned": key, "root": root,
            "unique": frozenset(self._columns) - same, "regime": before.regime,
            "schema": pl.Schema({**columns, **{name: b.returns for name, b in bound.items()}}),
            "columns": self._columns, "aggregates": bound, "version": self._version,
        }  # fmt: skip
        # In SQL, rows that have windows can be grouped by something else too.
        expire = windows is not None and windows.expire and END in self._columns
        group = op.WindowGroup(window=windows.window, **given) if windows and expire else op.Group(**given)
        return Stream(self._graph, self._graph.add(migrated(group, self._migrate), exchange=True))

    def top_k(
        self,
        k: int,
        by: str | Sequence[str],
        *,
        reverse: bool | Sequence[bool] = False,
        rank: str | None = None,
        ties: bool = False,
    ) -> Stream[Row]:
        """The k rows of each group with the greatest values of `by`, which is a column or several; with `reverse=True` those
        with the smallest. `reverse` can be a list, with one entry for each column.

        Nulls come last. Rows with equal values are ordered by their other columns, smallest first, in the order of columns.
        So the result depends only on the rows, and not on their order. A row that comes twice counts twice.

        With `ties=True`, all rows that are equal to the last of them in `by` are kept too, as `rank() <= k` in SQL does.

        `rank` names a column to add, with the numbers 1 to k; with ties, 1 + the number of better rows. Without it a step
        writes fewer changes: a new best row then changes the rank of no other. Like a grouped result, the rows are a table
        that changes. State: the k rows of each group, and their ties; if the stream can take rows back, all its rows. Raises
        DefinitionError.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> bids = flow.source("bids", key="auction", value=fk.Json({"auction": int, "price": int}))
        >>> best = bids.group_by("auction").top_k(2, by="price", rank="rank")
        >>> best.sink("best", key=["auction", "rank"], value=fk.Json())
        >>> rows = [{"auction": 7, "price": price} for price in (90, 120, 100)]
        >>> [row["price"] for row in fk.testing.run(flow, {"bids": rows}).sinks["best"].table.values()]
        [120, 100]
        """
        from falkirk.stream.flow.streams import Stream
        from falkirk.stream.flow.tops import top_k

        name = self._given or default_id("top_k.by", *self._columns)
        if self._made_later is not None or self._in_windows:
            kinds = {Session: "session", CountWindow: "count_window"}
            window = kinds.get(type(self._made_later), "tumbling")
            group = "id" if self._made_later is not None else START
            raise DefinitionError(
                f"the rows of {'sessions' if window == 'session' else 'windows'} have no top",
                where=f"top_k {name!r} ({self._line})",
                hint=f'.group_by("id", fk.{window}(…)).agg(n=fk.len()).group_by("{group}").top_k(3, by="n")',
            )
        if self._migrate:
            raise DefinitionError(
                "the state of top_k cannot be migrated", where=f"top_k {name!r} ({self._line})", hint="rebuild it"
            )
        made = top_k(self._before, self._line, self._columns, k, by, reverse, rank, ties, name, self._version)
        return Stream(self._graph, self._graph.add(made, exchange=True))


class Keyed(Generic[RowT_co]):
    """Rows by key. `.process(…)` returns a stream of results.

    >>> import falkirk as fk
    >>> bids = fk.Flow("example").source("bids", key="auction", value=fk.Json({"auction": int}))
    >>> bids.key_by("auction").process(lambda row, key: row, id="same").schema.names()
    ['auction']
    """

    if not TYPE_CHECKING:  # to type checkers it would say that every name exists
        __getattr__ = missing(KEYED)

    def __init__(self, graph: op.Graph, before: op.Operator, columns: tuple[str, ...]) -> None:
        self._graph, self._before, self._columns = graph, before, columns

    @overload
    def process(
        self,
        process: Process[RowT_co] | Callable[[RowT_co, KeyContext], Rows],
        *,
        id: str | None = None,
        state: SchemaLike | None = None,
        tables: Mapping[str, SchemaLike] | None = None,
        returns: type[TypedRow],
        version: int | None = None,
        migrate: Migrate = (),
        on_error: OnError | None = None,
    ) -> Stream[TypedRow]: ...
    @overload
    def process(
        self,
        process: Process[RowT_co] | Callable[[RowT_co, KeyContext], Rows],
        *,
        id: str | None = None,
        state: SchemaLike | None = None,
        tables: Mapping[str, SchemaLike] | None = None,
        returns: Untyped | None = None,
        version: int | None = None,
        migrate: Migrate = (),
        on_error: OnError | None = None,
    ) -> Stream[Row]: ...
    def process(
        self,
        process: Process[RowT_co] | Callable[[RowT_co, KeyContext], Rows],
        *,
        id: str | None = None,  # noqa: A002
        state: SchemaLike | None = None,
        tables: Mapping[str, SchemaLike] | None = None,
        returns: SchemaLike | None = None,
        version: int | None = None,
        migrate: Migrate = (),
        on_error: OnError | None = None,
    ) -> Stream[Any]:
        """Give each key's rows, in order, to an `fk.Process` or a function `(row, key) -> rows`, with state and
        timers.

        A row is a dict, and `key` is an `fk.KeyContext`. The function returns None, one dict, or any number of dicts.
        `state`, `tables`, `returns`, `version` and `migrate` override the attributes of the `fk.Process`. `id` names
        the state. `on_error` applies to rows and timers for which the code fails. Falkirk then discards the state,
        timers and rows of the failed call. Raises DefinitionError.

        >>> import falkirk as fk
        >>> flow = fk.Flow("example")
        >>> bids = flow.source("bids", key="auction", value=fk.Json({"auction": int, "price": int}))
        >>> def first(row, key):
        ...     if key.get() is None:
        ...         key.put({"seen": True})
        ...         yield row
        >>> bids.key_by("auction").process(first, id="first", state={"seen": bool}).sink("first", value=fk.Json())
        >>> fk.testing.run(flow, {"bids": [{"auction": 7, "price": 120}, {"auction": 7, "price": 90}]}).sinks["first"].rows
        [{'auction': 7, 'price': 120}]
        """
        from falkirk.stream.flow.streams import Stream

        line, before = user_line(), self._before
        taken = _process_of(process, line)
        name = id or default_id(getattr(process, "__name__", type(process).__name__), "by", *self._columns)
        where = f"process {name!r} ({line})"
        if before.changes:
            raise DefinitionError(
                "rows of a grouped result can be taken back, and a process cannot take them back",
                where=where,
                hint="process the rows before they are grouped",
            )
        _check_calls(taken, where)
        own = state if state is not None else taken.state
        schemas: dict[str, Any] = {} if own is None else {"state": own}
        typed = {table: schema_of(spec) for table, spec in {**schemas, **taken.tables, **(tables or {})}.items()}
        for table, schema in typed.items():
            for column, dtype in schema.items():
                check_value_type(dtype, where=f"column {column!r} of table {table!r} of {where}")
        out = returns if returns is not None else taken.returns
        key, root = placed(before, self._columns, name)
        made = op.Processing(
            id=name, line=line, inputs=(before,), schema=before.schema if out is None else schema_of(out), root=root,
            regime=before.regime, columns=self._columns, key=key, process=taken, own_tables=typed,
            version=taken.version if version is None else version, on_error=checked_on_error(on_error, where),
        )  # fmt: skip
        return Stream(self._graph, self._graph.add(migrated(made, migrate or taken.migrate), exchange=True))


def _process_of(given: Any, line: str) -> Process[Any]:
    """What the user gave, as a process. Raises DefinitionError."""
    if isinstance(given, Process):
        return given
    if isinstance(given, type) or not callable(given):
        raise DefinitionError(
            f"{given!r} is neither a function nor an object of a Process",
            where=f"process ({line})",
            hint="pass an object: Sessions(), not Sessions"
            if isinstance(given, type)
            else "derive its class from fk.Process",
        )
    return FunctionProcess(given)


def _check_calls(process: Process[Any], where: str) -> None:
    """Raises DefinitionError if what is called for rows and timers is missing, or cannot be called."""
    if getattr(process.on_row, "__func__", None) is Process.on_row:
        raise DefinitionError(
            f"{type(process).__name__} has no on_row, which is called for each row",
            where=where,
            hint="define it in the class: def on_row(self, row, key): …",
        )
    functions: list[Callable[..., Any]] = [process.on_row, process.on_timer]
    for function in [process.function] if isinstance(process, FunctionProcess) else functions:
        checked_function(function, where)
