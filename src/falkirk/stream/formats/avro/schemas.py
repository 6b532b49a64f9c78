"""Avro's schemas, and the columns that they mean.

    Avro                                column
    boolean, int, long, float, double   Boolean, Int32, Int64, Float32, Float64
    string, an enum, a uuid as text     String
    bytes, a fixed                      Binary
    decimal, up to 38 digits            Decimal
    date                                Date
    timestamp-millis, timestamp-micros  Datetime, DatetimeMicros
    a record, an array                  Struct, List
    a map                               List(Struct({key, value}))
    null and one of these               that: every column may hold nulls
    another logical type                what it is made of

A union of more, a type that holds itself, a decimal of more digits: no column. Such fields are passed over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl

from falkirk.blame import in_brief
from falkirk.errors import ConfigError, DefinitionError
from falkirk.stream.formats.types import instance, type_name

MILLIS, MICROS = pl.Datetime("ms", "UTC"), pl.Datetime("us", "UTC")
DIGITS = 38
"""Decimals of more are no column."""

PLAIN: dict[str, pl.DataType] = {
    "boolean": pl.Boolean(),
    "int": pl.Int32(),
    "long": pl.Int64(),
    "float": pl.Float32(),
    "double": pl.Float64(),
    "bytes": pl.Binary(),
    "string": pl.String(),
}
_LOGICAL: dict[tuple[str, str], pl.DataType] = {
    ("int", "date"): pl.Date(),
    ("long", "timestamp-millis"): MILLIS,
    ("long", "timestamp-micros"): MICROS,
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a reader wants of a value."""

    dtype: pl.DataType
    nullable: bool = True
    fields: Mapping[str, WantedField] = field(default_factory=dict)
    """Of a struct; of a map's pairs."""
    item: Wanted | None = None
    """Of a list."""
    is_map: bool = False
    """Whether a list is of a map's pairs."""
    symbols: frozenset[str] | None = None
    """Of an enum; None: any text."""
    otherwise: str | None = None
    """What symbols become that are none of these."""


NO_DEFAULT: Any = object()


@dataclass(frozen=True, slots=True)
class WantedField:
    """A field of a record, to a reader."""

    wanted: Wanted
    aliases: tuple[str, ...] = ()
    default: Any = None
    """As in the schema's JSON; NO_DEFAULT: the writer must have it."""


@dataclass(frozen=True)
class AvroSchema:
    """A schema of records, with the types that it names."""

    text: str
    """As JSON."""
    references: tuple[str, ...] = ()
    """Schemas of types that it names and does not define, each before those that name it."""

    @cached_property
    def _parsed(self) -> tuple[Any, Mapping[str, Any]]:
        named: dict[str, Any] = {}
        for text in self.references:
            fastavro().parse_schema(json.loads(text), named)
        return fastavro().parse_schema(json.loads(self.text), named), named

    @property
    def root(self) -> Any:
        """As fastavro has parsed it: names are full, and refer to `named`."""
        return self._parsed[0]

    @property
    def named(self) -> Mapping[str, Any]:
        """Types by their full names."""
        return self._parsed[1]

    @cached_property
    def columns(self) -> Mapping[str, WantedField]:
        """The fields that can be columns."""
        return fields_wanted(self.root, self.named, (self.root["name"],))

    def __getstate__(self) -> dict[str, Any]:
        return {"text": self.text, "references": self.references}


def fastavro() -> ModuleType:
    """The library. Raises ConfigError where it is not installed."""
    try:
        import fastavro as library
        import fastavro.schema
    except ModuleNotFoundError:
        raise ConfigError("Avro needs fastavro, which is not installed", hint="pip install 'falkirk[avro]'") from None
    found: ModuleType = library
    return found


def schema_from(given: Any) -> AvroSchema:
    """A schema from a file's name, its text, or the dict that it is. Raises DefinitionError.

    >>> list(schema_from({"type": "record", "name": "Bid", "fields": [{"name": "price", "type": "long"}]}).columns)
    ['price']
    """
    where = ""
    if isinstance(given, str) and given.lstrip().startswith("{"):
        text = given
    elif isinstance(given, str | Path):
        where = f"file {given}"
        try:
            text = Path(given).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DefinitionError(f"an Avro schema cannot be read: {error}", hint="name an .avsc file") from None
    else:
        text = json.dumps(given)
    schema = checked(AvroSchema(text), where)
    if not schema.columns:
        raise DefinitionError("an Avro schema without a field that can be a column", where=where)
    return schema


