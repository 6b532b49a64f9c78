"""Rows as dicts, and frames, whose values must fit the columns' types: a library would convert others in silence, or make
them null.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import cache
from numbers import Integral, Real
from typing import Any, TypeAlias

import polars as pl

from falkirk.stream.formats.types import fits, instance, type_name

Fit: TypeAlias = Callable[[str, Any], Any]
"""From a column's name and a value that is not null to the value as the column has it. Raises Unfit."""


class Unfit(ValueError):
    """A value that its column cannot have, in words."""


def frame_of_rows(
    rows: Sequence[Mapping[str, Any]], numbers: Sequence[int], columns: Mapping[str, Any]
) -> pl.DataFrame:
    """Rows with these columns as a frame. `numbers` are those of the rows, for the error. Raises Unfit for a value of another
    type, and what Polars raises.

    >>> frame_of_rows([{"n": 1}, {}], [1, 2], {"n": pl.Int64()}).rows()
    [(1,), (None,)]
    >>> frame_of_rows([{"n": 1.5}], [1], {"n": pl.Int64()})
    Traceback (most recent call last):
        ...
    falkirk.stream.definition.fitting.Unfit: row 1, column 'n': 1.5 is not Int64
    """
    fits = {c: fit_of(dtype) for c, dtype in columns.items()}
    made = []
    for number, row in zip(numbers, rows, strict=True):
        try:
            made.append({c: None if value is None else fits[c](c, value) for c, value in row.items()})
        except Unfit as error:
            raise Unfit(f"row {number}, {error}") from None
    return pl.DataFrame(made, schema=dict(columns), strict=True)


