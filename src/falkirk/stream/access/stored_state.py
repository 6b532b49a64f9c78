"""State as a checkpoint store has it: a table of keys and values, from one version of each task.

What is kept of a group are the parts of its aggregates: those of `top=fk.max("price")` are a column `top.best`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import numpy as np
import polars as pl
from obstore.store import ObjectStore

from falkirk.blame import did_you_mean
from falkirk.errors import ConfigError, StateError
from falkirk.state.checkpoints import CheckpointStore
from falkirk.state.codec import decode_keys, decode_leading, decode_values, encode_key, encode_keys, prefix_end
from falkirk.state.engine import MIB, Engine, Memory
from falkirk.state.entries import unpacked
from falkirk.state.indexed import ORDER, entries_in, entries_of, has_many
from falkirk.state.objects import incarnations, tasks_of
from falkirk.state.remote import RemoteVersion
from falkirk.state.schema import difference, lines, moved, rebuilt
from falkirk.state.shards import SHARDS
from falkirk.state.store import Identity
from falkirk.stream.dataflow.operator import Operator
from falkirk.stream.stages.kept import MOVED
from falkirk.stream.stages.plan import Plan
from falkirk.stream.stages.stage import PhysicalStage

COUNT = "__falkirk_rows"
"""The column with the number of equal rows in an index."""
Pair = tuple[bytes, bytes]
"""Key and value as a store has them."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table of state, and how its rows are laid out."""

    app: str
    stage: str
    words: str
    """What its operator keeps, as a schema says it (`falkirk.state.schema`)."""
    place: int
    """Which of the operator's tables it is."""
    number: int
    """Of the table, in keys: see `within`."""
    keys: pl.Schema
    values: pl.Schema
    parts: bool
    """Whether the values are parts of aggregates, `name.part`."""
    indexed: bool = False
    """Whether a key has many rows (`falkirk.state.indexed`)."""
    ordered: bool = False
    """Whether a key has many rows, each under bytes that put them in order."""
    earlier: tuple[int, ...] = ()
    """The first tables of earlier versions of the operator, which have a mark when nothing is left in them to be moved."""
    name: str = "state"
    """Of the table in its operator."""
    asked: tuple[str, ...] = ()
    """The columns of the key, in the order in which people give them."""
    scales: Mapping[str, int] = field(default_factory=dict)
    """The columns that hold the integers behind decimals, and how many digits of each are after the point."""

    @property
    def shown(self) -> pl.Schema:
        """The columns of values, without the count of rows that tells an empty group: no aggregate of the user's has it. A
        row of an index has how often it is there, and its key only once.

        A process may keep a column named like one of its key, and with another value. It is shown as TABLE.COLUMN:

        >>> key, value = pl.Schema({"door": pl.String()}), pl.Schema({"door": pl.Int64(), "open": pl.Boolean()})
        >>> list(Table("app", "doors", "", 0, 1, key, value, parts=False).shown)
        ['state.door', 'open']
        """
        if self.indexed:
            return pl.Schema({**{n: t for n, t in self.values.items() if n not in self.keys}, COUNT: pl.Int64()})
        if self.parts:
            return pl.Schema((n, t) for n, t in self.values.items() if not n.startswith("."))
        return pl.Schema((self._shown_as(n), t) for n, t in self.values.items())

    def _shown_as(self, column: str) -> str:
        if column not in self.keys:
            return column
        name = f"{self.name}.{column}"
        while name in self.keys or name in self.values:
            name = f"{self.name}.{name}"
        return name

    def identity(self, incarnation: str, partition: int) -> Identity:
        """Of one task, whatever its schema: `within` looks at that."""
        return Identity(self.app, f"{self.stage}/{partition}", "", "", incarnation)

    def within(self, found: str) -> Table:
        """The table as a store of this schema has it. Raises StateError where that keeps something else for the operator."""
        operator = self.words.partition(" ")[0]
        same = [line for line in lines(found) if line.kept and line.id == operator]
        if same and same[0].words == self.words:
            return replace(self, number=same[0].numbers[self.place], earlier=_earlier(found, operator))
        was = "\n".join(map(str, same))
        raise StateError(
            f"the state's schema has changed:\n{difference(was, f'1: {self.words}')}",
            where=f"stage {self.stage}",
            hint="use the flow that the app runs",
        )

    def check_whole(self, get: Callable[[Sequence[bytes]], list[bytes | None]], task: str) -> None:
        """Raises StateError where some of a task's rows are still kept as an earlier version of the operator kept them."""
        for number in self.earlier:
            if MOVED not in get([encode_key(number, shard, []) for shard in range(SHARDS)]):
                raise StateError(
                    f"the state of {self.words.partition(' ')[0]!r} in task {task} is of an earlier version of it, in part "
                    "or as a whole: it has not been migrated yet, or is being rebuilt",
                    where=f"stage {self.stage}",
                    hint="a run of this flow completes it before the task continues reading: try again then",
                )

    def frame(self, pairs: Sequence[Pair]) -> pl.DataFrame:
        """Rows: columns of the key, then those of the value. Raises StateError if they are not the table's."""
        if self.indexed:
            return self._rows(pairs)
        keys = (decode_leading if self.ordered else decode_keys)(self.keys, [key for key, _ in pairs])
        values = decode_values(self.values, [value for _, value in pairs])
        if not self.parts:
            values = values.rename(self._shown_as)
        return keys.hstack(values.select(list(self.shown)))

    def prefixes(self) -> list[bytes]:
        """What its keys begin with, shard by shard."""
        return [encode_key(self.number, shard, []) for shard in range(SHARDS)]

    def keys_of(self, key: pl.DataFrame, shards: Sequence[int] = range(SHARDS)) -> list[bytes]:
        """A key, of one row, as it would be in each of these shards: asking for all is quick, and which is its own only its
        operator knows."""
        columns = key[[0] * len(shards)].rechunk().get_columns()
        if self.indexed:
            columns.append(pl.Series([b""]).new_from_index(0, len(shards)))
        return encode_keys(self.number, np.array(shards), columns)

    def spans(self, leading: pl.DataFrame | None, shards: Sequence[int] = range(SHARDS)) -> list[tuple[bytes, bytes]]:
        """Where the rows are whose keys begin with these columns, of one row: from and to, in each of these shards. None: all
        rows."""
        if leading is None:
            firsts = [encode_key(self.number, shard, []) for shard in shards]
        else:
            columns = leading[[0] * len(shards)].rechunk().get_columns()
            firsts = encode_keys(self.number, np.array(shards), columns)
        return [(first, prefix_end(first)) for first in firsts]

    def others(self, pair: Pair) -> tuple[bytes, bytes] | None:
        """Where the other rows of a key are, from and to, given its head; None: there are none."""
        return entries_of(pair[0]) if self.indexed and has_many(pair[1]) else None

    def _rows(self, pairs: Sequence[Pair]) -> pl.DataFrame:
        """The rows of heads, which have some, and of entries."""
        keys = decode_keys(pl.Schema({**self.keys, ORDER: pl.Binary()}), [key for key, _ in pairs])
        heads = keys[ORDER].bin.size() == 0
        parts = [entries_in(value) if head else value for (_, value), head in zip(pairs, heads, strict=True)]
        found, part = unpacked(parts)
        values = decode_values(self.values, found.packed)
        counts = pl.Series(COUNT, found.weights, dtype=pl.Int64)
        places = pl.Series(part, dtype=pl.UInt32)
        return keys.select(list(self.keys))[places].hstack(values.with_columns(counts).select(list(self.shown)))


