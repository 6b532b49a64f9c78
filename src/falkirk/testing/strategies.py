"""Hypothesis strategies for what a flow reads: rows by the formats' schemas, and records that do not decode.

>>> import falkirk as fk
>>> from hypothesis import find
>>> flow = fk.Flow("example")
>>> bids = flow.source("bids", key="auction", value=fk.Json({"auction": int, "price": int}))
>>> bids.sink("same", key="auction", value=fk.Json())
>>> find(rows(flow, "bids"), lambda rows: len(rows) == 1)
[{'auction': 0, 'price': None}]
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Any

import polars as pl

from falkirk.errors import ConfigError, DefinitionError
from falkirk.stream.access.producing import Record, columns_of, source_named, sources_of, written_as
from falkirk.stream.flow.flow import Flow
from falkirk.stream.formats.types import instance, type_name
from falkirk.stream.operators.sources.source import Source
from falkirk.stream.operators.sources.table import TableSource

try:
    from hypothesis import strategies as st
    from hypothesis.strategies import SearchStrategy
except ModuleNotFoundError as error:
    raise ConfigError("strategies need Hypothesis", hint="pip install 'falkirk[test]'") from error

MOST = 30
"""Rows of one source, by default."""
FIRST, LAST = datetime(1, 1, 2), datetime(9999, 12, 30)  # noqa: DTZ001  # the strategy adds the zone
EXACT = Context(prec=40)
"""Decimals have up to 38 digits."""
BROKEN = (b"", b"{", b"null", b"[]", b"\xff\xfe", b"\x00" * 3)


def rows(flow: Flow, source: str, *, max_size: int = MOST) -> SearchStrategy[list[dict[str, Any]]]:
    """Lists of rows of a source or table, for Hypothesis. All decode: nulls, extremes, text of all kinds. Key columns
    are never null.

    Lists have up to `max_size` rows. Raises ConfigError for a name or a type of column that is not known.

    >>> import falkirk as fk
    >>> from hypothesis import find
    >>> flow = fk.Flow("example")
    >>> flow.source("bids", key="auction", value=fk.Json({"auction": int})).sink("same", value=fk.Json())
    >>> find(rows(flow, "bids"), lambda rows: len(rows) == 1)
    [{'auction': 0}]
    """
    return st.lists(_row(source_named(flow.plan(), source)), max_size=max_size)


def topics(flow: Flow, *, broken: bool = True, max_size: int = MOST) -> SearchStrategy[dict[str, list[Any]]]:
    """Inputs for `falkirk.testing.run`, for Hypothesis: rows of each source and table, by name, and tombstones of
    tables.

    With `broken=True`, also records that do not decode. Lists have up to `max_size` entries. Raises ConfigError as
    `rows` does.

    >>> import falkirk as fk
    >>> from hypothesis import find
    >>> flow = fk.Flow("example")
    >>> flow.source("bids", key="auction", value=fk.Json({"auction": int})).sink("same", value=fk.Json())
    >>> find(topics(flow, broken=False), lambda topics: True)
    {'bids': []}
    """
    return st.fixed_dictionaries(
        {name: st.lists(_record(source, broken), max_size=max_size) for name, source in sources_of(flow.plan()).items()}
    )


def _record(source: Source, broken: bool) -> SearchStrategy[Any]:
    row = _row(source)
    others: list[SearchStrategy[Any]] = []
    if isinstance(source, TableSource):
        others.append(row.map(lambda row: Record(key=_key(source, row))))
    if broken:
        values = st.one_of(st.sampled_from(BROKEN), st.binary(max_size=20))
        keys = st.none() | st.binary(max_size=5)
        others.append(st.tuples(keys, values).filter(lambda record: bool(source.value.decode([record[1]]).bad)))
    return st.one_of(row, row, *others) if others else row


def _key(source: Source, row: Mapping[str, Any]) -> Any:
    assert source.key is not None
    cells = [row[c] for c in source.key.columns]
    return cells if source.key.array else cells[0]


def _row(source: Source) -> SearchStrategy[dict[str, Any]]:
    keys, columns = () if source.key is None else source.key.columns, columns_of(source)
    assert source.value.schema is not None
    nulls = _takes_nulls(source)
    never = {*keys, *(() if nulls else source.value.schema)}
    return st.fixed_dictionaries(
        {
            c: _values(dtype, nulls, key=c in keys) if c in never else st.none() | _values(dtype, nulls)
            for c, dtype in columns.items()
        }
    )


def _takes_nulls(source: Source) -> bool:
    """Whether every column may be null. A schema may forbid it for some; and a format of one value writes a null as no value
    at all, which is a tombstone and not a row."""
    columns = source.value.schema or pl.Schema()
    try:
        (nothing,) = written_as(source).encode(pl.DataFrame({c: [None] for c in columns}, schema=columns))
    except DefinitionError:
        return False
    return nothing is not None


def _values(dtype: pl.DataType, nulls: bool, *, key: bool = False) -> SearchStrategy[Any]:
    """Values of a type, never null; nulls inside only if there may be `nulls`; for keys, often one of a few."""
    if dtype.is_nested():
        return _nested(dtype, nulls)
    if dtype.is_integer():
        least, most = (int(pl.select(bound).item()) for bound in (dtype.min(), dtype.max()))  # type: ignore[attr-defined]
        some = st.integers(0, min(most, 5))
        return some | st.integers(least, most) if key else st.integers(least, most) | st.sampled_from([least, most])
    if dtype.is_float():
        return st.floats(allow_nan=False, allow_infinity=False, width=32 if dtype == pl.Float32() else 64)
    if isinstance(dtype, pl.Datetime):
        times, unit = st.datetimes(FIRST, LAST, timezones=st.just(UTC)), 1 if dtype.time_unit == "us" else 1000
        return times.map(lambda at: at.replace(microsecond=at.microsecond // unit * unit))
    if isinstance(dtype, pl.Decimal):
        most = 10 ** (dtype.precision or 38) - 1
        return st.integers(-most, most).map(lambda digits: Decimal(digits).scaleb(-dtype.scale, EXACT))
    plain: dict[pl.DataType, SearchStrategy[Any]] = {
        pl.Boolean(): st.booleans(),
        pl.String(): st.sampled_from("abc") | st.text(max_size=20) if key else st.text(max_size=20),
        pl.Binary(): st.binary(max_size=20),
        pl.Date(): st.dates(date(1, 1, 1), date(9999, 12, 31)),
    }
    if dtype not in plain:
        raise ConfigError(
            f"there is no strategy for columns of type {type_name(dtype)}", hint="write the rows yourself"
        )
    return plain[dtype]


def _nested(dtype: pl.DataType, nulls: bool) -> SearchStrategy[Any]:
    nothing = st.none() if nulls else st.nothing()
    if isinstance(dtype, pl.List):
        return st.lists(nothing | _values(instance(dtype.inner), nulls), max_size=3)
    fields: list[pl.Field] = dtype.fields  # type: ignore[attr-defined]
    return st.fixed_dictionaries({f.name: nothing | _values(instance(f.dtype), nulls) for f in fields})
