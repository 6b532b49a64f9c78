"""A writer's schema and what a reader wants, brought together: by names, as Avro's rules have it, and by what fits.

    writer                  column
    int, long               any integer that it fits into (else the record is bad), a float, a Date, a Datetime; but none
                            of the two if its logical type is another time
    float, double           Float64; float: Float32
    string, bytes, enum     String; bytes, fixed, string: Binary
    timestamp-millis        Datetime, DatetimeMicros; timestamp-micros: DatetimeMicros
    decimal                 Decimal of the same scale and as many digits
    a union                 whatever all of its branches can be; a branch that cannot makes the record bad

Names of records, enums and fixed need not agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

import polars as pl

from falkirk.stream.formats.avro import nodes
from falkirk.stream.formats.avro.items import Items
from falkirk.stream.formats.avro.nodes import Node
from falkirk.stream.formats.avro.schemas import (
    MILLIS,
    NO_DEFAULT,
    AvroSchema,
    Wanted,
    WantedField,
    decimal_of,
    is_null,
    kind_of,
    literal,
    logical_of,
    pair_wanted,
)
from falkirk.stream.formats.types import type_name

_INTS = {"int": (-(1 << 31), (1 << 31) - 1), "long": (-(1 << 63), (1 << 63) - 1)}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = -62_135_596_800, 253_402_300_799
"""Seconds since 1970 of years 1 and 9999: what Python has moments for."""
_PER_SECOND = {"ms": 1_000, "us": 1_000_000}
_OTHER_TIMES = {
    *("date", "time-millis", "time-micros", "timestamp-nanos"),
    *("local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos"),
}
"""Logical types of numbers that are no moments in a unit of a Datetime."""


class Unresolvable(Exception):
    """The writer's schema has no such column."""


def resolve(writer: AvroSchema, columns: Mapping[str, WantedField]) -> nodes.Record:
    """How to read the columns from what was written by a schema. Raises Unresolvable, with the reason.

    >>> from falkirk.stream.formats.avro.schemas import schema_from
    >>> writer = schema_from({"type": "record", "name": "Bid", "fields": [{"name": "price", "type": "string"}]})
    >>> resolve(writer, {"price": WantedField(Wanted(pl.Int64()))})
    Traceback (most recent call last):
    falkirk.stream.formats.avro.resolve.Unresolvable: field 'price': the writer has string, which does not fit Int64
    """
    return _Resolver(writer.named).record(writer.root, columns, "")


