"""`stream.sink_delta`: rows in a table of Delta Lake."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import polars as pl

from falkirk.blame import user_line
from falkirk.durations import DurationLike, duration
from falkirk.errors import DefinitionError
from falkirk.stream import operators as op
from falkirk.stream.definition.keys import columns_of
from falkirk.stream.definition.on_error import OnError, checked_on_error
from falkirk.stream.definition.outlets import DeltaPlan, delta_type
from falkirk.stream.flow.changing import check_column_type, check_not_batch, check_table_key
from falkirk.stream.flow.identified import identified
from falkirk.stream.formats.rows import RowT_co
from falkirk.stream.formats.types import type_name

if TYPE_CHECKING:
    from falkirk.stream.flow.streams import Stream

SCHEMES = ("", "file", "s3", "s3a", "gs", "az", "abfs", "abfss")
"""Of the URLs of folders and buckets that hold tables."""
SINK = 'sink_delta("totals", "s3://bucket/totals", key="customer")'
UNNAMED = frozenset(" ,;{}()\n\t=")
"""Signs that readers of Delta Lake refuse in the names of columns."""


def sink_delta(
    stream: Stream[RowT_co],
    name: str,
    url: str,
    *,
    key: str | Sequence[str] | None = None,
    every: DurationLike = "10s",
    on_error: OnError | None = None,
) -> None:
    """Write rows to a table of Delta Lake, each effect exactly once.

    `url` is the table's folder, or a URL such as "s3://bucket/table". If there is no table, it is created with the stream's
    columns.

    Without `key`, each row is added. With `key`, a column or a list, a row replaces the row of the same key, and a row that
    is taken back is deleted. A stream with retractions, such as a grouped result, needs a key that identifies its rows.

    `every` is the time for which a task collects committed rows before it writes them, in one commit of the table. Until then
    they wait in a topic of the app. `on_error` applies to rows that no table can hold: a null in the key, a time outside
    of the years 1 to 9999. Raises DefinitionError. See docs/how-to/delta.md.

    >>> import falkirk as fk
    >>> flow = fk.Flow("shop")
    >>> orders = flow.source("orders", value=fk.Json({"customer": str, "usd": int}))
    >>> orders.sink_delta("orders", "s3://shop/orders", every="1m")
    >>> totals = orders.group_by("customer", id="totals").agg(usd=fk.sum("usd"))
    >>> totals.sink_delta("totals", "s3://shop/totals", key="customer")
    """
    from falkirk.stream.definition.names import check_name

    line = user_line()
    where = f"sink {name!r} ({line})"
    check_name(name, "sink", line)
    before = stream._op
    _check_url(str(url), where)
    _check_columns(before, where)
    columns = () if key is None else columns_of([key], before.schema, where)
    check_table_key(before, columns, where)
    _check_key_types(before.schema, columns, where)
    pause = duration(every, "every", where=where, error=DefinitionError)
    rows = identified(stream, columns, name, line)
    plan = DeltaPlan(str(url), columns, before.schema, pause)
    stream._graph.add(rows._made(op.DeltaSink, line, id=name, plan=plan, on_error=checked_on_error(on_error, where)))


def _check_url(url: str, where: str) -> None:
    if not url:
        raise DefinitionError("the sink has no table", where=where, hint=SINK)
    if urlsplit(url).scheme not in SCHEMES:
        raise DefinitionError(
            f"{url!r} is not the place of a table",
            where=where,
            hint="give a folder, or a URL with s3://, gs://, az:// or abfss://",
        )


def _check_columns(before: op.Operator, where: str) -> None:
    check_not_batch(before, where)
    for column, dtype in before.schema.items():
        check_column_type("Delta Lake", column, dtype, delta_type(dtype), where)
    seen: dict[str, str] = {}
    for name in _names(before.schema):
        if not name or UNNAMED & set(name):
            raise DefinitionError(
                f"column {name!r} cannot be a column of Delta Lake",
                where=where,
                hint="rename it: no spaces, and none of , ; { } ( ) =",
            )
    for name in before.schema:
        if (other := seen.setdefault(name.lower(), name)) != name:
            raise DefinitionError(
                f"columns {other!r} and {name!r} are one column to readers of Delta Lake, which ignore case",
                where=where,
                hint="rename one",
            )


def _names(schema: pl.Schema) -> Iterator[str]:
    """The names of columns, and of the fields within them."""
    for name, dtype in schema.items():
        yield name
        while isinstance(dtype, pl.List | pl.Array):
            dtype = pl.Series(dtype=dtype.inner).dtype
        if isinstance(dtype, pl.Struct):
            yield from _names(pl.Schema({field.name: pl.Series(dtype=field.dtype).dtype for field in dtype.fields}))


def _check_key_types(schema: pl.Schema, key: Sequence[str], where: str) -> None:
    for name in key:
        if schema[name].is_float() or schema[name].is_nested():
            raise DefinitionError(
                f"key column {name!r} is {type_name(schema[name])}, whose values Delta Lake does not compare as keys",
                where=where,
                hint="use a number without a fraction, text, a date or a time, or cast it: "
                f'.with_columns({name}=fk.col("{name}").cast(fk.String))',
            )
