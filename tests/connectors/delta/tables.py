"""Outlets of tables in folders and on S3, and what a reader sees."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import polars as pl
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from tests.checkpoint.outlet_contract import PLACE, Log, Step

from falkirk.checkpoint import driver
from falkirk.checkpoint.ids import Offset
from falkirk.checkpoint.outlets import Chunk
from falkirk.connectors.delta.client import TablePlace
from falkirk.connectors.delta.outlet import DeltaOutlet
from falkirk.stream.definition.outlets import DeltaPlan

SECOND = timedelta(seconds=1)
ADDED = pl.Schema({"step": pl.Int64(), "row": pl.Int64()})
KEYED = pl.Schema({"id": pl.Int64(), "n": pl.String()})


def plan(url: str, columns: pl.Schema = ADDED, *key: str) -> DeltaPlan:
    return DeltaPlan(url, key, columns, SECOND)


def outlet(plan: DeltaPlan, topic_id: str = "id") -> DeltaOutlet:
    return DeltaOutlet(TablePlace(plan.url), plan, "app", "sink", topic_id)


def append(outlet: DeltaOutlet, chunk: Chunk[Any]) -> bool:
    return driver.run(outlet.append(chunk))


def end(outlet: DeltaOutlet, begin: int = 0) -> int:
    return driver.run(outlet.end(PLACE, Offset(begin)))


def rows(url: str) -> pl.DataFrame:
    """What a reader sees who has nothing of ours."""
    found = pl.from_arrow(DeltaTable(url).to_pyarrow_table())
    assert isinstance(found, pl.DataFrame)
    return found


def shown(url: str) -> Callable[[Log], list[Step]]:
    """The steps in the table, each whole and once."""
    seen: list[tuple[int, list[Step]]] = []

    def published(log: Log) -> list[Step]:
        try:
            table = DeltaTable(url)
        except TableNotFoundError:
            return []
        assert log.begins <= (table.transaction_version("falkirk/app/sink/id/0") or 0)
        if not seen or seen[-1][0] != table.version():
            found: dict[int, list[int]] = {}
            for step, row in rows(url).sort("step", "row").rows():
                found.setdefault(step, []).append(row)
            assert all(each == list(range(len(each))) for each in found.values()), "a row twice, or not at all"
            seen.append((table.version(), [(step, len(each)) for step, each in found.items()]))
        return seen[-1][1]

    return published