class _Resolver:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._within: list[str] = []

    def record(self, writer: Any, columns: Mapping[str, WantedField], where: str) -> nodes.Record:
        names = {f["name"]: f for f in writer["fields"]}
        taken: dict[str, str] = {}
        missing: dict[str, pl.Series] = {}
        for column, each in columns.items():
            found = next((name for name in (column, *each.aliases) if name in names), None)
            if found is not None:
                taken[found] = column
            elif each.default is NO_DEFAULT:
                raise Unresolvable(f"field {_inner(where, column)!r}: the writer has none, and there is no default")
            else:
                missing[column] = pl.Series([literal(each.default, each.wanted)], dtype=each.wanted.dtype)
        fields: list[tuple[str | None, Node]] = []
        self._within.append(writer["name"])
        try:
            for name, each in names.items():
                here = taken.get(name)
                wanted = None if here is None else columns[here].wanted
                fields.append((here, self.node(each["type"], wanted, _inner(where, name))))
        finally:
            # A union passes over a branch that does not fit, and this is not within it then.
            self._within.pop()
        return nodes.Record(fields, missing, list(columns))

    def node(self, writer: Any, wanted: Wanted | None, where: str) -> Node:
        """What reads a value; without `wanted`, what passes over it."""
        kind = kind_of(writer)
        if kind in self._named and kind not in ("record", "enum", "fixed"):
            if kind in self._within:
                raise Unresolvable(f"field {where!r}: {kind} contains itself, which is not supported")
            return self.node(self._named[kind], wanted, where)
        read = {
            "union": self._union,
            "null": self._null,
            "boolean": self._boolean,
            "int": self._number,
            "long": self._number,
            "float": self._float,
            "double": self._float,
            "enum": self._enum,
            "record": self._record,
            "array": self._items,
            "map": self._items,
        }
        return read.get(kind, self._bytes)(writer, wanted, where)

    def _record(self, writer: Any, wanted: Wanted | None, where: str) -> Node:
        if wanted is not None and not wanted.fields:
            raise _unfit(where, writer, wanted)
        if writer["name"] in self._within:
            raise Unresolvable(f"field {where!r}: {writer['name']} contains itself, which is not supported")
        return self.record(writer, wanted.fields if wanted else {}, where)

    def _null(self, writer: Any, wanted: Wanted | None, where: str) -> Node:
        if wanted is not None:
            raise _unfit(where, writer, wanted)
        return nodes.Nothing(pl.Null())

    def _boolean(self, writer: Any, wanted: Wanted | None, where: str) -> Node:
        self._is(wanted, where, writer, pl.Boolean())
        return nodes.Boolean(where)

    def _float(self, writer: Any, wanted: Wanted | None, where: str) -> Node:
        single = kind_of(writer) == "float"
        self._is(wanted, where, writer, pl.Float64(), *([pl.Float32()] if single else []))
        return nodes.Float(where, wanted.dtype if wanted else pl.Float64(), 4 if single else 8)

    def _union(self, writer: Any, wanted: Wanted | None, where: str) -> Node:
        if wanted is None:
            return nodes.Union(where, pl.Null(), [self.node(branch, None, where) for branch in writer])
        branches: list[Node] = []
        failed: list[Unresolvable] = []
        for branch in writer:
            if is_null(branch):
                nothing = nodes.Nothing(wanted.dtype)
                refused = nodes.Refused(where, wanted.dtype, "null, which the reader's schema does not allow", nothing)
                branches.append(nothing if wanted.nullable else refused)
                continue
            try:
                branches.append(self.node(branch, wanted, where))
            except Unresolvable as error:
                failed.append(error)
                said = str(error).partition(": ")[2]
                branches.append(nodes.Refused(where, wanted.dtype, said, self.node(branch, None, where)))
        if len(failed) == len([branch for branch in writer if not is_null(branch)]) and failed:
            raise failed[0]
        return nodes.Union(where, wanted.dtype, branches)

    def _number(self, writer: Any, wanted: Wanted | None, where: str) -> Node:
        low, high = _INTS[kind_of(writer)]
        if wanted is None:
            return nodes.Number(where, pl.Int64(), low, high)
        dtype, factor = wanted.dtype, 1
        if dtype.is_integer():
            least, most = pl.select(least=dtype.min(), most=dtype.max()).row(0)  # type: ignore[attr-defined]
            low, high = max(low, least), min(high, most)
        elif isinstance(dtype, pl.Datetime):
            unit = {"timestamp-millis": "ms", "timestamp-micros": "us"}.get(logical_of(writer), dtype.time_unit)
            if logical_of(writer) in _OTHER_TIMES or (dtype == MILLIS and unit == "us"):
                raise _unfit(where, writer, wanted)
            factor = _PER_SECOND[dtype.time_unit] // _PER_SECOND[unit]
            low, high = max(low, _FIRST * _PER_SECOND[unit]), min(high, (_LAST + 1) * _PER_SECOND[unit] - 1)
        elif dtype == pl.Date() and logical_of(writer) in ("", "date"):
            low, high = (date(1, 1, 1) - _EPOCH.date()).days, (date(9999, 12, 31) - _EPOCH.date()).days
        elif not dtype.is_float():
            raise _unfit(where, writer, wanted)
        return nodes.Number(where, dtype, low, high, factor)

    def _enum(self, writer: Any, wanted: Wanted | None, where: str) -> Node:
        self._is(wanted, where, writer, pl.String())
        symbols: list[str] = writer["symbols"]
        if wanted is None or wanted.symbols is None:
            return nodes.Symbol(where, symbols, symbols)
        known = wanted.symbols
        return nodes.Symbol(where, symbols, [s if s in known else wanted.otherwise for s in symbols])

    def _items(self, writer: Any, wanted: Wanted | None, where: str) -> Node:
        is_map = kind_of(writer) == "map"
        if wanted is not None and (wanted.item is None or (is_map and list(wanted.item.fields) != ["key", "value"])):
            raise _unfit(where, writer, wanted)
        item = wanted.item if wanted else None
        if not is_map:
            return Items(where, self.node(writer["items"], item, f"{where}[]"))
        value = item.fields["value"].wanted if item else None
        pair = [
            ("key" if item else None, nodes.Bytes(f"{where}.key", pl.String())),
            ("value" if item else None, self.node(writer["values"], value, f"{where}.value")),
        ]
        return Items(where, nodes.Record(pair, {}, list(pair_wanted(value).fields) if value else []))

    def _bytes(self, writer: Any, wanted: Wanted | None, where: str) -> Node:
        size = writer["size"] if kind_of(writer) == "fixed" else None
        if wanted is None:
            return nodes.Bytes(where, pl.Binary(), size)
        decimal = decimal_of(writer)
        if isinstance(wanted.dtype, pl.Decimal):
            if decimal is None or decimal.scale != wanted.dtype.scale or decimal.precision > wanted.dtype.precision:
                raise _unfit(where, writer, wanted)
        else:
            self._is(wanted, where, writer, pl.Binary(), *([pl.String()] if size is None and decimal is None else []))
        return nodes.Bytes(where, wanted.dtype, size)

    @staticmethod
    def _is(wanted: Wanted | None, where: str, writer: Any, *dtypes: pl.DataType) -> None:
        if wanted is not None and (
            wanted.dtype not in dtypes or (wanted.symbols is not None and kind_of(writer) != "enum")
        ):
            raise _unfit(where, writer, wanted)


def _unfit(where: str, writer: Any, wanted: Wanted) -> Unresolvable:
    kind = kind_of(writer)
    more = logical_of(writer)
    if more == "decimal":
        more = f"decimal({writer['precision']}, {writer.get('scale', 0)})"
    said = f"{kind} ({more})" if more else kind
    return Unresolvable(f"field {where!r}: the writer has {said}, which does not fit {type_name(wanted.dtype)}")


def _inner(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
