"""Chunks, and what is done with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

import polars as pl
from tests.checkpoint.outlet_contract import PLACE, Step

from falkirk.checkpoint import driver
from falkirk.checkpoint.ids import Offset
from falkirk.checkpoint.outlets import Chunk
from falkirk.connectors.files.parquet import StepRows
from falkirk.connectors.postgres.outlet import PostgresOutlet
from falkirk.stream.definition.outlets import GONE, TablePlan

Make: TypeAlias = Callable[..., PostgresOutlet]
"""Makes outlets: of a plan, an id of the topic, a user."""

SECOND = timedelta(seconds=1)
ADDED = TablePlan("shop", "steps", (), pl.Schema({"step": pl.Int64(), "row": pl.Int64()}), SECOND)
KEYED = TablePlan("shop", "totals", ("id",), pl.Schema({"id": pl.Int64(), "n": pl.String()}), SECOND)


def rows_of(steps: Sequence[Step]) -> list[StepRows]:
    return [StepRows("t/0", step, pl.DataFrame({"step": [step] * n, "row": range(n)})) for step, n in steps]


def keyed(*changes: tuple[int, str | None], start: int = 0, end: int = 0, partition: int = 0) -> Chunk[list[StepRows]]:
    """A chunk of changes by key, one for each step; None: the row is gone."""
    rows = [
        StepRows("t/0", start + i, pl.DataFrame({"id": [id_], "n": [n or ""], GONE: [n is None]}))
        for i, (id_, n) in enumerate(changes)
    ]
    return Chunk(PLACE._replace(partition=partition), Offset(start), Offset(end or start + len(rows)), rows)


def append(outlet: PostgresOutlet, chunk: Chunk[Any]) -> bool:
    return driver.run(outlet.append(chunk))


def end(outlet: PostgresOutlet, begin: int = 0) -> int:
    return driver.run(outlet.end(PLACE, Offset(begin)))
