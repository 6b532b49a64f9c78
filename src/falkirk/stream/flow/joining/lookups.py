"""Tables, and streams that look them up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from falkirk.blame import did_you_mean, user_line
from falkirk.errors import DefinitionError
from falkirk.state.codec import check_value_type
from falkirk.stream import operators as op
from falkirk.stream.definition.keys import columns_of, same_key
from falkirk.stream.definition.names import default_id
from falkirk.stream.flow.alternatives import TABLE, missing
from falkirk.stream.formats import Key
from falkirk.stream.formats.rows import Row
from falkirk.stream.formats.types import described, type_name
from falkirk.wording import counted

if TYPE_CHECKING:
    from falkirk.stream.flow.streams import Stream


class Table:
    """The last row of each key, for `stream.lookup(table)`.

    >>> import falkirk as fk
    >>> fk.Flow("example").table("carriers", key="carrier", value=fk.Json({"name": str}))
    <Table of table 'carriers': carrier String, name String, by carrier>
    """

    if not TYPE_CHECKING:  # to type checkers it would say that every name exists
        __getattr__ = missing(TABLE)

    def __init__(self, graph: op.Graph, operator: op.Operator, key: Key) -> None:
        self._graph, self._op, self._key = graph, operator, key

    @property
    def schema(self) -> pl.Schema:
        """The Polars type of each column by name, including the key's columns."""
        return self._op.schema

    @property
    def errors(self) -> Stream[Row]:
        """A stream of the records in the table's topic that do not decode. See `Stream.errors`."""
        from falkirk.stream.flow.rowwise import errors_of

        return errors_of(self._graph, self._op, user_line())

    def __repr__(self) -> str:
        return (
            f"<Table of {self._op.kind} {self._op.id!r}: {described(self.schema)}, by {', '.join(self._key.columns)}>"
        )


def table_of(graph: op.Graph, operator: op.Operator, key: Key, where: str) -> Table:
    """A grouped result as a table. Raises DefinitionError unless the key is exactly the columns that identify a row."""
    if operator.unique is None or set(key.columns) != operator.unique:
        apart = (
            "and nothing is known to" if operator.unique is None else f"which {', '.join(sorted(operator.unique))} does"
        )
        raise DefinitionError(
            f"the key {', '.join(key.columns)} does not identify the rows of {operator.kind} {operator.id!r} apart, {apart}",
            where=where,
            hint="a table is made of a grouped result, by the columns that it is grouped by; or of a topic",
        )
    return Table(graph, operator, key)


def _made_table(stream: Any) -> str:
    """How to make a table of what is none."""
    known = getattr(stream, "_op", None)
    if isinstance(known, op.Operator) and known.unique:
        key = ", ".join(f'"{name}"' for name in sorted(known.unique))
        return f"make one of this stream: flow.table(stream, key={key if len(known.unique) == 1 else f'[{key}]'})"
    return 'make one: flow.table("carriers", key="carrier", …)'


def lookup(
    before: op.Operator,
    graph: op.Graph,
    table: Any,
    on: str | Sequence[str] | None,
    columns: Sequence[str] | Mapping[str, str] | None,
    how: Any,
    name: str | None,
    version: int,
    line: str,
) -> op.Lookup:
    """The operator, checked. Raises DefinitionError."""
    if not isinstance(table, Table):
        raise DefinitionError(f"{table!r} is not a table", where=f"lookup ({line})", hint=_made_table(table))
    key, known = table._key, table._op
    spelt = list(key.columns) if on is None else [on] if isinstance(on, str) else list(on)
    name = name or default_id(known.id, "on", *spelt)
    where = f"lookup {name!r} ({line})"
    _check_sides(before, table, graph, how, where)
    mine = key.over(columns_of(spelt, before.schema, where) if key.array else [_one(spelt, before.schema, where)])
    _check_types(before.schema, mine, known.schema, key, where)
    added = _added(before.schema, known.schema, key, columns, where)
    if isinstance(known, op.TableSource) and known.broadcast:
        _check_broadcast(before, where)
        return op.SharedLookup(
            id=name, line=line, inputs=(before, known), schema=_schema(before, known, added),
            partitioned=before.partitioned, root=before.root, regime=before.regime, time=before.time,
            on=mine, key=key, columns=added, how=how, version=version,
        )  # fmt: skip
    together = (
        before.root == known.root
        and before.partitioned is not None
        and known.partitioned is not None
        and same_key(before.partitioned, mine)
        and same_key(known.partitioned, key)
    )
    return op.Lookup(
        id=name, line=line, inputs=(before, known), schema=_schema(before, known, added),
        partitioned=mine, root=before.root if together else name, regime=before.regime, time=before.time,
        on=mine, key=key, columns=added, how=how, version=version,
    )  # fmt: skip


