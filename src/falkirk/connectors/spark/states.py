"""A flow's state as its checkpoint store has it: a table of keys and values, from one version of each task.

    load()      the flow says which tables there are; the newest versions (not later than `step`) are fixed
    a task      downloads one version's files, and scans their shards for the table

What is kept of a group are the parts of its aggregates, a struct for each: `top=fk.max("price")` is `top.best`.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import obstore
import polars as pl
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from falkirk.connectors.spark.columns import arrow_type, spark_type
from falkirk.errors import ConfigError, StateError
from falkirk.state.checkpoints import CheckpointStore, RemoteVersion, connect
from falkirk.state.codec import decode_keys, decode_values, encode_key, prefix_end
from falkirk.state.engine import MIB, Engine, Memory
from falkirk.state.shards import SHARDS
from falkirk.state.store import Identity
from falkirk.stream.blame import did_you_mean
from falkirk.stream.load import load_flow
from falkirk.stream.operators import Group, Operator, Processing
from falkirk.stream.plan import Plan
from falkirk.stream.stage import PhysicalStage
from falkirk.stream.tables import GROUPS, group_schema

KNOWN = ("checkpoints", "flow", "state", "step")
CHUNK = 20_000
"""Rows of a batch."""
WHOSE: Mapping[str, pl.DataType] = {"_task": pl.String(), "_step": pl.Int64()}
"""Columns that say of which task's version a row is."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table of state, and how its rows are laid out."""

    app: str
    stage: str
    fingerprint: str
    state_schema: str
    number: int
    keys: pl.Schema
    values: pl.Schema
    parts: bool
    """Whether the values are parts of aggregates, `name.part`."""

    def identity(self, partition: str) -> Identity:
        """Of one task."""
        return Identity(self.app, f"{self.stage}/{partition}", self.fingerprint, self.state_schema)

    @property
    def arrow(self) -> pa.Schema:
        """The columns that Spark gets."""
        values: dict[str, Any] = {}
        for name, dtype in self._shown():
            aggregate, _, part = name.rpartition(".") if self.parts else (name, "", "")
            kind = arrow_type(spark_type(dtype))
            values[aggregate] = pa.struct([*values.get(aggregate, []), (part, kind)]) if self.parts else kind
        keys = {name: arrow_type(spark_type(dtype)) for name, dtype in self.keys.items()}
        return pa.schema({**keys, **values, **{name: arrow_type(dtype) for name, dtype in WHOSE.items()}}.items())

    def batch(self, pairs: Sequence[tuple[bytes, bytes]], version: RemoteVersion) -> pa.RecordBatch:
        """Rows of the table, from keys and values as the store has them. Raises StateError if they are not its rows."""
        keys = decode_keys(self.keys, [key for key, _ in pairs])
        values = decode_values(self.values, [value for _, value in pairs])
        columns = {**_arrays(keys), **_arrays(values)}
        columns |= {"_task": pa.repeat(version.identity.task, len(pairs)), "_step": pa.repeat(version.step, len(pairs))}
        return pa.RecordBatch.from_arrays([self._array(field, columns) for field in self.arrow], schema=self.arrow)

    def _shown(self) -> Iterator[tuple[str, pl.DataType]]:
        """Without the count of rows that tells an empty group, which no aggregate of the user's has."""
        return ((name, dtype) for name, dtype in self.values.items() if not self.parts or not name.startswith("."))

    def _array(self, field: pa.Field, columns: Mapping[str, pa.Array]) -> pa.Array:
        if field.name in columns:
            return columns[field.name].cast(field.type)
        parts = [columns[f"{field.name}.{part.name}"].cast(part.type) for part in field.type]
        return pa.StructArray.from_arrays(parts, fields=list(field.type))


