"""How the keys of records are written.

    key                       bytes
    "id"                      the value as text: b"17", b"true", b"a b", b"2026-01-31T12:00:00.000Z"; a Binary as it is
    ["route", "carrier"]      a JSON array: b'["AMS-LHR","KL"]'
    Key("id", Int64BE)        as the format writes it
    Key("id", Json)           a JSON object: b'{"id":17}'; of several columns too, in their order

Equal values have equal bytes, so that they meet in one partition: −0.0 is written as 0.0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from typing import TypeAlias

import orjson
import polars as pl

from falkirk.blame import user_line
from falkirk.errors import DefinitionError
from falkirk.stream.formats import fields, ndjson
from falkirk.stream.formats.base import Decoded
from falkirk.stream.formats.json import Json
from falkirk.stream.formats.scalar import Raw, Scalar, Text
from falkirk.stream.formats.types import type_name


class Key:
    """The columns of a record's key, and how they are written: one as text, several as a JSON array, or as a format
    says.

    >>> frame = pl.DataFrame({"id": [17, None], "name": ["a", "b"]})
    >>> Key("id").encode(frame)
    [b'17', None]
    >>> Key(["id", "name"]).encode(frame)
    [b'[17,"a"]', b'[null,"b"]']
    >>> Key(["id", "name"], Json).encode(frame)
    [b'{"id":17,"name":"a"}', b'{"id":null,"name":"b"}']
    """

    def __init__(self, columns: str | Sequence[str], scalar: Scalar | type[Scalar] | type[Json] | None = None) -> None:
        """`scalar` is the format of a single column, for example `fk.Int64BE`. `fk.Json` writes an object, of one
        column or several, as Debezium and ksqlDB do.

        Raises DefinitionError if there is no column, if one is named twice, or for another format of several columns.
        """
        if not isinstance(columns, str | Sequence):
            raise DefinitionError(
                f"key={columns!r} is not a column name",
                where=user_line(),
                hint='name one, "id", or several: ["id", "day"]',
            )
        self.array = not isinstance(columns, str)
        self.columns: tuple[str, ...] = (columns,) if isinstance(columns, str) else tuple(columns)
        if not self.columns or len(set(self.columns)) != len(self.columns):
            raise DefinitionError(
                f"a key needs columns, each once, not {list(self.columns)!r}",
                where=user_line(),
                hint='name one, "id", or several: ["id", "day"]',
            )
        self.format: Scalar | None = None
        self.fields: tuple[str, ...] = ()
        """Of an object, its fields' names."""
        if isinstance(scalar, Json):
            raise DefinitionError(
                "a key's JSON has its columns for fields, and no schema of its own",
                where=user_line(),
                hint="leave it out: fk.Key(…, fk.Json)",
            )
        if isinstance(scalar, type) and issubclass(scalar, Json):
            self.fields = self.columns
        elif scalar is not None and not issubclass(scalar if isinstance(scalar, type) else type(scalar), Scalar):
            raise DefinitionError(
                f"{scalar!r} is not a key format",
                where=user_line(),
                hint=f'leave it out, and the key is the value as text; or write fk.Key("{self.columns[0]}", fk.Int64BE)',
            )
        elif self.array and scalar is not None:
            raise DefinitionError(
                f"{scalar!r} writes one column, not {list(self.columns)!r}",
                where=user_line(),
                hint="leave the format out, or say fk.Json",
            )
        else:
            self.format = scalar(self.columns[0]) if isinstance(scalar, type) else scalar

    def __repr__(self) -> str:
        words = [repr(list(self.columns) if self.array else self.columns[0])]
        if self.format is not None:
            words.append(type(self.format).__name__)
        if self.fields:
            words.append("Json" if self.fields == self.columns else f"Json of {', '.join(self.fields)}")
        return f"Key({', '.join(words)})"

    def over(self, columns: Sequence[str]) -> Key:
        """The same key of other columns: what is equal has equal bytes, whatever the columns are called.

        >>> Key("id", Json).over(["carrier"]).encode(pl.DataFrame({"carrier": ["KL"]}))
        [b'{"id":"KL"}']
        """
        other = copy(self)
        other.columns = tuple(columns)
        return other

    def encode(self, frame: pl.DataFrame) -> list[bytes | None]:
        """The key of each row; None for a null. Raises DefinitionError for a missing column, or for a type that has no
        text.

        >>> Key("id").encode(pl.DataFrame({"id": [17]}))
        [b'17']
        """
        if missing := [c for c in self.columns if c not in frame.columns]:
            raise DefinitionError(f"no column {missing[0]!r} for the key", hint=f"there are {', '.join(frame.columns)}")
        series = [frame[name] for name in self.columns]
        if self.format is not None:
            return self.format.write(_one_zero(series[0]) if series[0].dtype.is_float() else series[0])
        if self.fields:
            return self._objects(series)
        if not self.array:
            return _text(series[0])
        if all(s.dtype.is_integer() for s in series):
            return _integers(series)
        parts = [_json(s) for s in series]
        return [b"[" + b",".join(row) + b"]" for row in zip(*parts, strict=True)]

    def _objects(self, series: Sequence[pl.Series]) -> list[bytes | None]:
        names = [orjson.dumps(name) + b":" for name in self.fields]
        parts = [[name + value for value in _json(s)] for name, s in zip(names, series, strict=True)]
        objects: list[bytes | None] = [b"{" + b",".join(row) + b"}" for row in zip(*parts, strict=True)]
        if not self.array:
            for i in series[0].is_null().arg_true():
                objects[i] = None
        return objects

    def decode(self, keys: Sequence[bytes | None], schema: Mapping[str, pl.DataType]) -> Decoded:
        """The key's columns, of the types that `schema` gives them; a null key is a row of nulls.

        A key is good only if it is what `encode` would write: encode(decode(k)) = k. Otherwise rows with one value
        could lie in two partitions.

        >>> Key("id").decode([b"17", b"017", None], {"id": pl.Int64()}).bad
        [(1, 'key is not Int64 as text: 017')]
        """
        dtypes = {name: schema[name] for name in self.columns}
        frame = self._read(keys, dtypes)
        again = self.encode(frame)
        wrong = [i for i, key in enumerate(keys) if key != again[i]]
        if not wrong:
            return Decoded(frame)
        kinds = ", ".join(type_name(dtype) for dtype in dtypes.values())
        kinds = (
            f"{{{', '.join(f'{name}: {type_name(dtype)}' for name, dtype in dtypes.items())}}} as JSON"
            if self.fields
            else f"[{kinds}] as JSON"
            if self.array
            else f"{kinds} as {type(self.format).__name__ if self.format else 'text'}"
        )
        bad = [(i, f"key is not {kinds}: {(keys[i] or b'').decode('utf-8', 'backslashreplace')[:60]}") for i in wrong]
        bad_rows = set(wrong)
        return Decoded(frame[[i for i in range(len(keys)) if i not in bad_rows]], bad)

    def _read(self, keys: Sequence[bytes | None], dtypes: Mapping[str, pl.DataType]) -> pl.DataFrame:
        """A row for each key, of nulls where it cannot be read."""
        name, dtype = next(iter(dtypes.items()))
        if self.fields:
            named = dict(zip(self.fields, dtypes.values(), strict=True))
            return _read_objects(keys, named).rename(dict(zip(self.fields, dtypes, strict=True)))
        if self.array:
            # By way of objects, for which there is a reader: [17, "a"] is read as {"id": 17, "name": "a"}.
            return _read_objects([_object(key, list(dtypes)) for key in keys], dtypes)
        if self.format is not None:
            return self.format.read(keys)[0].cast(dtype, strict=False).alias(name).to_frame()
        if dtype == pl.Binary():
            return Raw().read(keys)[0].alias(name).to_frame()
        text = Text().read(keys)[0].alias(name)
        return text.to_frame().select(_typed(pl.col(name), dtype).alias(name))