def frame_of_frame(given: pl.DataFrame, columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """A frame with these columns, of these types; a column that is not given is null. Raises Unfit for a type that has other
    values, and for a value that the column's type does not have.

    >>> frame_of_frame(pl.DataFrame({"n": [1, 2]}), {"n": pl.Int8(), "s": pl.String()}).rows()
    [(1, None), (2, None)]
    >>> frame_of_frame(pl.DataFrame({"n": [1.5]}), {"n": pl.Int64()})
    Traceback (most recent call last):
        ...
    falkirk.stream.definition.fitting.Unfit: column 'n' is Float64, not Int64
    """
    series = [
        _fitted(given[c], dtype) if c in given.columns else pl.Series(c, [None], dtype).new_from_index(0, given.height)
        for c, dtype in columns.items()
    ]
    return pl.DataFrame(series)


def _fitted(given: pl.Series, dtype: pl.DataType) -> pl.Series:
    if given.dtype == dtype:
        return given
    if not _has_values(given.dtype, dtype):
        raise Unfit(f"column {given.name!r} is {type_name(given.dtype)}, not {type_name(dtype)}")
    made = given.cast(dtype)
    # Floats are as near as the type comes to them. All other values must be the same.
    kept = given if given.dtype.is_float() else made.cast(given.dtype)
    lost = made.is_infinite() & given.is_finite() if given.dtype.is_float() else kept.ne_missing(given)
    for i in lost.arg_true():
        raise Unfit(f"row {i + 1}, column {given.name!r}: {str(given[i])[:80]} is not {type_name(dtype)}")
    return made


def _has_values(given: pl.DataType, wanted: pl.DataType) -> bool:
    """Whether a type can have values of the other. Spark has no unsigned integers, and no moments but of microseconds."""
    if isinstance(given, pl.List) and isinstance(wanted, pl.List):
        return _has_values(instance(given.inner), instance(wanted.inner))
    if isinstance(given, pl.Struct) and isinstance(wanted, pl.Struct):
        have = {f.name: instance(f.dtype) for f in given.fields}
        same = have.keys() == {f.name for f in wanted.fields}
        return same and all(_has_values(have[f.name], instance(f.dtype)) for f in wanted.fields)
    if isinstance(wanted, pl.Datetime):
        return isinstance(given, pl.Datetime) or given.is_integer() or given == pl.Null()
    if isinstance(given, pl.Decimal):
        return isinstance(wanted, pl.Decimal) or wanted.is_integer()
    return fits(given, wanted) or (given.is_float() and wanted.is_float())


@cache
def fit_of(dtype: pl.DataType) -> Fit:
    """What makes a Python value one of a column of this type."""
    if isinstance(dtype, pl.List):
        return _fit_list(dtype)
    if isinstance(dtype, pl.Struct):
        return _fit_struct(dtype)
    if isinstance(dtype, pl.Decimal):
        return _fit_decimal(dtype)
    if dtype.is_integer():
        return _fit_integer(dtype)
    if dtype.is_float():
        return _fit_float(dtype)
    plain: dict[pl.DataType, type] = {pl.Boolean(): bool, pl.String(): str, pl.Binary(): bytes, pl.Date(): date}
    if isinstance(dtype, pl.Datetime):
        return _as_is(dtype, datetime, int)
    return _as_is(dtype, plain[dtype]) if dtype in plain else lambda _, value: value


def _as_is(dtype: pl.DataType, *kinds: type) -> Fit:
    """A Boolean is no number, and a moment is no day."""
    others = tuple(other for other in (bool, datetime) if other not in kinds)

    def fit(name: str, value: Any) -> Any:
        if not isinstance(value, kinds) or isinstance(value, others):
            raise _unfit(name, value, dtype)
        return value

    return fit


def _fit_integer(dtype: pl.DataType) -> Fit:
    least, most = (int(pl.select(bound).item()) for bound in (dtype.min(), dtype.max()))  # type: ignore[attr-defined]

    def fit(name: str, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) <= most:
            raise _unfit(name, value, dtype)
        return value

    return fit


def _fit_float(dtype: pl.DataType) -> Fit:
    number, code = _as_is(dtype, Real), "<f" if dtype == pl.Float32() else "<d"

    def fit(name: str, value: Any) -> Any:
        number(name, value)
        try:
            struct.pack(code, value)
        except OverflowError:
            raise _unfit(name, value, dtype) from None
        return value

    return fit


def _fit_decimal(dtype: pl.Decimal) -> Fit:
    def fit(name: str, value: Any) -> Any:
        # The text of a float has the digits that its user wrote.
        written = float.__repr__(value) if isinstance(value, float) else value
        if isinstance(written, bool) or not isinstance(written, Integral | Decimal | str):
            raise _unfit(name, value, dtype)
        try:
            exact = Decimal(int(written) if isinstance(written, Integral) else written)
        except InvalidOperation:
            raise _unfit(name, value, dtype) from None
        if not _has_digits(exact, dtype):
            raise _unfit(name, value, dtype)
        return exact

    return fit


def _has_digits(value: Decimal, dtype: pl.Decimal) -> bool:
    """Whether a type has all of a number's digits."""
    if not value.is_finite():
        return False
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    written = "".join(map(str, digits)).rstrip("0")
    behind = -exponent - (len(digits) - len(written)) if written else 0
    return behind <= dtype.scale and value.adjusted() < (dtype.precision or 38) - dtype.scale


_EXACT = {pl.Float64(): float, pl.Int64(): int, pl.String(): str, pl.Boolean(): bool, pl.Binary(): bytes}
"""Types whose values need no look of their own in a list, as long as all of them are of one Python type."""


def _fit_list(dtype: pl.List) -> Fit:
    inner, exact = fit_of(instance(dtype.inner)), {_EXACT.get(instance(dtype.inner)), type(None)}

    def fit(name: str, value: Any) -> Any:
        if not isinstance(value, Collection) or isinstance(value, str | bytes | bytearray | memoryview | Mapping):
            raise _unfit(name, value, dtype)
        if set(map(type, value)) <= exact:
            return list(value)
        return [None if item is None else inner(f"{name}[{i}]", item) for i, item in enumerate(value)]

    return fit


def _fit_struct(dtype: pl.Struct) -> Fit:
    fields = {f.name: fit_of(instance(f.dtype)) for f in dtype.fields}

    def fit(name: str, value: Any) -> Any:
        if not isinstance(value, Mapping) or not value.keys() <= fields.keys():
            raise _unfit(name, value, dtype)
        return {c: None if item is None else fields[c](f"{name}.{c}", item) for c, item in value.items()}

    return fit


def _unfit(name: str, value: Any, dtype: pl.DataType) -> Unfit:
    return Unfit(f"column {name!r}: {value!r:.80} is not {type_name(dtype)}")