def _schema(before: op.Operator, known: op.Operator, added: Mapping[str, str]) -> pl.Schema:
    return pl.Schema({**before.schema, **{new: known.schema[c] for c, new in added.items()}})


def _check_broadcast(before: op.Operator, where: str) -> None:
    if before.regime.recovery.requires.same_outputs:
        raise DefinitionError(
            "a lazy step is run again after a crash, and a broadcast table is further by then",
            where=where,
            hint="use the eager regime for this part, or a table that is not broadcast",
        )


def _one(columns: Sequence[str], schema: pl.Schema, where: str) -> str:
    if len(columns) != 1:
        raise DefinitionError(f"the table's key is one column, and on= names {len(columns)}", where=where)
    return columns_of(columns, schema, where)[0]


def _check_sides(before: op.Operator, table: Table, graph: op.Graph, how: Any, where: str) -> None:
    if table._graph is not graph:
        raise DefinitionError("the stream and the table belong to different flows", where=where)
    if how not in ("left", "inner"):
        raise DefinitionError(f"how={how!r} is not supported", where=where, hint='use "left" or "inner"')
    if before.changes:
        raise DefinitionError(
            "rows of a grouped result can be taken back, and the table may say something else by then",
            where=where,
            hint="look up before rows are grouped; or sink the result, and read the topic as a source",
        )
    if table._op.batch and not before.batch:
        raise DefinitionError(
            "the table is batch, and the output of a batch part cannot be a stream again",
            where=where,
            hint="sink it, and make a table of the topic: flow.table(…, broadcast=True)",
        )


def _check_types(mine: pl.Schema, on: Key, theirs: pl.Schema, key: Key, where: str) -> None:
    if len(on.columns) != len(key.columns):
        raise DefinitionError(
            f"the table's key is {', '.join(key.columns)}, and on= names {counted(len(on.columns), 'column')}",
            where=where,
        )
    for a, b in zip(on.columns, key.columns, strict=True):
        if mine[a] != theirs[b]:
            raise DefinitionError(
                f"column {a!r} is {type_name(mine[a])}, and the table's {b!r} is {type_name(theirs[b])}: they never match",
                where=where,
                hint=f"cast it first: with_columns({a}=fk.col({a!r}).cast(…))",
            )


def _added(
    mine: pl.Schema, theirs: pl.Schema, key: Key, columns: Sequence[str] | Mapping[str, str] | None, where: str
) -> dict[str, str]:
    """The table's columns in the result. The default is all columns except the key's."""
    if columns is None:
        columns = [c for c in theirs if c not in key.columns]
    chosen = dict(columns) if isinstance(columns, Mapping) else {c: c for c in columns}
    for column, new in chosen.items():
        if column not in theirs:
            raise DefinitionError(f"the table has no column {column!r}", where=where, hint=did_you_mean(column, theirs))
        if new in mine or list(chosen.values()).count(new) > 1:
            raise DefinitionError(
                f"there is already a column {new!r}",
                where=where,
                hint=f'give the table\'s another name: columns={{"{column}": "{column}_of_table"}}',
            )
        check_value_type(theirs[column], where=f"column {column!r} of the table of {where}")
    return chosen
