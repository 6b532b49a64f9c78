"""Aggregates that users make: Python, group by group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import narwhals as nw
import polars as pl

from falkirk.blame import FAILURES, FIX, in_brief, raised
from falkirk.errors import DefinitionError
from falkirk.stream.aggregates.bound import AggregateLike, Bound, Context, GroupError, new
from falkirk.stream.definition.expressions import IntoExpr, evaluate, words
from falkirk.stream.definition.frames import MISFITS, fits, flaw, frame_if_all_fit, frame_of
from falkirk.stream.definition.functions import checked_function
from falkirk.stream.formats.rows import SchemaLike
from falkirk.stream.formats.types import schema_of


class Aggregate(AggregateLike):
    """Subclass this for an aggregate of your own: give the schema of its state, the type of its result, and two
    functions.

    >>> class Range(Aggregate):
    ...     state = {"low": int, "high": int}
    ...     returns = int
    ...     def add(self, state, values):
    ...         seen = values if state is None else [*values, state["low"], state["high"]]
    ...         return {"low": min(seen), "high": max(seen)}
    ...     def result(self, state):
    ...         return state["high"] - state["low"]
    >>> Range("price").add(None, [3, 1, 2])
    {'low': 1, 'high': 3}

    Use it as `agg(range=Range("price"))`: it is made with columns' names or row-wise expressions. `retract` is needed
    only where rows can be taken back (those of a grouped result). Raise `version` if the meaning of the state changes.
    """

    state: ClassVar[SchemaLike]
    returns: ClassVar[Any]
    version: ClassVar[int] = 1

    def __init__(self, *columns: IntoExpr) -> None:
        self.columns = columns

    # With any arguments and any keywords, type checkers let a subclass name a parameter for each of its columns.

    def add(self, state: dict[str, Any] | None, *columns: Any, **_: Any) -> dict[str, Any]:
        """The new state, from the group's state (None at first) and a list of values for each column.

        The result must not depend on how rows are cut into calls: add(add(s, a), b) == add(s, a ++ b).

        >>> class Count(Aggregate):
        ...     def add(self, state, values):
        ...         return {"n": (state or {"n": 0})["n"] + len(values)}
        >>> Count("price").add({"n": 2}, [120, 90])
        {'n': 4}
        """
        raise NotImplementedError

    def retract(self, state: dict[str, Any] | None, *columns: Any, **_: Any) -> dict[str, Any]:
        """The new state, when rows are taken back: it undoes `add`. Within a step, it may be called before the `add`
        that it undoes.

        >>> class Count(Aggregate):
        ...     def retract(self, state, values):
        ...         return {"n": (state or {"n": 0})["n"] - len(values)}
        >>> Count("price").retract({"n": 2}, [90])
        {'n': 1}
        """
        raise NotImplementedError

    def merge(self, state: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        """The state of two groups that become one, as sessions do. Without it, sessions keep their rows.

        merge(add(None, a), add(None, b)) == add(None, a ++ b).

        >>> class Count(Aggregate):
        ...     def merge(self, state, other):
        ...         return {"n": state["n"] + other["n"]}
        >>> Count("price").merge({"n": 2}, {"n": 3})
        {'n': 5}
        """
        raise NotImplementedError

    def result(self, state: dict[str, Any]) -> Any:
        """The output for a group with this state, of the type `returns`.

        >>> class Mean(Aggregate):
        ...     def result(self, state):
        ...         return state["sum"] / state["n"]
        >>> Mean("price").result({"sum": 30, "n": 4})
        7.5
        """
        raise NotImplementedError

    def bind(self, context: Context) -> Bound:
        """The aggregate for one column of one `agg`. Raises DefinitionError if the class or its columns do not fit.

        >>> class Count(Aggregate):
        ...     state, returns = {"n": int}, int
        ...     def add(self, state, values):
        ...         return {"n": (state or {"n": 0})["n"] + len(values)}
        ...     def result(self, state):
        ...         return state["n"]
        >>> Count("price").bind(Context("n", pl.Schema({"price": pl.Int64()}), retract=False, where="agg")).returns
        Int64
        """
        kind = type(self)
        where = f"{kind.__name__} in {context.where}"
        for wanted in ("state", "returns", "add", "result", *(["retract"] if context.retract else [])):
            if getattr(kind, wanted, None) is getattr(Aggregate, wanted, None):
                why = ", because rows of a grouped result can be taken back" if wanted == "retract" else ""
                raise DefinitionError(
                    f"the aggregate does not define `{wanted}`{why}",
                    where=where,
                    hint=f"add it to class {kind.__name__}; see help(fk.Aggregate)",
                )
        for method in (self.add, self.retract, self.merge, self.result):
            checked_function(method, where)
        if not self.columns:
            raise DefinitionError("the aggregate is of no column", where=where, hint=f'{kind.__name__}("price")')
        return BoundUser(self, context, where)


class BoundUser(Bound):
    """Carries lists of values to `add` and `retract`, and states as dicts."""

    folds = False

    def __init__(self, aggregate: Aggregate, context: Context, where: str) -> None:
        exprs = [nw.col(c) if isinstance(c, str) else c for c in aggregate.columns]
        names = [str(i) for i in range(len(exprs))]
        types = [next(iter(evaluate([e], context.schema, "select", where).values())) for e in exprs]
        self.aggregate, self.inputs = aggregate, names
        self.schema = schema_of(aggregate.state)
        described = f"{type(aggregate).__name__} v{aggregate.version} of {', '.join(map(str, types))}"
        super().__init__(context, arguments=dict(zip(names, exprs, strict=True)), words=described)

    @property
    def returns(self) -> pl.DataType:
        return schema_of({self.name: self.aggregate.returns})[self.name]

    @property
    def parts(self) -> Mapping[str, pl.DataType]:
        return dict(self.schema)

    def partial(self, weight: pl.Expr | None) -> Mapping[str, pl.Expr]:
        if weight is None:
            return {f"add {i}": self.argument(i) for i in self.inputs}
        signs = {"add": weight > 0, "retract": weight < 0}
        return {f"{s} {i}": self.argument(i).filter(which) for s, which in signs.items() for i in self.inputs}

    def merge(self, frame: pl.DataFrame) -> Mapping[str, pl.Expr | pl.Series]:
        calls = [(m, self._lists(frame, m)) for m in (("add", "retract") if self.retract else ("add",))]
        states: list[dict[str, Any] | None] = []
        for i, before in enumerate(self._states(frame)):
            state = before
            for method, lists in calls:
                columns = [values[i] for values in lists]
                if columns[0]:
                    state = self._call(i, method, state, *columns)
            states.append(state)
        return {part: column.alias(part) for part, column in self._frame(states).to_dict().items()}

    @property
    def unites(self) -> bool:
        return type(self.aggregate).merge is not Aggregate.merge

    def united(self, frame: pl.DataFrame) -> Mapping[str, pl.Expr | pl.Series]:
        others = self._states(frame.select(pl.col(new(self.name, p)).alias(f"{self.name}.{p}") for p in self.parts))
        states: list[dict[str, Any] | None] = []
        for i, (state, other) in enumerate(zip(self._states(frame), others, strict=True)):
            both = state is not None and other is not None
            states.append(self._call(i, "merge", state, other) if both else state or other)
        return self._frame(states).to_dict()

    def result(self, frame: pl.DataFrame) -> pl.Series:
        values = [None if s is None else self._call(i, "result", s) for i, s in enumerate(self._states(frame))]
        schema = pl.Schema({"": self.returns})
        try:
            return frame_of([{"": v} for v in values], schema).to_series()
        except MISFITS as error:
            wrong = next(i for i, v in enumerate(values) if not fits({"": v}, schema))
            raise GroupError(
                wrong,
                f"{type(self.aggregate).__name__}.result gave {_short(values[wrong])}, which is not of type {self.returns}",
                "return that type, or change `returns`",
            ) from error

    def _lists(self, frame: pl.DataFrame, method: str) -> list[list[list[Any]]]:
        columns = [frame[new(self.name, f"{method} {i}")] for i in self.inputs]
        try:
            return [column.to_list() for column in columns]
        except FAILURES:
            for i in range(frame.height):
                try:
                    _ = [column[i : i + 1].to_list() for column in columns]
                except FAILURES as error:
                    what = (
                        f"{type(self.aggregate).__name__} is given a value that Python does not have: {in_brief(error)}"
                    )
                    hint = "a time in Python is in the years 1 to 9999: leave other rows out with a filter"
                    raise GroupError(i, what, hint) from error
            raise

    def _states(self, frame: pl.DataFrame) -> list[dict[str, Any] | None]:
        """One dict a group; None for a group that has no state yet, whose parts are all null."""
        rows = frame.select(self.state(part).alias(part) for part in self.parts).rows(named=True)
        return [None if all(v is None for v in row.values()) else row for row in rows]

    def _call(self, row: int, method: str, *arguments: Any) -> Any:
        try:
            return getattr(self.aggregate, method)(*arguments)
        except FAILURES as error:
            called = f"{type(self.aggregate).__name__}.{method}({', '.join(map(_short, arguments))})"
            raise GroupError(row, raised(called, error), FIX) from error

    def _frame(self, states: list[Any]) -> pl.DataFrame:
        rows = [{} if state is None else state for state in states]
        if (frame := frame_if_all_fit(rows, self.schema)) is not None:
            return frame
        wrong = next(i for i, row in enumerate(rows) if not fits(row, self.schema))
        raise GroupError(
            wrong,
            f"{type(self.aggregate).__name__} gave {_short(rows[wrong])}, which is not a valid state of "
            f"{words(self.schema)}: {flaw(rows[wrong], self.schema)}",
            "return dicts with these columns, or change `state` and `version`",
        )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 120 else text[:117] + "…"