class NoColumns(Key):
    """The key of a table of one row: empty bytes, so that the record can be replaced and deleted as any other.

    >>> NoColumns().encode(pl.DataFrame({"n": [1]}))
    [b'']
    """

    def __init__(self) -> None:
        self.array, self.columns, self.format, self.fields = True, (), None, ()

    def encode(self, frame: pl.DataFrame) -> list[bytes | None]:
        """Empty bytes for each row."""
        return [b""] * frame.height


KeyLike: TypeAlias = str | Sequence[str] | Key


def key_of(spec: KeyLike) -> Key:
    """A key from a column's name, a list of names, or a Key.

    >>> key_of(["a", "b"])
    Key(['a', 'b'])
    """
    return spec if isinstance(spec, Key) else Key(spec)


def column_key(columns: Sequence[str]) -> Key:
    """The key of columns that places rows: one column is written as text, several as an array.

    >>> column_key(["a"]), column_key(["a", "b"])
    (Key('a'), Key(['a', 'b']))
    """
    return Key(columns if len(columns) > 1 else columns[0])


def _text(series: pl.Series) -> list[bytes | None]:
    dtype = series.dtype
    if dtype == pl.Binary:
        return series.to_list()
    if dtype.is_float():
        return [None if x is None else _float(x).encode() for x in series.to_list()]
    if isinstance(dtype, pl.Datetime):
        series = series.to_frame().select(fields.written(pl.col(series.name), dtype)).to_series()
    elif not (
        dtype.is_integer() or isinstance(dtype, (pl.String, pl.Boolean, pl.Date, pl.Categorical, pl.Enum, pl.Null))
    ):
        raise DefinitionError(
            f"column {series.name!r} is {type_name(dtype)}, which has no text for a key",
            hint="key by a column of scalars",
        )
    return series.cast(pl.String).cast(pl.Binary).to_list()


