"""Aggregates that users make: Python, group by group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import narwhals as nw
import polars as pl

from falkirk.errors import DefinitionError, UserCodeError
from falkirk.stream.aggregates.bound import Bound, Context, new
from falkirk.stream.expressions import IntoExpr, evaluate
from falkirk.stream.formats.types import SchemaLike, schema_of
from falkirk.stream.frames import MISFITS, frame_of


class Aggregate:
    """An aggregate of one's own. Give the schema of its state, its type, and how rows change it.

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

    `add` gets the group's state (None at first) and one list of values for each column that the object was made with;
    it returns the new state. It must not matter how rows are cut into calls: add(add(s, a), b) == add(s, a ++ b).
    Groups whose rows can be taken back (those of a grouped result) need `retract` too, which undoes `add`.
    Raise `version` when the meaning of the state changes.
    """

    state: ClassVar[SchemaLike]
    returns: ClassVar[Any]
    version: ClassVar[int] = 1

    def __init__(self, *columns: IntoExpr) -> None:
        self.columns = columns

    def add(self, state: dict[str, Any] | None, *columns: list[Any]) -> dict[str, Any]:
        """The state after these rows came."""
        raise NotImplementedError

    def retract(self, state: dict[str, Any] | None, *columns: list[Any]) -> dict[str, Any]:
        """The state after these rows went. It may be called before rows that undo it come, within one step."""
        raise NotImplementedError

    def result(self, state: dict[str, Any]) -> Any:
        """The output for a group in this state."""
        raise NotImplementedError

    def bind(self, context: Context) -> Bound:
        """Check the class and its columns. Raises DefinitionError."""
        kind = type(self)
        where = f"{kind.__name__} in {context.where}"
        for wanted in ("state", "returns", "add", "result", *(["retract"] if context.retract else [])):
            if getattr(kind, wanted, None) is getattr(Aggregate, wanted, None):
                why = ", because rows of a grouped result can be taken back" if wanted == "retract" else ""
                raise DefinitionError(f"the aggregate does not define `{wanted}`{why}", where=where)
        if not self.columns:
            raise DefinitionError("the aggregate is of no column", where=where, hint=f'{kind.__name__}("price")')
        return BoundUser(self, context, where)


class BoundUser(Bound):
    """Carries lists of values to `add` and `retract`, and states as dicts."""

    def __init__(self, aggregate: Aggregate, context: Context, where: str) -> None:
        exprs = [nw.col(c) if isinstance(c, str) else c for c in aggregate.columns]
        names = [str(i) for i in range(len(exprs))]
        types = [next(iter(evaluate([e], context.schema, "select", where).values())) for e in exprs]
        self.aggregate, self.where, self.inputs = aggregate, where, names
        self.schema = schema_of(aggregate.state)
        words = f"{type(aggregate).__name__} v{aggregate.version} of {', '.join(map(str, types))}"
        super().__init__(context, arguments=dict(zip(names, exprs, strict=True)), words=words)

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
                    state = self._call(method, state, *columns)
            states.append(state)
        return {part: column.alias(part) for part, column in self._frame(states).to_dict().items()}

    def result(self, frame: pl.DataFrame) -> pl.Series:
        values = [None if s is None else self._call("result", s) for s in self._states(frame)]
        try:
            return pl.Series(values, dtype=self.returns, strict=True)
        except MISFITS as error:
            raise UserCodeError(
                f"`result` gave what is no {self.returns}: {error}",
                where=self.where,
                hint="return that type, or change `returns`",
            ) from error

    def _lists(self, frame: pl.DataFrame, method: str) -> list[list[list[Any]]]:
        return [frame[new(self.name, f"{method} {i}")].to_list() for i in self.inputs]

    def _states(self, frame: pl.DataFrame) -> list[dict[str, Any] | None]:
        """One dict a group; None for a group that has no state yet, whose parts are all null."""
        rows = frame.select(self.state(part).alias(part) for part in self.parts).rows(named=True)
        return [None if all(v is None for v in row.values()) else row for row in rows]

    def _call(self, method: str, *arguments: Any) -> Any:
        try:
            return getattr(self.aggregate, method)(*arguments)
        except Exception as error:
            raise UserCodeError(
                f"`{method}` raised {type(error).__name__}: {error}",
                where=f"{self.where}, called with {', '.join(map(_short, arguments))}",
            ) from error

    def _frame(self, states: list[Any]) -> pl.DataFrame:
        for state in states:
            if state is not None and (not isinstance(state, dict) or state.keys() - self.schema.keys()):
                raise UserCodeError(
                    f"`add` gave {_short(state)}, which is no state of columns {', '.join(self.schema)}",
                    where=self.where,
                )
        try:
            return frame_of([s or {} for s in states], self.schema)
        except MISFITS as error:
            raise UserCodeError(
                f"`add` gave a state that does not fit its schema: {error}", where=self.where
            ) from error


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 120 else text[:117] + "…"
