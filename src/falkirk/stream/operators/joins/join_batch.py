"""The batch form of `stream.join(other)`: rows of a key meet in a bucket, which joins them as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import polars as pl

from falkirk.stream.dataflow.batch import TS, Batch, everywhere, nulls
from falkirk.stream.dataflow.exchange import BucketRun, SendsRows, together
from falkirk.stream.dataflow.place import Place
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.formats import Key

if TYPE_CHECKING:
    from falkirk.stream.operators.joins.join import Join

_SPELT, _RIGHT, _ROW = "__falkirk_key", "__falkirk_right", "__falkirk_row"
OF = ("__falkirk_l.", "__falkirk_r.")
"""The columns of both sides have names of their own in the frame that is sent."""


class JoinExchange(SendsRows):
    """Sends the rows of both sides as one table, in which one side's columns are null."""

    def __init__(self, join: Join) -> None:
        self.join = join
        self.key = Key(_SPELT)
        self.columns = {
            OF[port] + name: dtype for port, side in enumerate(join.sides) for name, dtype in side.kept.items()
        }

    def sent(self, run: StepRun, batch: Batch, port: int) -> pl.DataFrame:
        side = self.join.sides[port]
        given = {OF[port] + name: column for name, column in side.rows(batch.rows).to_dict().items()}
        height = len(batch)
        return pl.DataFrame(
            {
                **{c: given[c] if c in given else nulls(dtype, height) for c, dtype in self.columns.items()},
                _SPELT: pl.Series(side.key.encode(batch.rows), dtype=pl.Binary),
                _RIGHT: everywhere(port == 1, height),
                TS: batch.meta[TS],
            }
        )

    def received(self, run: BucketRun, parcels: Iterator[tuple[Place, pl.DataFrame]]) -> Iterator[Batch]:
        whole = together([frame for _, frame in parcels])
        left, right = (self._side(whole.filter(pl.col(_RIGHT) == (port == 1)), port) for port in (0, 1))
        found = self.paired(left, right)
        if found.height:
            rows = found.select(_column(*out) for out in self.join.columns)
            yield Batch(rows, found.select(pl.max_horizontal(*self._times(found))))

    def _side(self, rows: pl.DataFrame, port: int) -> pl.DataFrame:
        columns = [c for c in self.columns if c.startswith(OF[port])]
        return rows.select(*columns, pl.col(TS).alias(_time(port)), pl.lit(True).alias(_present(port)))

    def paired(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """All rows of a bucket, joined."""
        # Never one column alone: no NaN might be equal to another (see `matched`).
        on = [[*(OF[port] + c for c in side.on), _present(port)] for port, side in enumerate(self.join.sides)]
        return left.join(
            right, left_on=on[0], right_on=on[1], how=self.join.how, nulls_equal=False,
            maintain_order="right_left" if self.join.how == "right" else "left_right",
            coalesce=None if self.join.how in ("semi", "anti") else False,
        )  # fmt: skip

    def _times(self, found: pl.DataFrame) -> Sequence[pl.Expr]:
        return [pl.col(c).alias(TS) for c in (_time(0), _time(1)) if c in found.columns]


def _column(name: str, left: str | None, right: str | None) -> pl.Expr:
    sides = [pl.col(of + column) for of, column in zip(OF, (left, right), strict=True) if column is not None]
    column = sides[0] if len(sides) == 1 else pl.when(pl.col(_present(0))).then(sides[0]).otherwise(sides[1])
    return column.alias(name)


def _time(port: int) -> str:
    return f"{TS}.{port}"


def _present(port: int) -> str:
    return f"{_ROW}.{port}"