def checked(schema: AvroSchema, where: str = "") -> AvroSchema:
    """The schema, or DefinitionError where it is none, or is not of records."""
    library = fastavro()
    try:
        root = schema.root
    except json.JSONDecodeError as error:
        raise DefinitionError(f"an Avro schema is not JSON: {error}", where=where) from None
    except (
        library.schema.SchemaParseException, library.schema.UnknownType, AttributeError, KeyError, TypeError, ValueError,
    ) as error:  # fmt: skip
        raise DefinitionError(f"this is not an Avro schema: {in_brief(error)}", where=where) from None
    if kind_of(root) != "record":
        raise DefinitionError(
            f"an Avro schema of {kind_of(root)!r} has no columns", where=where, hint='give one of type "record"'
        )
    return schema


def kind_of(schema: Any) -> str:
    """The word for it: "long", "record", "union", …, or the name of a type."""
    if isinstance(schema, list):
        return "union"
    kind: str = schema["type"] if isinstance(schema, Mapping) else schema
    return kind


def logical_of(schema: Any) -> str:
    """Its logical type; "" if it has none."""
    return str(schema.get("logicalType", "")) if isinstance(schema, Mapping) else ""


def decimal_of(schema: Any) -> pl.Decimal | None:
    """The type of a decimal, if it is one that can be a column."""
    if logical_of(schema) == "decimal" and kind_of(schema) in ("bytes", "fixed"):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if (
            isinstance(precision, int)
            and isinstance(scale, int)
            and 0 < precision <= DIGITS
            and 0 <= scale <= precision
        ):
            return pl.Decimal(precision, scale)
    return None


def is_null(schema: Any) -> bool:
    """Whether it is the type of nothing."""
    return not isinstance(schema, list) and kind_of(schema) == "null"


def wanted_of(schema: Any, named: Mapping[str, Any], within: tuple[str, ...] = ()) -> Wanted | None:
    """What a reader's schema wants; None: it is not a column. `within` are the types that it is part of."""
    kind = kind_of(schema)
    if kind in named and kind not in PLAIN:
        return None if kind in within else wanted_of(named[kind], named, within)
    if kind == "union":
        rest = [branch for branch in schema if not is_null(branch)]
        inner = wanted_of(rest[0], named, within) if len(rest) == 1 else None
        return inner and replace(inner, nullable=len(rest) < len(schema))
    if kind == "record":
        if schema["name"] in within:
            return None
        fields = fields_wanted(schema, named, (*within, schema["name"]))
        return Wanted(_struct(fields), False, fields) if fields else None
    if kind in ("array", "map"):
        item = wanted_of(schema["items" if kind == "array" else "values"], named, within)
        if item is not None and kind == "map":
            item = pair_wanted(item)
        return item and Wanted(pl.List(item.dtype), False, item=item, is_map=kind == "map")
    if kind == "enum":
        return Wanted(pl.String(), False, symbols=frozenset(schema["symbols"]), otherwise=schema.get("default"))
    if logical_of(schema) == "decimal" and (kind == "fixed" or kind == "bytes"):
        decimal = decimal_of(schema)
        return None if decimal is None else Wanted(decimal, False)
    if kind == "fixed":
        return Wanted(pl.Binary(), False)
    found = _LOGICAL.get((kind, logical_of(schema)), PLAIN.get(kind))
    return None if found is None else Wanted(found, False)


def fields_wanted(record: Any, named: Mapping[str, Any], within: tuple[str, ...]) -> dict[str, WantedField]:
    """The fields of a record that can be columns."""
    found = {}
    aliases = _aliases(record)
    for each in record["fields"]:
        if (wanted := wanted_of(each["type"], named, within)) is not None:
            default = each.get("default", NO_DEFAULT)
            _check_default(each["name"], default, wanted)
            found[each["name"]] = WantedField(wanted, aliases[each["name"]], default)
    return found


def _aliases(record: Any) -> dict[str, tuple[str, ...]]:
    """The former names of each field, by which it is found. A name that is a field's own now is that field's. Raises
    DefinitionError if two fields have the same."""
    known, found = {each["name"] for each in record["fields"]}, dict[str, tuple[str, ...]]()
    whose: dict[str, str] = {}
    for each in record["fields"]:
        name, given = each["name"], [alias for alias in each.get("aliases", ()) if alias not in known]
        if twice := [alias for alias in given if whose.setdefault(alias, name) != name]:
            raise DefinitionError(f"fields {whose[twice[0]]!r} and {name!r} both have the alias {twice[0]!r}")
        found[name] = tuple(given)
    return found


