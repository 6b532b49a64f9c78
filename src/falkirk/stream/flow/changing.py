"""Sources of rows that change, and what a sink writes of them: `changes=` of `flow.source` and `stream.sink`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import polars as pl

from falkirk.blame import did_you_mean
from falkirk.errors import DefinitionError
from falkirk.state.codec import check_key_type, check_value_type
from falkirk.stream import operators as op
from falkirk.stream.dataflow.graph import placed
from falkirk.stream.definition.keys import checked_key
from falkirk.stream.definition.on_error import DeadLetter, OnError
from falkirk.stream.definition.outlets import WEIGHT_COLUMN
from falkirk.stream.definition.pattern import Topics
from falkirk.stream.flow.joining.joins import check_one_writer, placed_by
from falkirk.stream.formats import Format, Json, Key, KeyLike, NoColumns, Scalar, key_of
from falkirk.stream.formats.debezium import Debezium
from falkirk.stream.formats.types import type_name
from falkirk.stream.operators.sinks.sink_changes import SinkChanges

SourceChanges: TypeAlias = Literal["append", "upsert", "debezium", "weights"]


def table_source(
    graph: op.Graph, name: str, line: str, where: str, key: KeyLike, value: Format, topics: Topics,
    on_error: OnError | None, *, broadcast: bool,
) -> op.TableSource:  # fmt: skip
    """A topic where only the last record of each key counts. Raises DefinitionError."""
    assert value.schema is not None
    spelt = key_of(key)
    typed = spelt.format.schema.dtypes() if spelt.format else [pl.String()] * len(spelt.columns)
    keys = {c: value.schema.get(c, dtype) for c, dtype in zip(spelt.columns, typed, strict=True)}
    schema = pl.Schema({**keys, **value.schema})
    return op.TableSource(
        id=name, line=line, inputs=(), schema=schema, changes=True, unique=frozenset(spelt.columns),
        partitioned=checked_key(spelt, schema, where), root="", regime=graph.regime,
        topics=topics, key=spelt, value=value, start="earliest",
        metadata={}, checked=False, broadcast=broadcast, on_error=on_error,
    )  # fmt: skip


def changing(
    graph: op.Graph, changes: Any, name: str, line: str, where: str, key: KeyLike | None, value: Format, topics: Topics,
    on_error: OnError | None, others: dict[str, bool],
) -> op.Operator:  # fmt: skip
    """The rows of a source that changes them. `others`: the options that are for append-only sources, and whether they are
    used. Raises DefinitionError."""
    if changes not in ("upsert", "debezium", "weights"):
        raise DefinitionError(
            f"changes={changes!r} is not supported",
            where=where,
            hint=did_you_mean(str(changes), ["append", "upsert", "debezium", "weights"]),
        )
    if used := [option for option, is_used in others.items() if is_used]:
        raise DefinitionError(
            f"{used[0]}= is for append-only sources, and changes={changes!r} takes rows back",
            where=where,
            hint=f"leave out {used[0]}=",
        )
    if changes == "upsert":
        if key is None:
            raise DefinitionError(
                'changes="upsert" replaces the row of a key, and the source has none', where=where, hint='key="id"'
            )
        table = graph.add(
            table_source(
                graph=graph,
                name=name,
                line=line,
                where=where,
                key=key,
                value=value,
                topics=topics,
                on_error=on_error,
                broadcast=False,
            )
        )
        return _latest(graph, table, key_of(key), where)
    changed = _enveloped if changes == "debezium" else _weighed
    return changed(graph, name, line, where, key, value, topics, on_error)


def _enveloped(
    graph: op.Graph, name: str, line: str, where: str, key: KeyLike | None, value: Format, topics: Topics,
    on_error: OnError | None,
) -> op.Operator:  # fmt: skip
    if not isinstance(value, Json):
        raise DefinitionError(
            f"{value!r} is not JSON, and envelopes of Debezium are read from JSON only",
            where=where,
            hint="let Kafka Connect write JSON: value.converter=org.apache.kafka.connect.json.JsonConverter",
        )
    assert value.schema is not None
    last = None if key is None else checked_key(key, value.schema, where)
    try:
        events = Debezium(value, last)
    except DefinitionError as error:
        raise DefinitionError(error.what, where=where, hint=error.hint) from error
    source = _records(graph, name, line, events, topics, on_error, every=last is None)
    changed = _changed(graph, source, value.schema, on_error, enveloped=True, last=last)
    return changed if last is None else _latest(graph, changed, last, where)


def _weighed(
    graph: op.Graph, name: str, line: str, where: str, key: KeyLike | None, value: Format, topics: Topics,
    on_error: OnError | None,
) -> op.Operator:  # fmt: skip
    assert value.schema is not None
    dtype = value.schema.get(WEIGHT_COLUMN)
    if key is not None:
        raise DefinitionError(
            'changes="weights" keeps no rows, so that it has no key', where=where, hint="leave out key="
        )
    if dtype is None or not dtype.is_integer() or len(value.schema) == 1:
        raise DefinitionError(
            f"the value needs an integer column {WEIGHT_COLUMN!r} beside its other columns",
            where=where,
            hint=f'fk.Json({{"id": fk.Int64, "{WEIGHT_COLUMN}": fk.Int64}})',
        )
    rows = pl.Schema({c: t for c, t in value.schema.items() if c != WEIGHT_COLUMN})
    source = _records(graph, name, line, value, topics, on_error, every=True)
    return _changed(graph, source, rows, on_error, enveloped=False)


def _records(
    graph: op.Graph, name: str, line: str, value: Format, topics: Topics, on_error: OnError | None, *, every: bool
) -> op.Source:
    assert value.schema is not None
    source = op.Source(
        id=name, line=line, inputs=(), schema=value.schema, root="", regime=graph.regime, topics=topics, key=None,
        value=value, start="earliest", metadata={}, checked=False, on_error=on_error, every=every,
    )  # fmt: skip
    return graph.add(source)


def _changed(
    graph: op.Graph, source: op.Source, rows: pl.Schema, on_error: OnError | None, *, enveloped: bool,
    last: Key | None = None,
) -> op.Operator:  # fmt: skip
    # A weight that cannot be read is handled like a record that does not decode.
    handling = on_error or graph.on_error or DeadLetter()
    changed = op.Changed(
        id=f"{source.id}.changes", line=source.line, inputs=(source,), schema=rows, changes=True, root=source.root,
        regime=source.regime, enveloped=enveloped, last=last, on_error=handling,
    )  # fmt: skip
    return graph.add(changed)


def _latest(graph: op.Graph, before: op.Operator, key: Key, where: str) -> op.Operator:
    for column in before.schema:
        check = check_key_type if column in key.columns else check_value_type
        check(before.schema[column], where=f"column {column!r} of {where}")
    name = f"{before.id.removesuffix('.changes')}.latest"
    by, root = placed(before, key.columns, name)
    latest = op.Latest(
        id=name, line=before.line, inputs=(before,), schema=before.schema, changes=True, unique=frozenset(key.columns),
        partitioned=by, root=root, regime=before.regime, columns=key.columns,
    )  # fmt: skip
    return graph.add(latest, exchange=root != before.root)


def sink_changes(
    before: op.Operator, changes: Any, key: Key | None, value: Any, where: str
) -> tuple[SinkChanges, Key | None]:
    """What a sink writes of changes, and by which key. Raises DefinitionError if that cannot express the stream."""
    if changes not in (None, "append", "upsert", "debezium", "weights"):
        raise DefinitionError(
            f"changes={changes!r} is not supported",
            where=where,
            hint=did_you_mean(str(changes), ["append", "upsert", "debezium", "weights"]),
        )
    wanted: SinkChanges = changes or ("upsert" if before.changes else "append")
    if wanted == "append" and before.changes:
        raise DefinitionError(
            "rows of this stream can be taken back, and an append-only topic cannot say so",
            where=where,
            hint='changes="upsert" writes the last row of each key, "debezium" or "weights" each change; or, for windows, '
            "write each result once: .final()",
        )
    if key is None and before.changes and before.unique == frozenset():
        key = NoColumns()
    if wanted == "upsert" and key is None:
        raise DefinitionError("a grouped result is written by key, and the sink has none", where=where, hint='key="…"')
    if wanted in ("debezium", "weights"):
        _check_log(before, wanted, key, value, where)
    if before.changes and wanted != "weights":
        assert key is not None
        check_unique(before, key, where)
    return wanted, key


def _check_log(before: op.Operator, wanted: str, key: Key | None, value: Any, where: str) -> None:
    if before.batch:
        raise DefinitionError(
            f'a batch part has no changes to write: changes="{wanted}"',
            where=where,
            hint="leave out changes=: the sink then has the rows of each epoch",
        )
    if before.changes and key is None:
        raise DefinitionError(
            "changes of a row must stay in order, in one partition, and the sink has no key",
            where=where,
            hint='key="…"',
        )
    if isinstance(value, Scalar):
        raise DefinitionError(
            f'{value!r} writes one column alone, which does not say what changes="{wanted}" does: if a row comes or goes',
            where=where,
            hint="write all columns, as fk.Json() does",
        )
    if wanted == "weights" and WEIGHT_COLUMN in before.schema:
        raise DefinitionError(
            f"the stream has a column {WEIGHT_COLUMN!r}, and so have the records", where=where, hint="rename the column"
        )


def check_unique(before: op.Operator, key: Key, where: str) -> None:
    """Raises DefinitionError if the key does not identify the rows of a stream that changes, or has several writers."""
    unique = before.unique
    if unique is not None and not unique <= set(key.columns):
        needed = ", ".join(sorted(unique | placed_by(before)))
        raise DefinitionError(
            f"the sink's key {', '.join(key.columns)} does not identify a row",
            where=where,
            hint=f"there is one row for each {needed} here: use these columns as the key",
        )
    check_one_writer(before, key, where)


def check_not_batch(before: op.Operator, where: str) -> None:
    """Raises DefinitionError in a batch part, whose results go to topics."""
    if before.batch:
        raise DefinitionError(
            "a batch part writes to topics only",
            where=where,
            hint='use .sink("topic", …), or write the table with Spark',
        )


def check_column_type(place: str, column: str, dtype: pl.DataType, held: object | None, where: str) -> None:
    """Raises DefinitionError if a table of `place` has no type for a column. `held`: the type that it has."""
    if held is None:
        raise DefinitionError(
            f"{place} has no type for column {column!r}: {type_name(dtype)}",
            where=where,
            hint="cast it, durations to Int64 for instance, or leave it out with select",
        )


def check_table_key(before: op.Operator, key: Sequence[str], where: str) -> None:
    """Raises DefinitionError if a table could not be kept by this key, or the stream changes and there is none."""
    if not key:
        if before.changes:
            raise DefinitionError(
                "rows of this stream can be taken back, and a table is told so by key",
                where=where,
                hint='name the columns that identify a row: key="…"; or, for windows, write each result once: .final()',
            )
        return
    if before.changes:
        check_unique(before, key_of(list(key)), where)
    spread = before.partitioned
    if before.unique != frozenset() and (spread is None or not set(spread.columns) <= set(key)):
        raise DefinitionError(
            f"rows with the same {', '.join(key)} can be in several tasks, which would write the table in any order",
            where=where,
            hint=f"bring them together first: .repartition({list(key)!r})",
        )
