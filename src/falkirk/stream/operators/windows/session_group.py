"""Groups in sessions: rows of a group with no long pause between them. (`spans` says what a session is.)

state      other columns of the group, window_end → window_start and the state of the aggregates
.last      other columns of the group → the end of its last session      (`session_keys`)
.ends      window_end, other columns of the group → ∅      in the order of time, under the task's first shard
.rows      other columns of the group, time, row → row and count      only if sessions need their rows

A session's rows are needed to split it, if rows can be taken back, and to aggregate them again, if two states of an aggregate
cannot become one. Otherwise sessions that become one merge their states, and no row is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from falkirk.stream.aggregates.bound import Bound
from falkirk.stream.dataflow.exchange import Exchange
from falkirk.stream.dataflow.operator import RESERVED, Operator, Runner, TaskContext
from falkirk.stream.dataflow.task_tables import TaskTable, TimedEntries, placed_by
from falkirk.stream.definition.expressions import columns_read, text, words
from falkirk.stream.definition.windows import END, START, Session
from falkirk.stream.formats import Key
from falkirk.stream.operators.windows.session_batch import SessionExchange
from falkirk.stream.operators.windows.session_fold import SessionFold
from falkirk.stream.operators.windows.session_step import ENDS, LAST, ROWS, SESSIONS, SessionRunner


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SessionGroup(Operator):
    """One row for each session of each group."""

    kind: ClassVar[str] = "group_by"
    stateful: ClassVar[bool] = True
    timed: ClassVar[bool] = True
    keeps_parts: ClassVar[bool] = True
    main_table: ClassVar[str] = SESSIONS
    columns: tuple[str, ...]
    """Those of the group, without the session's."""
    session: Session
    aggregates: Mapping[str, Bound]
    version: int

    @property
    def expire(self) -> bool:
        """Whether the watermark tells when a session is complete."""
        before = self.inputs[0]
        return before.watermarked and before.time == self.session.column and not before.changes

    @property
    def completes(self) -> bool:
        return self.expire

    @property
    def asks_time(self) -> bool:
        return self.expire

    @property
    def keeps_rows(self) -> bool:
        """Whether sessions need their rows."""
        return self.inputs[0].changes or not all(b.unites for b in self.aggregates.values())

    @property
    def kept(self) -> pl.Schema:
        """The columns that are kept of a row, in addition to those of the group."""
        schema = self.inputs[0].schema
        needed = self.reads(0, set()) - set(self.columns)
        return pl.Schema({c: t for c, t in schema.items() if c in needed})

    @property
    def counted(self) -> pl.Schema:
        """A kept row, and how often it is there."""
        return pl.Schema({**self.kept, f"{RESERVED}.rows": pl.Int64()})

    @property
    def state_columns(self) -> Sequence[str]:
        return (*self.columns, END)

    @property
    def state_schema(self) -> pl.Schema:
        """The columns of a session's row of state."""
        parts = {column: dtype for b in self.aggregates.values() for column, dtype in b.states().items()}
        return pl.Schema({START: self.schema[START], **parts})

    def state_keys(self, table: str) -> pl.Schema:
        return pl.Schema({c: self.schema[c] for c in self.state_columns})

    def reads(self, port: int, needed: Set[str]) -> Set[str]:
        arguments = [e for bound in self.aggregates.values() for e in bound.arguments.values()]
        return {*self.columns, self.session.column} | columns_read(arguments, self.inputs[port].schema)

    @property
    def words(self) -> str:
        kept = ", ".join(f"{b.name} = {b.kind}" for b in self.aggregates.values())
        placed = ", ".join(self.partitioned.columns) if self.partitioned else ""
        until = f"until the watermark is past {END}" if self.expire else "for ever"
        return (
            f"group_by {self.id}: {', '.join(self.columns)}, {self.session} → {kept}; state placed by {placed}, {until}"
        )

    @property
    def notes(self) -> Sequence[str]:
        if self.inputs[0].changes:
            return ("keeps all rows, because rows can be taken back; a changed session is aggregated again",)
        if self.keeps_rows:
            name = next(b.name for b in self.aggregates.values() if not b.unites)
            return (f"keeps the rows of sessions, because {name} has no merge; a changed session is aggregated again",)
        return ()

    @property
    def exact_words(self) -> str:
        arguments = [f"{b.name}: {', '.join(map(text, b.arguments.values()))}" for b in self.aggregates.values()]
        return f"{self.state_words()}, {'; '.join(arguments)}"

    def state_words(self) -> str:
        keys = {c: self.schema[c] for c in self.state_columns}
        kept = "; ".join(f"{b.name} = {b.words} [{words(b.parts)}]" for b in self.aggregates.values())
        rows = f", rows {words(self.kept)}" if self.keeps_rows else ""
        return (
            f"{self.id} v{self.version}: {words(keys)} → {START}; {kept}{rows} (placed by {self.partitioned!r}), "
            f"{self.session}"
        )

    def tables(self) -> Sequence[str]:
        last = [] if self.inputs[0].changes else [LAST]
        return [SESSIONS, *last, *([ENDS] if self.expire else []), *([ROWS] if self.keeps_rows else [])]

    def table_schemas(self) -> Mapping[str, pl.Schema]:
        return {SESSIONS: self.state_schema}

    @property
    def end_schema(self) -> pl.Schema:
        """The columns of the entries in the order of time."""
        return pl.Schema({END: pl.Int64(), **{c: self.schema[c] for c in self.columns}})

    def task_tables(self) -> Mapping[str, TaskTable]:
        assert self.partitioned is not None
        return {ENDS: TimedEntries(self.end_schema, placed_by(self.partitioned))} if self.expire else {}

    def scales(self) -> Mapping[str, int]:
        return {f"{b.name}.{part}": scale for b in self.aggregates.values() for part, scale in b.scales.items()}

    def placed_by(self, table: str) -> Key | None:
        return self.partitioned

    def readable(self, table: str, rows: pl.DataFrame) -> pl.DataFrame:
        folding = SessionFold(self).folding
        keys = rows.select(*self.state_columns, START)
        with folding.blaming(keys):
            return keys.hstack(folding.results(rows))

    def runner(self, task: TaskContext) -> Runner:
        return SessionRunner(self, task)

    def exchange(self) -> Exchange:
        return SessionExchange(self)