def _one_zero(series: pl.Series) -> pl.Series:
    """Floats that are equal as the same bits: −0.0 is 0.0, and there is one NaN."""
    return series.fill_nan(math.nan).replace(-0.0, 0.0)


def _float(x: float) -> str:
    """The shortest decimal that reads back as `x`."""
    if math.isfinite(x):
        return repr(x + 0.0)
    return "NaN" if math.isnan(x) else "Infinity" if x > 0 else "-Infinity"


def _integers(series: Sequence[pl.Series]) -> list[bytes | None]:
    """Arrays of integers, whose digits are the same everywhere: all at once."""
    texts = pl.DataFrame({str(i): s.cast(pl.String) for i, s in enumerate(series)}).select(pl.all().fill_null("null"))
    whole = texts.select("[" + pl.concat_str(pl.all(), separator=",") + "]").to_series()
    return whole.cast(pl.Binary).to_list()


def _json(series: pl.Series) -> list[bytes]:
    """Each value as a part of a JSON array. NaN and infinity become strings, so that they do not equal nulls."""
    if series.dtype.is_float():
        parts = ["null" if x is None else _float(x) if math.isfinite(x) else f'"{_float(x)}"' for x in series.to_list()]
        return [part.encode() for part in parts]
    start = len(b'{"k":')
    return [line[start:-1] for line in Json().encode(series.alias("k").to_frame())]


def _typed(e: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Text as `dtype`; null where it cannot be."""
    if dtype == pl.Boolean():
        return pl.when(e == "true").then(True).when(e == "false").then(False)
    if dtype.is_float():
        return e.replace({"Infinity": "inf", "-Infinity": "-inf"}).cast(dtype, strict=False)
    if fields.as_read(dtype) != dtype:
        return fields.converted(e, dtype)
    if isinstance(dtype, pl.Datetime):
        # One that a source cannot have: an expression gave it another zone, or took it away.
        written = "%Y-%m-%dT%H:%M:%S%.f" + ("Z" if dtype.time_zone else "")
        at = e.str.to_datetime(written, time_unit=dtype.time_unit, strict=False)
        return at.dt.replace_time_zone("UTC").dt.convert_time_zone(dtype.time_zone) if dtype.time_zone else at
    return e.cast(dtype, strict=False)


def _read_objects(keys: Sequence[bytes | None], dtypes: Mapping[str, pl.DataType]) -> pl.DataFrame:
    # Floats are read as text, which NaN and infinity are.
    decoded = ndjson.Reader({name: pl.String() if dtype.is_float() else dtype for name, dtype in dtypes.items()}).read(
        keys
    )
    unread = {i for i, _ in decoded.bad}
    rows = iter(range(decoded.frame.height))
    places = pl.Series([None if i in unread else next(rows) for i in range(len(keys))], dtype=pl.UInt32)
    return decoded.frame.select(
        (_typed(pl.col(name), dtype).alias(name) if dtype.is_float() else pl.col(name)).gather(places)
        for name, dtype in dtypes.items()
    )


def _object(key: bytes | None, names: Sequence[str]) -> bytes | None:
    try:
        parts = None if key is None else orjson.loads(key)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(parts, list) or len(parts) != len(names):
        return None
    return orjson.dumps(dict(zip(names, parts, strict=True)))