def _check_default(name: str, default: Any, wanted: Wanted) -> None:
    """Raises DefinitionError for a default that is no value of the column. The library checks only what JSON can say."""
    if default is NO_DEFAULT:
        return
    try:
        pl.Series([literal(default, wanted)], dtype=wanted.dtype)
        known = wanted.symbols is None or default is None or default in wanted.symbols
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, pl.exceptions.PolarsError):
        known = False
    if not known:
        raise DefinitionError(f"field {name!r}: its default {default!r} is not {type_name(wanted.dtype)}")


def pair_wanted(value: Wanted) -> Wanted:
    """A map's pair."""
    fields = {"key": WantedField(Wanted(pl.String(), False)), "value": WantedField(value)}
    return Wanted(_struct(fields), False, fields)


def wanted_as(dtype: pl.DataType) -> Wanted:
    """What a reader wants who names a column's type alone."""
    if isinstance(dtype, pl.Struct):
        fields = {f.name: WantedField(wanted_as(instance(f.dtype))) for f in dtype.fields}
        return Wanted(dtype, True, fields)
    if isinstance(dtype, pl.List):
        return Wanted(dtype, True, item=wanted_as(instance(dtype.inner)))
    return Wanted(dtype)


def literal(given: Any, wanted: Wanted) -> Any:
    """A default, as a schema's JSON writes it, as a value of the column."""
    if given is None:
        return None
    dtype = wanted.dtype
    if wanted.item is not None:
        pairs = [{"key": k, "value": v} for k, v in given.items()] if isinstance(given, Mapping) else given
        return [literal(value, wanted.item) for value in pairs]
    if wanted.fields:
        return {
            name: literal(given[name] if name in given or f.default is NO_DEFAULT else f.default, f.wanted)
            for name, f in wanted.fields.items()
        }
    if isinstance(dtype, pl.Decimal):
        number = int.from_bytes(given.encode("latin-1"), "big", signed=True)
        return Decimal(number).scaleb(-dtype.scale)
    if dtype == pl.Binary():
        return given.encode("latin-1")
    if dtype == pl.Date():
        return date(1970, 1, 1) + timedelta(days=given)
    if isinstance(dtype, pl.Datetime):
        per = {"ms": 1000, "us": 1}[dtype.time_unit]
        return datetime.fromisoformat("1970-01-01T00:00:00+00:00") + timedelta(microseconds=given * per)
    return given


def avro_of(columns: Mapping[str, pl.DataType], name: str) -> dict[str, Any]:
    """The schema that columns are written by: of each field null, which is its default, or a value.

    >>> avro_of({"n": pl.Int64()}, "Stats")["fields"]
    [{'name': 'n', 'type': ['null', 'long'], 'default': None}]
    """
    fields = [
        {"name": column, "type": ["null", _avro_type(dtype, f"{name}_{column}", column)], "default": None}
        for column, dtype in columns.items()
    ]
    return {"type": "record", "name": name, "fields": fields}


_WRITTEN: dict[pl.DataType, Any] = {
    **{dtype: kind for kind, dtype in PLAIN.items()},
    **dict.fromkeys((pl.Int8(), pl.Int16(), pl.UInt8(), pl.UInt16()), "int"),
    pl.UInt32(): "long",
    **{dtype: {"type": kind, "logicalType": logical} for (kind, logical), dtype in _LOGICAL.items()},
}


def _avro_type(dtype: pl.DataType, name: str, column: str) -> Any:
    if isinstance(dtype, pl.Struct):
        return avro_of({f.name: instance(f.dtype) for f in dtype.fields}, name.rpartition(".")[2])
    if isinstance(dtype, pl.List):
        return {"type": "array", "items": ["null", _avro_type(instance(dtype.inner), name, column)]}
    if isinstance(dtype, pl.Decimal):
        return {"type": "bytes", "logicalType": "decimal", "precision": dtype.precision, "scale": dtype.scale}
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return "string"
    if dtype not in _WRITTEN:
        raise DefinitionError(
            f"column {column!r} is {type_name(dtype)}, for which Avro has no type",
            hint="cast it before the sink, or give the sink a schema",
        )
    return _WRITTEN[dtype]


def _struct(fields: Mapping[str, WantedField]) -> pl.Struct:
    return pl.Struct({name: f.wanted.dtype for name, f in fields.items()})
