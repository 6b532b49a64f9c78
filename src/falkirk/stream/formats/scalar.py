"""Formats of one column: text, bytes, and numbers as Java's serializers write them.

    Text      UTF-8                         StringSerializer
    Raw       the bytes themselves          ByteArraySerializer
    Int64BE   8 bytes, big-endian           LongSerializer        (Int32BE: Integer, Int16BE: Short)
    Float64BE 8 bytes, big-endian IEEE 754  DoubleSerializer      (Float32BE: Float)

Each is a format of values, `fk.Int64BE("count")`, and of keys, `fk.Key("id", fk.Int64BE)`. A null is written as a null.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import polars as pl

from falkirk.blame import user_line
from falkirk.errors import DefinitionError
from falkirk.stream.formats.base import Decoded
from falkirk.stream.formats.rows import Row
from falkirk.stream.formats.types import type_name


class Scalar(ABC):
    """One column, named "value" unless `column` says otherwise.

    >>> counts = Int64BE("n")
    >>> counts.encode(pl.DataFrame({"n": [1, None]}))
    [b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01', None]
    >>> counts.decode([b"\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01", b"one", None]).bad
    [(1, '3 bytes, where Int64BE has 8'), (2, 'null value')]
    """

    dtype: ClassVar[pl.DataType]

    def __init__(self, column: str = "value") -> None:
        if not isinstance(column, str):
            raise DefinitionError(
                f"{column!r} is not a column name", where=user_line(), hint=f'write fk.{type(self).__name__}("name")'
            )
        self.column = column

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.column!r})"

    @property
    def schema(self) -> pl.Schema:
        """The column."""
        return pl.Schema({self.column: self.dtype})

    def project(self, columns: Sequence[str]) -> Scalar:
        """The format itself, because it has one column. Raises DefinitionError for another column.

        >>> Int64BE("n").project(["n"])
        Int64BE('n')
        """
        if unknown := [c for c in columns if c != self.column]:
            raise DefinitionError(f"no column {unknown[0]!r} in {self!r}", hint=f"it has {self.column}")
        return self

    def decode(self, values: Sequence[bytes | None]) -> Decoded[Row]:
        """A row for each value that can be read; for each of the others, its index and the reason.

        >>> Int64BE("n").decode([b"\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x07", None])
        Decoded(frame=shape: (1, 1)
        ┌─────┐
        │ n   │
        │ --- │
        │ i64 │
        ╞═════╡
        │ 7   │
        └─────┘, bad=[(1, 'null value')])
        """
        series, bad = self.read(values)
        bad += [(i, "null value") for i, value in enumerate(values) if value is None]
        if bad:
            wrong = {i for i, _ in bad}
            series = series.gather([i for i in range(len(values)) if i not in wrong])
        return Decoded(series.alias(self.column).to_frame(), sorted(bad))

    def encode(self, frame: pl.DataFrame) -> list[bytes | None]:
        """The bytes of the column's values; None for a null. Other columns are not written.

        Raises DefinitionError if the column does not exist or does not fit.

        >>> Int16BE("n").encode(pl.DataFrame({"n": [7, None]}))
        [b'\\x00\\x07', None]
        """
        if self.column not in frame.columns:
            raise DefinitionError(
                f"no column {self.column!r} among {', '.join(frame.columns)}",
                hint=f'name the one to write: fk.{type(self).__name__}("...")',
            )
        return self.write(frame[self.column])

    @abstractmethod
    def read(self, values: Sequence[bytes | None]) -> tuple[pl.Series, list[tuple[int, str]]]:
        """A series as long as `values`, null where they are or cannot be read; (index, reason) for the latter."""

    @abstractmethod
    def write(self, series: pl.Series) -> list[bytes | None]:
        """The bytes of each value. Raises DefinitionError when the type is another, or a value does not fit."""

    def _unfit(self, series: pl.Series) -> DefinitionError:
        return DefinitionError(
            f"column {series.name!r} is {type_name(series.dtype)}, which {type(self).__name__} cannot write",
            hint="cast it before it is written",
        )


class Text(Scalar):
    """UTF-8 text, in one column: "value", unless another is named.

    >>> Text("line").decode([b"caf\\xc3\\xa9", b"\\xff"])
    Decoded(frame=shape: (1, 1)
    ┌──────┐
    │ line │
    │ ---  │
    │ str  │
    ╞══════╡
    │ café │
    └──────┘, bad=[(1, 'not UTF-8: invalid start byte at byte 0')])
    """

    dtype = pl.String()

    def read(self, values: Sequence[bytes | None]) -> tuple[pl.Series, list[tuple[int, str]]]:
        """See `Scalar.read`.

        >>> Text().read([b"\\xff"])[1]
        [(0, 'not UTF-8: invalid start byte at byte 0')]
        """
        texts: list[str | None] = []
        bad: list[tuple[int, str]] = []
        for i, value in enumerate(values):
            try:
                texts.append(None if value is None else value.decode())
            except UnicodeDecodeError as error:
                texts.append(None)
                bad.append((i, f"not UTF-8: {error.reason} at byte {error.start}"))
        return pl.Series(texts, dtype=pl.String), bad

    def write(self, series: pl.Series) -> list[bytes | None]:
        """See `Scalar.write`.

        >>> Text().write(pl.Series(["café"]))
        [b'caf\\xc3\\xa9']
        """
        if not isinstance(series.dtype, (pl.String, pl.Categorical, pl.Enum)):
            raise self._unfit(series)
        return series.cast(pl.String).cast(pl.Binary).to_list()


class Raw(Scalar):
    """The bytes as they are, in one column: "value", unless another is named.

    >>> Raw().decode([b"\\x00"]).frame.item()
    b'\\x00'
    """

    dtype = pl.Binary()

    def read(self, values: Sequence[bytes | None]) -> tuple[pl.Series, list[tuple[int, str]]]:
        """See `Scalar.read`.

        >>> Raw().read([b"a", None])[0].to_list()
        [b'a', None]
        """
        return pl.Series(values, dtype=pl.Binary), []

    def write(self, series: pl.Series) -> list[bytes | None]:
        """See `Scalar.write`.

        >>> Raw().write(pl.Series([b"a", None]))
        [b'a', None]
        """
        if series.dtype != pl.Binary:
            raise self._unfit(series)
        return series.to_list()


class _Number(Scalar):
    """A number of fixed width, big-endian."""

    code: ClassVar[str]
    """NumPy's name for it."""

    def read(self, values: Sequence[bytes | None]) -> tuple[pl.Series, list[tuple[int, str]]]:
        """See `Scalar.read`.

        >>> Int16BE().read([b"\\x00\\x07", b"7"])[1]
        [(1, '1 bytes, where Int16BE has 2')]
        """
        width = np.dtype(self.code).itemsize
        bad = [
            (i, f"{len(value)} bytes, where {type(self).__name__} has {width}")
            for i, value in enumerate(values)
            if value is not None and len(value) != width
        ]
        zero = bytes(width)
        whole = [value if value is not None and len(value) == width else zero for value in values]
        series = pl.Series(np.frombuffer(b"".join(whole), self.code), dtype=self.dtype)
        absent = [i for i, value in enumerate(values) if value is None or len(value) != width]
        return (series.scatter(absent, None) if absent else series), bad

    def write(self, series: pl.Series) -> list[bytes | None]:
        """See `Scalar.write`.

        >>> Int16BE().write(pl.Series([70_000]))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        falkirk.errors.DefinitionError: column '' holds a number that does not fit Int16BE
        ...
        """
        if not (series.dtype.is_integer() or (self.dtype.is_float() and series.dtype.is_float())):
            raise self._unfit(series)
        try:
            exact = series.cast(self.dtype)
        except pl.exceptions.InvalidOperationError:
            raise DefinitionError(
                f"column {series.name!r} holds a number that does not fit {type(self).__name__}",
                hint="use a wider format, or filter the rows",
            ) from None
        numbers = exact.fill_null(0).to_numpy().astype(self.code)
        written: list[bytes | None] = numbers.view(f"V{numbers.dtype.itemsize}").tolist()
        for i in exact.is_null().arg_true():
            written[i] = None
        return written


class Int64BE(_Number):
    """Java's long: 8 bytes, big-endian.

    >>> Int64BE("n").encode(pl.DataFrame({"n": [7]}))
    [b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x07']
    """

    dtype, code = pl.Int64(), ">i8"


class Int32BE(_Number):
    """Java's int: 4 bytes, big-endian.

    >>> Int32BE("n").encode(pl.DataFrame({"n": [7]}))
    [b'\\x00\\x00\\x00\\x07']
    """

    dtype, code = pl.Int32(), ">i4"


class Int16BE(_Number):
    """Java's short: 2 bytes, big-endian.

    >>> Int16BE("n").encode(pl.DataFrame({"n": [7]}))
    [b'\\x00\\x07']
    """

    dtype, code = pl.Int16(), ">i2"


class Float64BE(_Number):
    """Java's double: 8 bytes, big-endian IEEE 754.

    >>> Float64BE("x").encode(pl.DataFrame({"x": [1.0]}))
    [b'?\\xf0\\x00\\x00\\x00\\x00\\x00\\x00']
    """

    dtype, code = pl.Float64(), ">f8"


class Float32BE(_Number):
    """Java's float: 4 bytes, big-endian IEEE 754.

    >>> Float32BE("x").encode(pl.DataFrame({"x": [1.0]}))
    [b'?\\x80\\x00\\x00']
    """

    dtype, code = pl.Float32(), ">f4"
