"""`stream.over(…).agg(…)`: for each row, what functions give for the rows around it, in the order of its key.

output[r] = r + functions(frame of r)            change = Σ of the rows whose frame has changed: (before, −1) + (after, +1)

.rows   key, order, copy → row, parts of the functions         each row by itself, a copy for each time that it is there
.back   the same keys, with order and copy complemented        to find the rows before a row; only where a frame needs them
.old    time, key of the row                                   only where the watermark tells which rows no frame needs

A step reads the rows that its changes reach, and the rows around them that their frames need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from falkirk.state.codec import COMPLEMENT
from falkirk.stream.aggregates.bound import Bound
from falkirk.stream.aggregates.positions import BoundRank, BoundShift
from falkirk.stream.dataflow.batch import TS, Batch, matched
from falkirk.stream.dataflow.exchange import BucketRun, Exchange, SendsRows, together
from falkirk.stream.dataflow.operator import RESERVED, Operator, Runner, TaskContext
from falkirk.stream.dataflow.place import Place
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.dataflow.task_tables import TaskTable, TimedEntries, keyed_by
from falkirk.stream.definition.expressions import text, words
from falkirk.stream.formats import Key, column_key
from falkirk.stream.operators.groups.ordering import Ordering
from falkirk.stream.operators.groups.over_frames import CONTEXT, PEERS, SEGMENT, Frame, Functions

ROWS, BACK, OLD = ".rows", ".back", ".old"
OLD_ENTRIES = pl.Schema({OLD: pl.Int64(), ROWS: pl.Binary()})
"""The columns of the rows in the order of time."""
ORDER = f"{RESERVED}.order"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Over(Operator):
    """Rows with functions of the rows around them."""

    kind: ClassVar[str] = "over"
    stateful: ClassVar[bool] = True
    main_table: ClassVar[str] = ROWS
    ordered: ClassVar[bool] = True
    passes_time: ClassVar[bool] = False  # A row can change as long as rows come that its frame has.
    columns: tuple[str, ...]
    ordering: Ordering
    backwards: bool
    """Whether rows are in the opposite order: for functions of the rows that come after."""
    frame: Frame
    functions: tuple[Bound, ...]
    version: int

    @property
    def kept(self) -> pl.Schema:
        """The columns that are kept of a row: all except those of the key."""
        return pl.Schema({c: t for c, t in self.inputs[0].schema.items() if c not in self.columns})

    @property
    def parts(self) -> pl.Schema:
        """The parts of the functions."""
        return pl.Schema({c: t for f in self.functions for c, t in f.states().items()})

    @property
    def peers(self) -> bool:
        """Whether it matters which rows are equal in the order."""
        return (self.frame.kind == "range" and self.frame.running) or any(
            isinstance(f, BoundRank) for f in self.functions
        )

    @property
    def reach(self) -> int:
        """How many rows around a change are read: those that count it, and those that these need."""
        shifts = max((f.n for f in self.functions if isinstance(f, BoundShift)), default=0)
        rows = self.frame.width if self.frame.kind == "rows" else 0
        return max(1 if self.frame.running else 0, rows, shifts)

    @property
    def forgets(self) -> bool:
        """Whether the watermark tells which rows no frame will need."""
        before = self.inputs[0]
        return self.frame.ranged and not before.changes and before.watermarked and before.time == self.ordering.by[0]

    @property
    def timed(self) -> bool:  # type: ignore[override]
        return self.forgets

    @property
    def asks_time(self) -> bool:
        return self.forgets

    @property
    def state_columns(self) -> Sequence[str]:
        return self.columns

    def of(self, rows: pl.DataFrame) -> pl.Series:
        """The bytes by which rows are ordered."""
        return self._bytes(self.ordering, rows)

    def by(self, rows: pl.DataFrame) -> pl.Series:
        """The bytes that rows have in common that are equal in the order."""
        return self._bytes(self.ordering.bare, rows)

    def _bytes(self, ordering: Ordering, rows: pl.DataFrame) -> pl.Series:
        order = ordering.of(rows)
        if not self.backwards:
            return order
        return pl.Series([each.translate(COMPLEMENT) for each in order], dtype=pl.Binary)

    @property
    def words(self) -> str:
        made = ", ".join(f"{f.name} = {f.kind}" for f in self.functions)
        order = ", ".join(
            f"{c}{'' if s else ' descending'}" for c, s in zip(self.ordering.by, self.ordering.smallest, strict=True)
        )
        way = f", {'backwards ' * self.backwards}by {order}" if order else ""
        return f"over {self.id}: of each {', '.join(self.columns)}{way}: {made}; {self.frame}"

    @property
    def notes(self) -> Sequence[str]:
        return () if self.forgets else ("keeps all rows",)

    @property
    def exact_words(self) -> str:
        arguments = [f"{f.name}: {', '.join(map(text, f.arguments.values()))}" for f in self.functions]
        return f"{self.state_words()}, {'; '.join(arguments)}"

    def state_words(self) -> str:
        keys = {c: self.schema[c] for c in self.columns}
        made = "; ".join(f"{f.name} = {f.words} [{words(f.parts)}]" for f in self.functions)
        return (
            f"{self.id} v{self.version}: {words(keys)} → {words(self.kept)} by {self.ordering.words}"
            f"{' backwards' * self.backwards} → {made} of {self.frame} (placed by {self.partitioned!r})"
        )

    def tables(self) -> Sequence[str]:
        return [ROWS, *([BACK] if self.reach else []), *([OLD] if self.forgets else [])]

    def task_tables(self) -> Mapping[str, TaskTable]:
        return {OLD: TimedEntries(OLD_ENTRIES, keyed_by(ROWS))} if self.forgets else {}

    def table_schemas(self) -> Mapping[str, pl.Schema]:
        return {ROWS: pl.Schema({**self.kept, **self.parts})}

    def placed_by(self, table: str) -> Key | None:
        return self.partitioned

    def runner(self, task: TaskContext) -> Runner:
        from falkirk.stream.operators.groups.over_step import OverRunner

        return OverRunner(self, task)

    def exchange(self) -> Exchange:
        return OverExchange(self)

    def computing(self) -> Functions:
        """The functions, ready to run."""
        return Functions(self, self.columns, self.functions, self.frame, next(iter(self.ordering.by), ""))

    def with_peers(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows in order, with a number that is equal in rows that are equal in the order."""
        if not self.peers:
            return rows.with_columns(pl.lit(0).alias(PEERS))
        equal = rows.select(pl.struct(pl.col(SEGMENT), pl.lit(self.by(rows)).alias(ORDER)).rle_id())
        return rows.with_columns(equal.to_series().alias(PEERS))