def fix(given: Mapping[str, str]) -> bytes:
    """On load(): the table, and the version of each task. Raises ConfigError, or StateError where none is there."""
    table, store = _table(given), connect(given["checkpoints"])
    prefix = f"{table.app}/{table.stage}/"
    found = obstore.list_with_delimiter(store, prefix)["common_prefixes"]
    versions = []
    for partition in sorted((Path(path).name for path in found), key=int):
        copies = CheckpointStore(store, table.identity(partition))
        version = copies.newest(int(given["step"]) if "step" in given else None)
        if version is None:
            raise StateError(
                f"task {table.stage}/{partition} has no version as early as step {given.get('step')}",
                where=given["checkpoints"],
                hint=f"the steps of its versions are {', '.join(map(str, copies.versions())) or 'none'}",
            )
        versions.append(version)
    if not versions:
        raise StateError(
            f"there is no version of stage {table.stage!r} of app {table.app!r}",
            where=given["checkpoints"],
            hint="is it the run's checkpoint store (--checkpoints, or the folder `checkpoints` in its state directory)?",
        )
    return pickle.dumps((table, versions))


def schema(given: Mapping[str, str], fixed: bytes) -> StructType:
    """On load(): the columns."""
    table, _ = pickle.loads(fixed)
    return from_arrow_schema(table.arrow)


def plan(given: Mapping[str, str], fixed: bytes, cores: int) -> list[int]:
    """On an action: a version a task of Spark's."""
    return list(range(len(pickle.loads(fixed)[1])))


def read(given: Mapping[str, str], fixed: bytes, number: int) -> Iterator[pa.RecordBatch]:
    """In a task: the rows of one version, shard by shard. Raises StateError where its files are there no more."""
    table, versions = pickle.loads(fixed)
    version: RemoteVersion = versions[number]
    with tempfile.TemporaryDirectory(prefix="falkirk-state-") as folder:
        CheckpointStore(connect(given["checkpoints"]), version.identity).download(version, Path(folder))
        with closing(Engine(Path(folder), Memory(32 * MIB, 4 * MIB), read_only=True)) as engine:
            firsts = (encode_key(table.number, shard, []) for shard in range(SHARDS))
            pairs = chain.from_iterable(engine.scan(first, prefix_end(first)) for first in firsts)
            while some := list(islice(pairs, CHUNK)):
                yield table.batch(some, version)


def _table(given: Mapping[str, str]) -> Table:
    if unknown := sorted(given.keys() - set(KNOWN)):
        raise ConfigError(f"state has no option {unknown[0]!r}", hint=did_you_mean(unknown[0], KNOWN))
    for needed, example in (("flow", "app.py:flow"), ("checkpoints", "s3://bucket/app")):
        if not given.get(needed):
            raise ConfigError(f"the option {needed!r} is missing", hint=f'give .option("{needed}", "{example}")')
    if not given.get("step", "0").isdigit():
        raise ConfigError(f"{given['step']!r} is no step", where="option 'step'", hint="give a number")
    flow_plan = load_flow(given["flow"]).plan()
    name, _, table = given["state"].partition("/")
    stage, operator = _operator(flow_plan, name)
    assert isinstance(operator, Group | Processing)
    grouped = isinstance(operator, Group)
    tables = {GROUPS: group_schema(operator)} if isinstance(operator, Group) else dict(operator.tables)
    table = table or (GROUPS if grouped else "state")
    if table not in tables:
        raise ConfigError(f"operator {name!r} has no table {table!r}", hint=did_you_mean(table, tables))
    return Table(
        app=flow_plan.app,
        stage=stage.id,
        fingerprint=stage.fingerprint,
        state_schema=stage.state_schema,
        number=stage.tables[name, table],
        keys=pl.Schema({column: operator.inputs[0].schema[column] for column in operator.columns}),
        values=tables[table],
        parts=grouped,
    )


def _operator(flow_plan: Plan, name: str) -> tuple[PhysicalStage, Operator]:
    stateful = {
        operator.id: (stage, operator)
        for stage in flow_plan.stages
        if isinstance(stage, PhysicalStage)
        for operator in stage.operators
        if operator.stateful
    }
    if name not in stateful:
        raise ConfigError(f"the flow keeps no state for {name!r}", hint=did_you_mean(name, stateful))
    return stateful[name]


def _arrays(frame: pl.DataFrame) -> dict[str, pa.Array]:
    changed = {name: wide for name, dtype in frame.schema.items() if (wide := spark_type(dtype)) != dtype}
    return {column.name: column.to_arrow() for column in frame.cast(changed)}  # type: ignore[arg-type]