def table_of(plan: Plan, name: str) -> Table:
    """The table of an operator, or TABLE of it as OPERATOR/TABLE. Raises ConfigError where there is none."""
    name, _, table = name.partition("/")
    stage, operator = operator_of(plan, name)
    tables = operator.table_schemas()
    table = table or operator.main_table
    if table not in tables:
        raise ConfigError(f"operator {name!r} has no table {table!r}", hint=did_you_mean(table, tables))
    return Table(
        app=plan.app,
        stage=stage.id,
        words=operator.state_words(),
        place=sorted(operator.tables()).index(table),
        number=stage.tables[name, table],
        keys=operator.state_keys(table),
        values=tables[table],
        parts=operator.keeps_parts and table == operator.main_table,
        indexed=operator.indexed,
        ordered=operator.ordered,
        earlier=_earlier(stage.state_schema, name),
        name=table,
        asked=tuple(operator.asked_by(table)),
        scales=operator.scales(),
    )


def _earlier(schema: str, operator: str) -> tuple[int, ...]:
    return tuple(line.numbers[0] for line in [*moved(schema), *rebuilt(schema)] if line.id == operator)


def operator_of(plan: Plan, name: str) -> tuple[PhysicalStage, Operator]:
    """An operator with state that people may read, and its stage. Raises ConfigError if the flow has none with this id."""
    stateful = {
        operator.id: (stage, operator)
        for stage in plan.planned
        for operator in stage.operators
        if operator.stateful and operator.table_schemas()
    }
    if name not in stateful:
        hidden = any(o.id == name and o.stateful for stage in plan.stages for o in getattr(stage, "operators", ()))
        what = f"what {name!r} keeps cannot be shown" if hidden else f"the flow has no state for {name!r}"
        raise ConfigError(what, hint=did_you_mean(name, stateful))
    return stateful[name]