class OverExchange(SendsRows):
    """The batch form: all rows of a key meet in a bucket."""

    def __init__(self, operator: Over) -> None:
        self.operator, self.columns = operator, list(operator.columns)
        self.key = column_key(self.columns)
        self.functions = operator.computing()

    def sent(self, run: StepRun, batch: Batch, port: int) -> pl.DataFrame:
        self.functions.check(run, batch)
        return batch.rows.select(list(self.operator.inputs[0].schema)).hstack(batch.meta.select(TS))

    def received(self, run: BucketRun, parcels: Iterator[tuple[Place, pl.DataFrame]]) -> Iterator[Batch]:
        whole = together([frame for _, frame in parcels])
        keys = whole.select(self.columns).unique(maintain_order=True).with_row_index(SEGMENT)
        rows = (
            whole.with_columns(self.operator.of(whole).alias(ORDER), pl.lit(value=False).alias(CONTEXT))
            .pipe(matched, keys, self.columns)
            .sort(SEGMENT, ORDER, maintain_order=True)
            .with_columns(pl.lit(None, dtype).alias(c) for c, dtype in self.operator.parts.items())
        )
        parts = self.functions.parts(self.operator.with_peers(rows))
        found = rows.drop(parts.columns).hstack(self.functions.results(parts, rows.select(self.columns)))
        yield Batch(found.select(list(self.operator.schema)), found.select(TS))
