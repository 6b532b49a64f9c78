"""DuckDB, the oracle of the operators' tests: one database for a process, as a new one takes ten times as long as a query."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import polars as pl

# One thread: the tables are small, and the tests already run side by side.
_DATABASE = duckdb.connect(config={"threads": 1})


@contextmanager
def database(**tables: pl.DataFrame) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that sees these tables, and no others."""
    with _DATABASE.cursor() as connection:
        for name, rows in tables.items():
            connection.register(name, rows.to_arrow())
        yield connection
