"""`stream.sink_postgres`: rows in a table of PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from falkirk.blame import user_line
from falkirk.durations import DurationLike, duration
from falkirk.errors import DefinitionError
from falkirk.stream import operators as op
from falkirk.stream.definition.keys import columns_of
from falkirk.stream.definition.names import DATABASE
from falkirk.stream.definition.on_error import OnError, checked_on_error
from falkirk.stream.definition.outlets import TablePlan, postgres_type
from falkirk.stream.flow.changing import check_column_type, check_not_batch, check_table_key
from falkirk.stream.flow.identified import identified
from falkirk.stream.formats.rows import RowT_co

if TYPE_CHECKING:
    from falkirk.stream.flow.streams import Stream

LONGEST = 63
"""Bytes of a name in PostgreSQL."""
SYSTEM = ("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid")
"""Columns that each table of PostgreSQL has."""
SINK = 'sink_postgres("totals", "shop", table="totals", key="customer")'


def sink_postgres(
    stream: Stream[RowT_co],
    name: str,
    database: str,
    *,
    table: str | None = None,
    key: str | Sequence[str] | None = None,
    every: DurationLike = "1s",
    on_error: OnError | None = None,
) -> None:
    """Write rows to a table of a PostgreSQL database, each effect exactly once.

    `database` is a name. The settings of a run give its address: `[database.shop] url = {env = "SHOP_URL"}` in falkirk.toml,
    or FALKIRK_DATABASE_SHOP_URL. `table` is NAME or SCHEMA.NAME, if it differs from `name`. If the table does not exist, it
    is created with the stream's columns.

    Without `key`, each row is inserted. With `key`, a column or a list, a row replaces the row of the same key, and a row
    that is taken back is deleted. A stream with retractions, such as a grouped result, needs a key that identifies its
    rows.

    `every` is the time for which a task collects committed rows before it writes them, in one transaction. Until then they
    wait in a topic of the app. `on_error` applies to rows that no table can hold: a null in the key, text with the
    character U+0000, a time outside of the years 1 to 9999. Raises DefinitionError. See docs/how-to/postgres.md.

    >>> import falkirk as fk
    >>> flow = fk.Flow("shop")
    >>> orders = flow.source("orders", value=fk.Json({"customer": str, "usd": int}))
    >>> totals = orders.group_by("customer", id="totals").agg(usd=fk.sum("usd"))
    >>> totals.sink_postgres("totals", "shop", key="customer", every="500ms")
    """
    from falkirk.stream.definition.names import check_name

    line = user_line()
    where = f"sink {name!r} ({line})"
    check_name(name, "sink", line)
    before = stream._op
    _check_names(database, table if table is not None else name, where)
    _check_columns(before, where)
    columns = () if key is None else columns_of([key], before.schema, where)
    check_table_key(before, columns, where)
    rows = identified(stream, columns, name, line)
    plan = TablePlan(
        database,
        table if table is not None else name,
        columns,
        before.schema,
        duration(every, "every", where=where, error=DefinitionError),
    )
    stream._graph.add(rows._made(op.PostgresSink, line, id=name, plan=plan, on_error=checked_on_error(on_error, where)))


def _check_names(database: str, table: str, where: str) -> None:
    if not DATABASE.fullmatch(database):
        # It is not repeated: it may be an address with a password.
        raise DefinitionError(
            "the database is not a valid name",
            where=where,
            hint=f"use up to 50 small letters, digits and dashes, as in {SINK}; its address is a setting of the run: "
            'url = {env = "SHOP_URL"} below [database.shop]',
        )
    parts = table.split(".")
    if len(parts) > 2 or not all(0 < len(part.encode()) <= LONGEST and "\0" not in part for part in parts):
        raise DefinitionError(
            f"table={table!r} is not a valid name",
            where=where,
            hint=f"write NAME or SCHEMA.NAME, each of up to {LONGEST} bytes",
        )


def _check_columns(before: op.Operator, where: str) -> None:
    check_not_batch(before, where)
    for column, dtype in before.schema.items():
        check_column_type("PostgreSQL", column, dtype, postgres_type(dtype), where)
        if len(column.encode()) > LONGEST or "\0" in column or column in SYSTEM:
            raise DefinitionError(
                f"column {column!r} cannot be a column of PostgreSQL",
                where=where,
                hint=f"rename it: at most {LONGEST} bytes, and none of {', '.join(SYSTEM)}",
            )
