"""Tables of random rows, and what DuckDB answers over them."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Any

import polars as pl
from tests.duck import database

import falkirk as fk

COLUMNS = {
    "id": fk.Int64, "a": fk.Int64, "b": fk.Int64, "f": fk.Float64, "s": fk.String, "u": fk.String, "c": fk.Boolean,
    "e": fk.Boolean, "seen": fk.Datetime, "till": fk.Datetime, "d": fk.Date, "n": fk.Int32,
}  # fmt: skip


def random_rows(count: int, seed: int) -> list[dict[str, Any]]:
    random = Random(seed)
    begin = datetime(2026, 1, 1, tzinfo=UTC)

    def some(value: Any) -> Any:
        return None if random.random() < 0.15 else value

    def moment() -> datetime:
        return begin + timedelta(milliseconds=random.randrange(60 * 86_400_000))

    return [
        {
            "id": i, "a": some(random.randrange(-6, 7)), "b": some(random.choice([-4, -3, -1, 1, 2, 3, 5])),
            "f": some(random.choice([-2.5, -0.5, 0.0, 0.5, 1.5, 2.5, 2.25, random.uniform(-9, 9)])),
            "s": some(random.choice(["abc", "a", "", " ab ", "xbx", "Abc", "a$%", "a%", "éa"])),
            "u": some(random.choice(["abc", "b", ""])), "c": some(random.random() < 0.5),
            "e": some(random.random() < 0.5), "seen": some(moment()), "till": some(moment()),
            "d": some(date(2026, 1, 1) + timedelta(days=random.randrange(60))), "n": some(random.randrange(-6, 7)),
        }
        for i in range(count)
    ]  # fmt: skip


def answered(query: str, **tables: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """DuckDB's answer."""
    schema = fk.Flow("x").source("t", value=fk.Json(COLUMNS)).schema
    with database(**{name: pl.DataFrame(rows, schema=schema) for name, rows in tables.items()}) as connection:
        connection.execute("set timezone = 'UTC'")
        found = connection.execute(query)
        names = [column[0] for column in found.description or []]
        return [{n: plain(v) for n, v in zip(names, row, strict=True)} for row in found.fetchall()]


def plain(value: Any) -> Any:
    """A value in one form, whoever gives it."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC).timestamp() if value.tzinfo is None else value.timestamp()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float):
        return None if math.isnan(value) or math.isinf(value) else float(f"{value:.14g}")
    return value
