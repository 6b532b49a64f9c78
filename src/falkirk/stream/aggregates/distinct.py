"""n_unique: how many different values there are. As in Polars, null is a value, and NaN is one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec
import polars as pl

from falkirk.state.codec import check_key_type, encode_values
from falkirk.stream.aggregates.arguments import Argument, checked_argument, in_state, one_zero, physical
from falkirk.stream.aggregates.bound import AggregateLike, Bound, Context, new, old
from falkirk.stream.aggregates.builtin import add
from falkirk.stream.aggregates.values import Counted, OfValues
from falkirk.stream.definition.expressions import IntoExpr

_pack = msgspec.msgpack.encode
_unpack = msgspec.msgpack.Decoder(list[bytes]).decode


@dataclass(frozen=True, slots=True)
class NUnique(AggregateLike):
    """n_unique of one column."""

    of: IntoExpr

    def bind(self, context: Context) -> Bound:
        x = checked_argument("n_unique", self.of, context)
        check_key_type(physical(x.dtype), where=f"{x.column!r} of n_unique in {context.where}")
        return BoundNUnique(context, x)


class BoundNUnique(OfValues):
    keeps_values = True
    restored = False
    returns = pl.Int64()
    parts: Mapping[str, pl.DataType] = {"count": pl.Int64()}

    def __init__(self, context: Context, x: Argument) -> None:
        super().__init__(context, arguments={"x": x.expr}, words=f"n_unique of {x.dtype}")
        self.context, self.x = context, x

    @property
    def valued(self) -> Mapping[str, pl.DataType]:
        # The first column is never null: null is a value.
        return {"null": pl.Boolean(), "x": physical(self.x.dtype)}

    def value(self) -> Sequence[pl.Expr]:
        return [self.argument().is_null(), self.argument()]

    def argument(self, name: str = "x") -> pl.Expr:
        return in_state(super().argument(name), self.x.dtype)

    def of_values(self, counted: Counted, before: pl.DataFrame) -> Mapping[str, pl.Series]:
        change = (counted.after > 0).cast(pl.Int64) - (counted.before > 0).cast(pl.Int64)
        changes = pl.DataFrame({"group": counted.group, "change": change}).group_by("group").agg(pl.col("change").sum())
        groups = pl.DataFrame({"group": pl.int_range(before.height, dtype=pl.UInt32, eager=True)})
        return {"count": groups.join(changes, on="group", how="left", maintain_order="left")["change"].fill_null(0)}

    def partial(self, weight: pl.Expr | None) -> Mapping[str, pl.Expr]:
        return {}

    def merge(self, frame: pl.DataFrame) -> Mapping[str, pl.Expr]:
        return {"count": add(self.name, "count")}

    def result(self, frame: pl.DataFrame) -> pl.Series:
        return frame[old(self.name, "count")]

    def append_only(self) -> Bound:
        return ListedNUnique(self.context, self.x)

    def in_one_row(self) -> Bound:
        return PackedNUnique(self.context, self.x)


class ListedNUnique(Bound):
    """In a batch there are no tables: the values of a group are a list."""

    returns = pl.Int64()

    def __init__(self, context: Context, x: Argument) -> None:
        super().__init__(context, arguments={"x": x.expr}, words=f"n_unique of {x.dtype}")
        self.dtype = x.dtype

    @property
    def parts(self) -> Mapping[str, pl.DataType]:
        return {"values": pl.List(self.dtype)}

    def partial(self, weight: pl.Expr | None) -> Mapping[str, pl.Expr]:
        return {"values": self.argument().unique(maintain_order=True)}

    def merge(self, frame: pl.DataFrame) -> Mapping[str, pl.Expr]:
        none = pl.lit([], dtype=pl.List(self.dtype))
        lists = [c.fill_null(none) for c in (pl.col(new(self.name, "values")), self.state("values"))]
        return {"values": pl.concat_list(lists).list.unique(maintain_order=True)}

    def result(self, frame: pl.DataFrame) -> pl.Expr:
        return self.state("values").list.len().cast(pl.Int64)


class PackedNUnique(Bound):
    """In the state of sessions there is one row for each group: its values are packed, as a sorted set."""

    returns = pl.Int64()
    folds = False
    parts: Mapping[str, pl.DataType] = {"values": pl.Binary()}

    def __init__(self, context: Context, x: Argument) -> None:
        super().__init__(context, arguments={"x": x.expr}, words=f"n_unique of {x.dtype}")
        self.dtype = x.dtype
        self.schema = pl.Schema({"x": physical(x.dtype)})

    def argument(self, name: str = "x") -> pl.Expr:
        column = in_state(super().argument(name), self.dtype)
        # Equal values have equal bytes: −0.0 is 0.0, and all NaNs are the same.
        return one_zero(column, self.dtype).fill_nan(float("nan")) if self.dtype.is_float() else column

    def partial(self, weight: pl.Expr | None) -> Mapping[str, pl.Expr]:
        return {"values": self.argument().unique(maintain_order=True)}

    def merge(self, frame: pl.DataFrame) -> Mapping[str, pl.Series]:
        lists = frame[new(self.name, "values")]
        each = iter(encode_values(self.schema, lists.explode().alias("x").to_frame()))
        return self._packed([{*islice(each, size)} for size in lists.list.len()], frame)

    def united(self, frame: pl.DataFrame) -> Mapping[str, pl.Series]:
        return self._packed([{*_unpack(other)} for other in frame[new(self.name, "values")]], frame)

    def _packed(self, values: list[set[bytes]], frame: pl.DataFrame) -> Mapping[str, pl.Series]:
        before = frame[old(self.name, "values")]
        sets = [came.union(_unpack(state) if state else ()) for came, state in zip(values, before, strict=True)]
        return {"values": pl.Series([_pack(sorted(each)) for each in sets], dtype=pl.Binary)}

    def result(self, frame: pl.DataFrame) -> pl.Series:
        states = frame[old(self.name, "values")]
        return pl.Series([len(_unpack(state)) if state else 0 for state in states], dtype=pl.Int64)


def n_unique(of: IntoExpr) -> NUnique:
    """The number of different values of a column or row-wise expression: Int64. Null is a value.

    Exact. State: every value of the group. Raises DefinitionError in `agg` for a column whose values cannot be compared.

    >>> import falkirk as fk
    >>> bids = fk.Flow("example").source("bids", key="auction", value=fk.Json({"auction": int, "by": str}))
    >>> bids.group_by("auction").agg(bidders=fk.n_unique("by"))
    <Stream of group_by 'by.auction': auction Int64, bidders Int64>
    """
    return NUnique(of)
