"""Avro schemas with their rows, drawn by Hypothesis, and what fastavro makes of them."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

import fastavro
from hypothesis import settings
from hypothesis import strategies as st

WIDE = Context(prec=60)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EMPTY = {"type": "fixed", "name": "Empty", "size": 0}
EXAMPLES = settings(max_examples=60, deadline=None)


def record(name: str = "R", **fields: Any) -> dict[str, Any]:
    """A schema with these fields."""
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def datum(schema: Any, row: Mapping[str, Any]) -> bytes:
    """A row as fastavro writes it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


def oracle(value: bytes, writer: Any, reader: Any) -> Any:
    """A row as fastavro reads it."""
    return fastavro.schemaless_reader(io.BytesIO(value), fastavro.parse_schema(writer), fastavro.parse_schema(reader))


def as_columns(value: Any) -> Any:
    """What fastavro gives, as columns hold it: a map is a list of pairs."""
    if isinstance(value, Map):
        return [{"key": k, "value": as_columns(v)} for k, v in value.items()]
    if isinstance(value, dict):
        return {k: as_columns(v) for k, v in value.items()}
    return [as_columns(v) for v in value] if isinstance(value, list) else value


class Map(dict[str, Any]):
    """Told from a record."""


# -- schemas, and rows of them -----------------------------------------------------------------------------------------

Typed = tuple[Any, st.SearchStrategy[Any]]


def moments(step: timedelta) -> st.SearchStrategy[datetime]:
    low, high = ((datetime(year, 1, 1, tzinfo=UTC) - EPOCH) // step for year in (1, 9999))
    return st.integers(low, high).map(lambda n: EPOCH + n * step)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale)))


PLAIN: list[Typed] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("string", st.text(max_size=20)),
    ("bytes", st.binary(max_size=20)),
    ({"type": "int", "logicalType": "date"}, st.dates()),
    ({"type": "long", "logicalType": "timestamp-millis"}, moments(timedelta(milliseconds=1))),
    ({"type": "long", "logicalType": "timestamp-micros"}, moments(timedelta(microseconds=1))),
]


@st.composite
def scalars(draw: st.DrawFn, names: Callable[[], str]) -> Typed:
    kind = draw(st.integers(0, len(PLAIN) + 3))
    if kind < len(PLAIN):
        return PLAIN[kind]
    if kind == len(PLAIN):
        symbols = draw(st.lists(st.sampled_from(["A", "B", "C", "D"]), min_size=1, unique=True))
        return {"type": "enum", "name": names(), "symbols": symbols}, st.sampled_from(symbols)
    if kind == len(PLAIN) + 1:
        size = draw(st.integers(0, 20))
        return {"type": "fixed", "name": names(), "size": size}, st.binary(min_size=size, max_size=size)
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    logical = {"logicalType": "decimal", "precision": precision, "scale": scale}
    if kind == len(PLAIN) + 2:
        return {"type": "bytes", **logical}, decimals(precision, scale)
    least = math.ceil((precision / math.log10(2) + 1) / 8)  # a bit of it is the sign
    size = draw(st.integers(17 if precision == 38 else least, 20))
    return {"type": "fixed", "name": names(), "size": size, **logical}, decimals(precision, scale)


@st.composite
def types(draw: st.DrawFn, names: Callable[[], str], depth: int = 2) -> Typed:
    what = draw(st.integers(0, 6)) if depth else 0
    if what == 0 or what > 4:
        return draw(scalars(names))
    inner, values = draw(types(names, depth - 1))
    if what == 1:
        if isinstance(inner, list):
            return inner, values
        optional = ["null", inner] if draw(st.booleans()) else [inner, "null"]
        return optional, st.none() | values
    if what == 2:
        return {"type": "array", "items": inner}, st.lists(values, max_size=4)
    if what == 3:
        return {"type": "map", "values": inner}, st.dictionaries(st.text(max_size=3), values, max_size=3).map(Map)
    other, others = draw(types(names, depth - 1))
    return record(names(), x=inner, y=other), st.fixed_dictionaries({"x": values, "y": others})


@st.composite
def schemas(draw: st.DrawFn) -> Typed:
    """A record's schema, and rows of it."""
    count = iter(range(1000))
    fields = draw(st.lists(types(lambda: f"N{next(count)}"), min_size=1, max_size=5))
    named = {f"f{i}": schema for i, (schema, _) in enumerate(fields)}
    return record(**named), st.fixed_dictionaries({f"f{i}": rows for i, (_, rows) in enumerate(fields)})
