"""collect: a list of a group's values. The state is the list itself, because each change of a group emits all of it.

state'[g] = sort(state[g] + values that came − values that were taken back)        at most `limit` values
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
import polars as pl

from falkirk.errors import DefinitionError
from falkirk.state.codec import check_value_type, decode_values, encode_values
from falkirk.stream.aggregates.arguments import Argument, checked_argument, one_zero
from falkirk.stream.aggregates.bound import NEVER_ADDED, AggregateLike, Bound, Context, GroupError, new, old
from falkirk.stream.definition.expressions import IntoExpr

_pack = msgspec.msgpack.encode
_unpack = msgspec.msgpack.Decoder(list[bytes]).decode


@dataclass(frozen=True, slots=True)
class Collect(AggregateLike):
    """The values of one column."""

    of: IntoExpr
    by: IntoExpr | None
    limit: int

    def bind(self, context: Context) -> Bound:
        where = f"collect in {context.where}"
        if self.limit < 1:
            raise DefinitionError(f"limit={self.limit!r} is not a number of values", where=where, hint="limit=1000")
        x = checked_argument("collect", self.of, context)
        by = None if self.by is None else checked_argument("collect", self.by, context)
        for argument in (x, by or x):
            check_value_type(argument.dtype, where=f"{argument.column!r} of {where}")
        return BoundCollect(context, x, by, self.limit)


class BoundCollect(Bound):
    """Where rows can be taken back, a value that was never added stops the app."""

    folds = False
    parts: Mapping[str, pl.DataType] = {"values": pl.Binary()}

    def __init__(self, context: Context, x: Argument, by: Argument | None, limit: int) -> None:
        order = {"by": by} if by is not None else {}
        given = {**order, "x": x}
        words = f"collect of {x.dtype}" + (f" by {by.dtype}" if by is not None else "")
        super().__init__(context, arguments={name: a.expr for name, a in given.items()}, words=words)
        self.limit, self.dtype = limit, x.dtype
        self.schema = pl.Schema({name: a.dtype for name, a in given.items()})

    @property
    def returns(self) -> pl.DataType:
        return pl.List(self.dtype)

    def partial(self, weight: pl.Expr | None) -> Mapping[str, pl.Expr]:
        signs = {"add": None} if weight is None else {"add": weight > 0, "retract": weight < 0}
        columns = {name: one_zero(self.argument(name), dtype) for name, dtype in self.schema.items()}
        return {
            f"{sign} {name}": (column if which is None else column.filter(which)).implode()
            for sign, which in signs.items()
            for name, column in columns.items()
        }

    def merge(self, frame: pl.DataFrame) -> Mapping[str, pl.Expr | pl.Series]:
        moves = [self._moves(frame, "add", 1), *([self._moves(frame, "retract", -1)] if self.retract else [])]
        return self._summed([self._kept(frame[old(self.name, "values")]), *moves], frame.height)

    def united(self, frame: pl.DataFrame) -> Mapping[str, pl.Expr | pl.Series]:
        return self._summed([self._kept(frame[f(self.name, "values")]) for f in (old, new)], frame.height)

    def _kept(self, states: pl.Series) -> pl.DataFrame:
        return self._decoded(states).with_columns(weight=pl.lit(1, pl.Int64))

    def _summed(self, weighted: list[pl.DataFrame], groups: int) -> Mapping[str, pl.Series]:
        """The state from values with weights, by number of the group."""
        columns = ["group", *self.schema]
        values = (
            pl.concat(weighted)
            .group_by(columns, maintain_order=True)
            .agg(pl.col("weight").sum())
            .sort(columns, nulls_last=False, maintain_order=True)
        )
        self._check(values)
        values = values[np.repeat(np.arange(values.height), values["weight"].to_numpy())]
        rows = pl.Series("row", encode_values(self.schema, values.select(*self.schema)), dtype=pl.Binary)
        coded = pl.DataFrame([values["group"], rows])
        lists = _by_group(coded, "row", groups).to_list()
        return {"values": pl.Series([_pack(each) for each in lists], dtype=pl.Binary)}

    def result(self, frame: pl.DataFrame) -> pl.Series:
        return _by_group(self._decoded(frame[old(self.name, "values")]), "x", frame.height)

    def _moves(self, frame: pl.DataFrame, sign: str, weight: int) -> pl.DataFrame:
        """The values that came, or those that were taken back, by number of the group."""
        lists = frame.select(pl.col(new(self.name, f"{sign} {name}")).alias(name) for name in self.schema)
        filled = lists.with_row_index("group").filter(pl.col("x").list.len() > 0)
        return filled.explode([*self.schema]).with_columns(weight=pl.lit(weight, pl.Int64))

    def _decoded(self, states: pl.Series) -> pl.DataFrame:
        """The values of all groups, by number of the group."""
        lists: list[list[bytes]] = [[] if state is None else _unpack(state) for state in states]
        numbers = [group for group, rows in enumerate(lists) for _ in rows]
        values = decode_values(self.schema, [row for rows in lists for row in rows])
        return pl.DataFrame([pl.Series("group", numbers, dtype=pl.UInt32), *values.get_columns()])

    def _check(self, values: pl.DataFrame) -> None:
        """Raises GroupError for a value that is taken back and was never added, and for more than `limit` values."""
        if (wrong := values.filter(pl.col("weight") < 0)).height:
            raise GroupError(
                wrong["group"][0], f"{wrong['x'][0]!r} is retracted from {self.name}, but was never added", NEVER_ADDED
            )
        sizes = values.group_by("group", maintain_order=True).agg(pl.col("weight").sum())
        if (large := sizes.filter(pl.col("weight") > self.limit)).height:
            raise GroupError(
                large["group"][0],
                f"{self.name} comes to {large['weight'][0]:,} values, and its limit is {self.limit:,}",
                "keep fewer values, with a filter or a smaller group; or raise the limit: fk.collect(…, limit=…)",
            )


def _by_group(values: pl.DataFrame, column: str, groups: int) -> pl.Series:
    """One list per group, in the order of groups."""
    lists = values.group_by("group", maintain_order=True).agg(column)
    every = pl.DataFrame({"group": pl.int_range(groups, dtype=pl.UInt32, eager=True)})
    found = every.join(lists, on="group", how="left", maintain_order="left")[column]
    return pl.select(pl.when(found.is_null()).then(pl.lit([], dtype=found.dtype)).otherwise(found)).to_series()


def collect(of: IntoExpr, *, by: IntoExpr | None = None, limit: int = 1000) -> Collect:
    """The list of a group's values of a column or row-wise expression, sorted, nulls first and included.

    `by` sorts by another column or expression, and then by value. If a group has more than `limit` values, the app stops
    with the name of the group. State: the list. Raises DefinitionError in `agg` for a column of lists or structs.

    >>> import falkirk as fk
    >>> flow = fk.Flow("example")
    >>> bids = flow.source("bids", key="auction", value=fk.Json({"auction": int, "price": int}))
    >>> bids.group_by("auction").agg(prices=fk.collect("price")).sink("prices", key="auction", value=fk.Json())
    >>> rows = [{"auction": 7, "price": 120}, {"auction": 7, "price": 90}]
    >>> fk.testing.run(flow, {"bids": rows}).sinks["prices"].table
    {7: {'auction': 7, 'prices': [90, 120]}}
    """
    return Collect(of, by, limit)
