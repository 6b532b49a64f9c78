"""A flow's state as a frame: what `App.state` shows."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from falkirk.errors import ConfigError
from falkirk.state.codec import decode_keys, decode_values, encode_key, prefix_end
from falkirk.state.shards import SHARDS
from falkirk.state.store import Reader
from falkirk.stream.blame import did_you_mean
from falkirk.stream.operators import Group, Operator, Processing
from falkirk.stream.plan import Plan
from falkirk.stream.stage import PhysicalStage
from falkirk.stream.tables import GROUPS, group_schema


def operator_named(plan: Plan, name: str) -> tuple[PhysicalStage, Group | Processing]:
    """The group or process of this id, and its stage. Raises ConfigError."""
    found: dict[str, tuple[PhysicalStage, Operator]] = {}
    for stage in plan.stages:
        if isinstance(stage, PhysicalStage):
            found |= {o.id: (stage, o) for o in stage.operators if isinstance(o, Group | Processing)}
    if name not in found:
        raise ConfigError(f"the flow keeps no state for {name!r}", hint=did_you_mean(name, found))
    stage, operator = found[name]
    assert isinstance(operator, Group | Processing)
    return stage, operator


def state_of(stage: PhysicalStage, operator: Group | Processing, table: str, stores: Sequence[Reader]) -> pl.DataFrame:
    """A table of an operator in all of its tasks' stores: the columns of the key, and what is kept. Raises ConfigError."""
    grouped = isinstance(operator, Group)
    tables = {GROUPS: group_schema(operator)} if isinstance(operator, Group) else dict(operator.tables)
    name = GROUPS if grouped else table
    if name not in tables:
        raise ConfigError(f"{operator.kind} {operator.id!r} has no table {table!r}", hint=did_you_mean(table, tables))
    keys = pl.Schema({column: operator.inputs[0].schema[column] for column in operator.columns})
    number = stage.tables[operator.id, name]
    pairs: list[tuple[bytes, bytes]] = []
    for store in stores:
        for shard in range(SHARDS):
            first = encode_key(number, shard, [])
            pairs += store.scan(first, prefix_end(first))
    frame = decode_keys(keys, [key for key, _ in pairs]) if pairs else keys.to_frame()
    values = decode_values(tables[name], [value for _, value in pairs]) if pairs else tables[name].to_frame()
    # The count of rows that tells an empty group is no aggregate of the user's.
    return pl.concat([frame, values.select(c for c in values.columns if not c.startswith("."))], how="horizontal")