def newest_versions(
    table: Table, store: ObjectStore, url: str, *, step: int | None = None, incarnation: str | None = None
) -> list[RemoteVersion]:
    """Of each task that has been copied there the newest version, at `step` at most. Without an incarnation: of the newest.
    Raises StateError where there is none."""
    if incarnation is None:
        incarnation = _newest_incarnation(table, store)
    versions = []
    for partition in tasks_of(store, table.identity(incarnation, 0), table.stage):
        copies = CheckpointStore(store, table.identity(incarnation, partition))
        version = copies.newest(step)
        if version is None:
            raise StateError(
                f"task {table.stage}/{partition} has no version as early as step {step}",
                where=url,
                hint=f"the steps of its versions are {', '.join(map(str, copies.versions())) or 'none'}",
            )
        versions.append(version)
    if not versions:
        raise StateError(
            f"there is no version of stage {table.stage!r} of app {table.app!r}",
            where=url,
            hint="is it the run's checkpoint store (--checkpoints, or the folder `checkpoints` in its state directory)?",
        )
    return versions


def _newest_incarnation(table: Table, store: ObjectStore) -> str:
    """That of the app which worked last, where one that was deleted or reset has left versions behind."""
    found = incarnations(store, table.app)
    if len(found) < 2:
        return found[0] if found else ""

    def worked(incarnation: str) -> int:
        tasks = tasks_of(store, table.identity(incarnation, 0), table.stage)
        newest = [CheckpointStore(store, table.identity(incarnation, p)).newest() for p in tasks]
        return max((version.progress.clock for version in newest if version is not None), default=0)

    return max(found, key=worked)


@contextmanager
def opened(
    store: ObjectStore, version: RemoteVersion, within: Path | None = None, memory: Memory | None = None
) -> Iterator[Engine]:
    """A version's files, copied here for as long as the block lasts. `within`: a folder; None: that for temporary files.
    `memory`: for several that are open at once. Raises StateError where they are there no more."""
    with tempfile.TemporaryDirectory(prefix="falkirk-state-", dir=within) as folder:
        CheckpointStore(store, version.identity).download(version, Path(folder))
        with closing(Engine(Path(folder), memory or Memory(32 * MIB, 4 * MIB), read_only=True)) as engine:
            yield engine


def pairs_of(table: Table, engine: Engine) -> Iterator[Pair]:
    """All of a table's in a version, shard by shard."""
    return chain.from_iterable(engine.scan(first, prefix_end(first)) for first in table.prefixes())
