"""A flow's state in its checkpoint store, for Spark: a table of keys and values, from one version of each task.

load()      the flow says which tables exist; the newest versions (not later than `step`) are fixed
a task      downloads one version's files, and scans their shards for the table
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from falkirk.blame import did_you_mean
from falkirk.connectors.spark.columns import arrow_type, spark_type
from falkirk.errors import ConfigError
from falkirk.state.objects import connect
from falkirk.state.remote import RemoteVersion
from falkirk.stream.access.stored_state import Pair, Table, newest_versions, opened, pairs_of, table_of
from falkirk.stream.flow.load import load_flow

KNOWN = ("checkpoints", "flow", "state", "step")
CHUNK = 20_000
"""Rows of a batch."""
WHOSE: Mapping[str, pl.DataType] = {"_task": pl.String(), "_step": pl.Int64()}
"""Columns that name a row's task and version."""


def arrow_schema(table: Table) -> pa.Schema:
    """The columns for Spark: an aggregate's parts are a struct."""
    values: dict[str, Any] = {}
    for name, dtype in table.shown.items():
        aggregate, _, part = name.rpartition(".") if table.parts else (name, "", "")
        kind = arrow_type(spark_type(dtype))
        values[aggregate] = pa.struct([*values.get(aggregate, []), (part, kind)]) if table.parts else kind
    keys = {name: arrow_type(spark_type(dtype)) for name, dtype in table.keys.items()}
    return pa.schema({**keys, **values, **{name: arrow_type(dtype) for name, dtype in WHOSE.items()}}.items())


def arrow_batch(table: Table, pairs: Sequence[Pair], version: RemoteVersion) -> pa.RecordBatch:
    """Rows of the table. Raises StateError if they are not its rows."""
    rows = table.frame(pairs)
    whose = {"_task": pa.repeat(version.identity.task, rows.height), "_step": pa.repeat(version.step, rows.height)}
    columns = _arrays(rows) | whose
    schema = arrow_schema(table)
    return pa.RecordBatch.from_arrays([_array(field, columns) for field in schema], schema=schema)


def _array(field: pa.Field, columns: Mapping[str, pa.Array]) -> pa.Array:
    if field.name in columns:
        return columns[field.name].cast(field.type)
    parts = [columns[f"{field.name}.{part.name}"].cast(part.type) for part in field.type]
    return pa.StructArray.from_arrays(parts, fields=list(field.type))


def fix(given: Mapping[str, str]) -> bytes:
    """On load(): the table, and the version of each task. Raises ConfigError, or StateError if there is none."""
    table, store = _table(given), connect(given["checkpoints"])
    step = int(given["step"]) if "step" in given else None
    versions = newest_versions(table, store, given["checkpoints"], step=step)
    return pickle.dumps((table, versions, [table.within(version.identity.schema) for version in versions]))


def schema(given: Mapping[str, str], fixed: bytes) -> StructType:
    """On load(): the columns."""
    table, _, _ = pickle.loads(fixed)
    return from_arrow_schema(arrow_schema(table))


def plan(given: Mapping[str, str], fixed: bytes, cores: int) -> list[int]:
    """On an action: one version per Spark task."""
    return list(range(len(pickle.loads(fixed)[1])))


def read(given: Mapping[str, str], fixed: bytes, number: int) -> Iterator[pa.RecordBatch]:
    """In a task: the rows of one version, shard by shard. Raises StateError if its files no longer exist."""
    _, versions, tables = pickle.loads(fixed)
    version: RemoteVersion = versions[number]
    table: Table = tables[number]
    with opened(connect(given["checkpoints"]), version) as engine:
        table.check_whole(engine.get, version.identity.task)
        pairs = pairs_of(table, engine)
        while some := list(islice(pairs, CHUNK)):
            yield arrow_batch(table, some, version)


def _table(given: Mapping[str, str]) -> Table:
    if unknown := sorted(given.keys() - set(KNOWN)):
        raise ConfigError(f"state has no option {unknown[0]!r}", hint=did_you_mean(unknown[0], KNOWN))
    for needed, example in (("flow", "app.py:flow"), ("checkpoints", "s3://bucket/app")):
        if not given.get(needed):
            raise ConfigError(f"the option {needed!r} is missing", hint=f'give .option("{needed}", "{example}")')
    if not given.get("step", "0").isdigit():
        raise ConfigError(f"{given['step']!r} is not a step", where="option 'step'", hint="give a number")
    return table_of(load_flow(given["flow"]).plan(), given["state"])


def _arrays(frame: pl.DataFrame) -> dict[str, pa.Array]:
    changed = {name: wide for name, dtype in frame.schema.items() if (wide := spark_type(dtype)) != dtype}
    return {column.name: column.to_arrow() for column in frame.cast(changed)}  # type: ignore[arg-type]
